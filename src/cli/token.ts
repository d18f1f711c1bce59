import {
  chmodSync,
  chownSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { type Command, Option } from 'commander'
import type { Role } from '../api/rights.ts'
import { REFUSED, Unclear } from './failure.ts'
import { type Format, outputOption, printData, tableOf } from './print.ts'
import { list } from './readers.ts'

const ROLES = ['admin', 'orchestrator', 'agent', 'auditor'] satisfies readonly Role[]
/** Loaded by the commands that need it. */
const load = () => import('../api/tokens.ts')

type FileOptions = { readonly file?: string; readonly output?: Format }
type CreateOptions = FileOptions & {
  readonly role: Role
  readonly networks?: readonly string[]
  readonly node?: string
  readonly subject?: string
}

export function tokenCommands(program: Command): void {
  const token = program
    .command('token')
    .description('bearer tokens of a server: its file of hashes, read again when it changes')
    .addHelpText(
      'after',
      `
The file is the one that IPLEDGER_TOKENS names, or --file. Without one, a server listens on loopback only and every
caller is admin.`,
    )
  const command = (usage: string, about: string) =>
    token
      .command(usage)
      .description(about)
      .option('--file <path>', 'file of hashed tokens (default: IPLEDGER_TOKENS)')

  command('create <name>', 'make a token; it is shown once and stored nowhere')
    .addOption(new Option('--role <role>', 'what it may do').choices(ROLES).makeOptionMandatory())
    .option('--networks <names>', 'only in these networks; repeatable, or with commas', list)
    .option('--node <name>', 'only for workloads of this node; an agent needs it')
    .option('--subject <name>', 'no token, but whoever has a certificate of this subject: CN=node-3,O=agents')
    .addHelpText(
      'after',
      `
Examples:
  ipledger token create orchestrator-1 --role orchestrator --networks default --file tokens.jsonl
  ipledger token create node-3 --role agent --node node-3 --file tokens.jsonl`,
    )
    .action(async (name: string, options: CreateOptions) => {
      const { createToken } = await load()
      const token = createToken({ ...options, file: await fileOf(options), name })
      if (options.subject !== undefined)
        return console.error(`Certificates of ${options.subject} stand for ${name}.`)
      console.log(token)
      console.error('It is not stored anywhere: keep it now.')
    })

  command('list', 'tokens by name, without what opens them')
    .addOption(outputOption())
    .action(async (options: FileOptions) => {
      const { readTokens } = await load()
      const tokens = readTokens(await fileOf(options)).map(({ sha256: _, ...told }) => told)
      if (await printData(options.output, tokens)) return
      console.log(
        tableOf('no tokens', tokens, {
          NAME: ({ name }) => name,
          ROLE: ({ role }) => role,
          NETWORKS: ({ networks = [] }) => networks.join(','),
          NODE: ({ node = '' }) => node,
          CERTIFICATE: ({ subject = '' }) => subject,
          CREATED: ({ created }) => created,
        }),
      )
    })

  command('revoke <name>', 'withdraw a token; servers know within 2 s').action(
    async (name: string, options: FileOptions) => revoke(await fileOf(options), name),
  )
}

async function fileOf(options: FileOptions): Promise<string> {
  const { readConfig } = await import('../config.ts')
  const file = options.file ?? readConfig().tokensFile
  if (file === undefined) throw new Unclear('Name the file of tokens with --file, or set IPLEDGER_TOKENS.')
  return file
}

/**
 * Readers see the file before or after, never half of it, and may still read it: a server that may not keeps the tokens
 * of its last reading in force, the one that was withdrawn too.
 */
async function revoke(named: string, name: string): Promise<void> {
  const { readTokens } = await load()
  if (!readTokens(named).some((one) => one.name === name))
    throw new Unclear(`${named} has no token named ${name}.`, REFUSED)
  const file = realpathSync(named)
  const kept = readFileSync(file, 'utf8')
    .split('\n')
    .filter((line) => line.trim() !== '' && (JSON.parse(line) as { readonly name: string }).name !== name)
  const made = `${file}.new`
  rmSync(made, { force: true })
  writeFileSync(made, kept.map((line) => `${line}\n`).join(''), { mode: 0o600, flag: 'wx', flush: true })
  try {
    const { uid, gid, mode } = statSync(file)
    chownSync(made, uid, gid)
    chmodSync(made, mode & 0o7777)
    renameSync(made, file)
  } catch (error) {
    rmSync(made, { force: true })
    throw new Unclear(
      `${file} could not be replaced by one of the same owner, so nothing was withdrawn (${(error as Error).message}): run this as its owner or as root.`,
      REFUSED,
    )
  }
}
