/**
 * The command line: a verb for every RPC that people use, and those that run the service. Answers go to stdout, everything
 * else to stderr. Exit codes: 0 success, 1 refused, 2 usage, 3 unreachable.
 */
import { readFileSync } from 'node:fs'
import { Command, CommanderError } from 'commander'
import type { CallFailed } from '../client/call-failed.ts'
import { agentCommand } from './agent.ts'
import { auditCommands } from './audit.ts'
import { completionCommand } from './completion.ts'
import { databaseCommands } from './database.ts'
import { failureJson, failureText, REFUSED, UNREACHABLE, Unclear, Unsuccessful, USAGE } from './failure.ts'
import { importCommands } from './import.ts'
import { leaseCommands } from './lease.ts'
import { livenessCommands } from './liveness.ts'
import { networkCommands } from './network.ts'
import { poolCommands } from './pool.ts'
import { processCommands } from './process.ts'
import { rejudgeCommand } from './rejudge.ts'
import { reserveCommand } from './reserve.ts'
import { sourceCommands } from './source.ts'
import { tokenCommands } from './token.ts'
import { watchCommand } from './watch.ts'

/**
 * Errors whose message is a sentence for people. By their names: what a command does not need is not loaded, so that it starts in
 * 0.3 s.
 */
const SENTENCES = ['StartRefused', 'ConnectFailed', 'TokenFileError', 'Unclear']

/** Runs one command to its end; `serve` and `worker` end when they are told to. Answers the exit code. */
export async function runCli(args: readonly string[]): Promise<number> {
  try {
    await createProgram().parseAsync(args, { from: 'user' })
    return 0
  } catch (error) {
    return await explain(error, args)
  }
}

export function createProgram(): Command {
  const program = new Command('ipledger')
  program
    .description('Hands out IP addresses, and never one address to two live workloads.')
    .version(version(), '-V, --version')
    // Further on --version is that of a lease or a pool.
    .enablePositionalOptions()
    .exitOverride()
    .configureOutput({ outputError: (text, write) => write(text.replace(/^error: /, 'ipledger: ')) })
    .helpCommand('help [command]', 'help for a command')
    .addHelpText(
      'after',
      `
Commands that ask a server go to IPLEDGER_URL (default http://127.0.0.1:8080) with IPLEDGER_TOKEN.
-o json prints exactly what the API answers. Errors go to stderr. Exit codes: 0 success, 1 refused or found wrong, 2 usage,
3 the server or the database cannot be reached.

Start:
  ipledger serve
  ipledger pool create web --cidr 10.0.0.0/24 --gateway 10.0.0.1
  ipledger reserve --kind container --name node-1/web --pool web
  ipledger lease list`,
    )
  processCommands(program)
  agentCommand(program)
  networkCommands(program)
  poolCommands(program)
  reserveCommand(program)
  auditCommands(program, leaseCommands(program))
  rejudgeCommand(program)
  watchCommand(program)
  sourceCommands(program)
  livenessCommands(program)
  importCommands(program)
  databaseCommands(program)
  tokenCommands(program)
  completionCommand(program)
  return program
}

function version(): string {
  const file = new URL('../../package.json', import.meta.url)
  return (JSON.parse(readFileSync(file, 'utf8')) as { readonly version: string }).version
}

async function explain(error: unknown, args: readonly string[]): Promise<number> {
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : USAGE
  if (error instanceof Unsuccessful) return error.exitCode
  const name = error instanceof Error ? error.name : ''
  if (name === 'CallFailed') {
    const failed = error as CallFailed
    const isJson = /(?:^| )(?:-o ?|--output[ =])json(?: |$)/.test(args.join(' '))
    const { readConfig } = await import('../config.ts')
    console.error(isJson ? failureJson(failed) : await failureText(failed, readConfig().clientUrl))
    return failed.reason === undefined ? UNREACHABLE : REFUSED
  }
  console.error(SENTENCES.includes(name) ? `ipledger: ${(error as Error).message}` : error)
  if (name === 'ConnectFailed') return UNREACHABLE
  if ((error as { readonly isUsage?: boolean }).isUsage === true) return USAGE
  return error instanceof Unclear ? error.exitCode : REFUSED
}
