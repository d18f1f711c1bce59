/** Starts the embedded server in the directory given, prints its postmaster's process id, and waits to be killed. */

import { startEmbedded } from '../../src/postgres/embedded.ts'
import { createLogger } from '../../src/telemetry.ts'

const server = await startEmbedded({ directory: process.argv[2]!, log: createLogger('warn') })
console.log(server.pid())
setInterval(() => {}, 60_000)
