/** The plugin where no agent answers: it asks the service itself. `launcher.c` is what runtimes start. */
import { readFileSync } from 'node:fs'
import { text } from 'node:stream/consumers'
import { createClient } from '../client/client.ts'
import { type Answer, failure } from './answer.ts'
import { Attachments } from './attachments.ts'
import { type Config, readCall, versionOf } from './call.ts'
import { CniError } from './cni-error.ts'
import { runCommand } from './commands.ts'
import * as namespaces from './namespaces.ts'

/** A runtime waits for minutes. */
const PATIENCE_MS = 10_000

async function answer(stdin: string): Promise<Answer> {
  try {
    const call = readCall(process.env, stdin)
    const { ipam } = call.config
    const client = createClient({
      url: ipam.url ?? 'http://127.0.0.1:8080',
      token: fileOf(ipam, 'token')?.trim(),
      tls: tlsOf(ipam),
    })
    const attachments = new Attachments(ipam.stateDir, console.error)
    const { node = '' } = ipam
    const context = { client, node, attachments, namespaces, patienceMs: PATIENCE_MS, agent: null }
    return await runCommand(call, context)
  } catch (error) {
    if (!(error instanceof CniError)) console.error(error)
    return failure(versionOf(stdin), error)
  }
}

function fileOf(ipam: Config['ipam'], name: 'token' | 'ca' | 'cert' | 'key'): string | undefined {
  const path = ipam[`${name}File`]
  try {
    return path === undefined ? undefined : readFileSync(path, 'utf8')
  } catch (error) {
    throw new CniError('configuration', `ipam.${name}File: ${(error as Error).message}`)
  }
}

function tlsOf(ipam: Config['ipam']) {
  const files = (['ca', 'cert', 'key'] as const).map((name) => [name, fileOf(ipam, name)] as const)
  return Object.fromEntries(files.filter(([, content]) => content !== undefined))
}

const { exitCode, stdout, note } = await answer(await text(process.stdin))
if (note) console.error(note)
process.stdout.write(stdout, () => process.exit(exitCode))
