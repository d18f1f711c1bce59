/**
 * The command line: a verb for every RPC that people use, and those that run the service. Answers go to stdout, everything
 * else to stderr. Exit codes: 0 success, 1 refused, 2 usage, 3 unreachable.
 */
import { Command, CommanderError } from 'commander'
import manifest from '../../package.json' with { type: 'json' }
import type { CallFailed } from '../client/call-failed.ts'
import { auditCommands } from './audit.ts'
import { completionCommands } from './completion.ts'
import { databaseCommands } from './database.ts'
import { CommandFailed, REFUSED, UNREACHABLE, USAGE } from './exit.ts'
import { failureJson, failureText } from './failure.ts'
import { importCommands } from './import.ts'
import { leaseCommands } from './lease.ts'
import { livenessCommands } from './liveness.ts'
import { networkCommands } from './network.ts'
import { poolCommands } from './pool.ts'
import { processCommands } from './process.ts'
import { rejudgeCommand } from './rejudge.ts'
import { tokenCommands } from './token.ts'
import { versionCommand } from './version.ts'

/**
 * Errors of other rooms whose message is a sentence for people, and their exit codes. By name: a command
 * loads only the rooms that it needs, so that it starts in 0.3 s.
 */
const SENTENCES: Readonly<Record<string, number>> = {
  StartRefused: REFUSED,
  TokenFileError: REFUSED,
  ConnectionLost: UNREACHABLE,
}

// A reader that stops early (`ipledger events | head`) is not an error.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error
  process.exit(0)
})

/** Runs one command to its end; `serve` and `worker` end by a signal. Returns the exit code. */
export function runCli(args: readonly string[]): Promise<number> {
  return exitCodeOf(() => createProgram().parseAsync(args, { from: 'user' }), args)
}

/** Prints why `work` failed. */
export async function exitCodeOf(work: () => Promise<unknown>, args: readonly string[] = []) {
  try {
    await work()
    return 0
  } catch (error) {
    return await explain(error, args)
  }
}

const COMMANDS = {
  'Every day:': [...leaseCommands, poolCommands, networkCommands],
  'The past:': [...auditCommands, rejudgeCommand],
  'Sources of live addresses:': livenessCommands,
  'For operators:': [...databaseCommands, versionCommand],
  'Set-up:': [...processCommands, ...importCommands, tokenCommands, ...completionCommands],
}

export function createProgram(): Command {
  const program = new Command('ipledger')
  program
    .description('Hands out IP addresses, and never one address to two live workloads.')
    .version(manifest.version, '-V, --version')
    // Further on --version is that of a lease or a pool.
    .enablePositionalOptions()
    .exitOverride()
    .configureOutput({ outputError: (text, write) => write(text.replace(/^error: /, 'ipledger: ')) })
    .helpCommand('help [command]', 'help for a command')
    .addHelpText(
      'after',
      `
Commands that ask a server go to --url or IPLEDGER_URL (default http://127.0.0.1:8080) with --token or IPLEDGER_TOKEN.
-o json prints exactly what the API answers. Errors go to stderr. Exit codes: 0 success, 1 refused or found wrong, 2 usage,
3 the server or the database cannot be reached.

Start:
  ipledger serve
  ipledger pool create web --cidr 10.0.0.0/24 --gateway 10.0.0.1
  ipledger reserve --kind container --name node-1/web --pool web
  ipledger lease list`,
    )
  for (const [heading, all] of Object.entries(COMMANDS)) {
    program.commandsGroup(heading)
    for (const add of all) add(program)
  }
  return program
}

async function explain(error: unknown, args: readonly string[]): Promise<number> {
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : USAGE
  if (error instanceof CommandFailed) {
    if (error.message !== '') console.error(`ipledger: ${error.message}`)
    return error.exitCode
  }
  if (!(error instanceof Error)) throw error
  if (error.name === 'CallFailed') {
    const failed = error as CallFailed
    const [, format] = /(?:^| )(?:-o[ =]?|--output[ =])(json|yaml)(?: |$)/.exec(args.join(' ')) ?? []
    const { readConfig } = await import('../config.ts')
    if (format === 'json') console.error(JSON.stringify(failureJson(failed)))
    else if (format === 'yaml') process.stderr.write((await import('yaml')).stringify(failureJson(failed)))
    else console.error(await failureText(failed, readConfig().clientUrl))
    return failed.reason === undefined || failed.reason === 'DATABASE_UNAVAILABLE' ? UNREACHABLE : REFUSED
  }
  const code = SENTENCES[error.name]
  if (code !== undefined) {
    console.error(`ipledger: ${error.message}`)
    return (error as { readonly isUsage?: boolean }).isUsage === true ? USAGE : code
  }
  const { isAway } = await import('../postgres/connection-lost.ts')
  if (isAway(error)) {
    console.error(`ipledger: PostgreSQL does not answer: ${error.message}.`)
    return UNREACHABLE
  }
  // A file or a directory that was named.
  console.error('syscall' in error && 'path' in error ? `ipledger: ${error.message}` : error)
  return REFUSED
}
