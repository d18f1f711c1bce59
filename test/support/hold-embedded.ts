/** Starts the embedded server in the directory given, prints its postmaster's process id, and waits to be killed. */

import { pino } from 'pino'
import { startEmbedded } from '../../src/postgres/embedded.ts'

const log = pino({ level: 'warn' }, pino.destination(2))
const server = await startEmbedded({ directory: process.argv[2]!, log })
console.log(server.pid())
setInterval(() => {}, 60_000)
