/** The file of tokens: create, list, revoke. It needs no server. */
import * as fs from 'node:fs'
import { Option } from 'commander'
import type { Role } from '../api/rights.ts'
import type { createToken } from '../api/tokens.ts'
import { CommandFailed, UsageError } from './exit.ts'
import { type Format, outputOption, print, tableOf } from './print.ts'
import { list } from './readers.ts'
import { command, group } from './verb.ts'

const ROLES = ['admin', 'orchestrator', 'agent', 'auditor'] satisfies readonly Role[]
const load = () => import('../api/tokens.ts')

type FileOptions = { readonly file?: string; readonly output?: Format }
type CreateOptions = FileOptions & Omit<Parameters<typeof createToken>[0], 'file' | 'name'>

const FILE = ['--file <path>', 'file of hashed tokens (default: IPLEDGER_TOKENS)'] as const

export const tokenCommands = group(
  'token',
  'bearer tokens of a server: its file of hashes, read again when it changes',
  command('create <name>', {
    about: 'make a token; it is printed once and not stored',
    options: [
      FILE,
      new Option('--role <role>', 'its rights').choices(ROLES),
      ['--networks <names>', 'only in these networks; repeatable, or with commas', list],
      ['--node <name>', 'only for workloads of this node; an agent needs it'],
      ['--subject <name>', 'no token: for client certificates of this subject: CN=node-3,O=agents'],
    ],
    required: ['role'],
    help: `
Without a file, IPLEDGER_TOKENS or --file, a server listens on loopback only and every caller is admin.

Examples:
  ipledger token create orchestrator-1 --role orchestrator --networks default --file tokens.jsonl
  ipledger token create node-3 --role agent --node node-3 --file tokens.jsonl`,
    async run(options: CreateOptions, name: string) {
      const token = (await load()).createToken({ ...options, file: await fileOf(options), name })
      if (options.subject !== undefined)
        return console.error(`Certificates of ${options.subject} stand for ${name}.`)
      console.log(token)
      console.error('It is not stored anywhere: keep it now.')
    },
  }),
  command('list', {
    about: 'tokens by name, without their secrets',
    options: [FILE, outputOption()],
    async run(options: FileOptions) {
      const all = (await load()).readTokens(await fileOf(options))
      const tokens = all.map(({ sha256: _, ...shown }) => shown)
      await print(options.output, tokens, () => tableOf('no tokens', tokens))
    },
  }),
  command('revoke <name>', {
    about: 'withdraw a token; servers know within 2 s',
    options: [FILE],
    run: async (options: FileOptions, name: string) => revoke(await fileOf(options), name),
  }),
)

async function fileOf(options: FileOptions): Promise<string> {
  const { readConfig } = await import('../config.ts')
  const file = options.file ?? readConfig().tokensFile
  if (file === undefined) throw new UsageError('Name the file of tokens with --file, or set IPLEDGER_TOKENS.')
  return file
}

/**
 * Readers see the file before or after, never half of it. Owner and mode stay: a server that can't read the new file would keep
 * the withdrawn token in force.
 */
async function revoke(named: string, name: string): Promise<void> {
  if (!(await load()).readTokens(named).some((one) => one.name === name))
    throw new CommandFailed(`${named} has no token named ${name}.`)
  const file = fs.realpathSync(named)
  const lines = fs.readFileSync(file, 'utf8').split('\n')
  const kept = lines.filter((line) => line.trim() !== '' && JSON.parse(line).name !== name)
  const made = `${file}.new`
  fs.rmSync(made, { force: true })
  fs.writeFileSync(made, kept.map((line) => `${line}\n`).join(''), { mode: 0o600, flag: 'wx', flush: true })
  try {
    const { uid, gid, mode } = fs.statSync(file)
    fs.chownSync(made, uid, gid)
    fs.chmodSync(made, mode & 0o7777)
    fs.renameSync(made, file)
  } catch (error) {
    fs.rmSync(made, { force: true })
    throw new CommandFailed(
      `${file} could not be replaced by one of the same owner, so nothing was withdrawn (${(error as Error).message}): run this as its owner or as root.`,
    )
  }
}
