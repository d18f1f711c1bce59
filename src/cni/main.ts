/** The plugin where no agent answers: it calls the service itself. Runtimes start `launcher.c`. */
import { readFileSync } from 'node:fs'
import { text } from 'node:stream/consumers'
import { createClient } from '../client/client.ts'
import { type Answer, failure } from './answer.ts'
import { Attachments } from './attachments.ts'
import { type Config, readCall, versionOf } from './call.ts'
import { CniError } from './cni-error.ts'
import { runCommand } from './commands.ts'
import * as namespaces from './namespaces.ts'

/** Runtimes wait for minutes. */
const PATIENCE_MS = 10_000

async function answer(stdin: string): Promise<Answer> {
  try {
    const call = readCall(process.env, stdin)
    const { ipam } = call.config
    const { token, ...tls } = filesOf(ipam)
    const client = createClient({ url: ipam.url ?? 'http://127.0.0.1:8080', token: token?.trim(), tls })
    const attachments = new Attachments(ipam.stateDir, console.error)
    const { node = '' } = ipam
    const context = { client, node, attachments, namespaces, patienceMs: PATIENCE_MS, agent: null }
    return await runCommand(call, context)
  } catch (error) {
    if (!(error instanceof CniError)) console.error(error)
    return failure(versionOf(stdin), error)
  }
}

function filesOf(ipam: Config['ipam']) {
  const files: { token?: string; ca?: string; cert?: string; key?: string } = {}
  for (const name of ['token', 'ca', 'cert', 'key'] as const)
    try {
      const path = ipam[`${name}File`]
      if (path !== undefined) files[name] = readFileSync(path, 'utf8')
    } catch (error) {
      throw new CniError('configuration', `ipam.${name}File: ${(error as Error).message}`)
    }
  return files
}

const { exitCode, stdout, note } = await answer(await text(process.stdin))
if (note) console.error(note)
process.stdout.write(stdout, () => process.exit(exitCode))
