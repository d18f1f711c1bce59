/**
 * The command line: a verb for every RPC, and those that run the service. Answers go to stdout, everything else to
 * stderr; the exit code is 0 only on success.
 */

import { Command, CommanderError } from 'commander'
import { TokenFileError } from './api/tokens.ts'
import { asOfCommand } from './cli/as-of.ts'
import { auditCommands } from './cli/audit.ts'
import { benchCommand } from './cli/bench.ts'
import { databaseCommands } from './cli/database.ts'
import { demoCommand } from './cli/demo.ts'
import { eventsCommand } from './cli/events.ts'
import { explainCommand } from './cli/explain.ts'
import { failureJson, failureText, Unclear, Unsuccessful } from './cli/failure.ts'
import { fenceCommand } from './cli/fence.ts'
import { historyCommand } from './cli/history.ts'
import { holdCommands } from './cli/hold.ts'
import { leaseCommands } from './cli/lease.ts'
import { networkCommands } from './cli/network.ts'
import { poolCommands } from './cli/pool.ts'
import { processCommands } from './cli/process.ts'
import { rebuildCommand } from './cli/rebuild.ts'
import { reconcileCommand } from './cli/reconcile.ts'
import { recoverCommand } from './cli/recover.ts'
import { reserveCommand } from './cli/reserve.ts'
import { snapshotCommands } from './cli/snapshot.ts'
import { sourceCommands } from './cli/source.ts'
import { stuckCommand } from './cli/stuck.ts'
import { tokenCommands } from './cli/token.ts'
import { verifyCommand } from './cli/verify.ts'
import { CallFailed } from './client/call-failed.ts'
import { readConfig, StartRefused } from './config.ts'
import { BrokenBooks } from './core/books.ts'
import { ConnectFailed } from './postgres/connect.ts'

/** Errors whose message is a sentence for people. */
const SENTENCES = [BrokenBooks, StartRefused, ConnectFailed, TokenFileError, Unclear]

/** Runs one command to its end; `serve` and `worker` end when they are told to. Answers the exit code. */
export async function runCli(args: readonly string[]): Promise<number> {
  const program = createProgram()
  try {
    await program.parseAsync(args, { from: 'user' })
    return 0
  } catch (error) {
    return explain(error, args.includes('--json'))
  }
}

export function createProgram(): Command {
  const program = new Command('ipledger')
  program
    .description('Hands out IP addresses, and never one address to two live workloads.')
    .exitOverride()
    .configureOutput({ outputError: (text, write) => write(text.replace(/^error: /, 'ipledger: ')) })
    .helpCommand('help [command]', 'help for a command')
    .addHelpText(
      'after',
      `
Commands that ask a server go to IPLEDGER_URL (default http://127.0.0.1:8080) with IPLEDGER_TOKEN.
--json prints exactly what the API answers. Errors go to stderr; the exit code is 0 only on success.

Start:
  ipledger serve
  ipledger pool create web --cidr 10.0.0.0/24 --gateway 10.0.0.1
  ipledger reserve --kind container --name node-1/web --pool web
  ipledger lease list`,
    )
  processCommands(program)
  networkCommands(program)
  poolCommands(program)
  reserveCommand(program)
  leaseCommands(program)
  historyCommand(program)
  explainCommand(program)
  asOfCommand(program)
  eventsCommand(program)
  auditCommands(program)
  sourceCommands(program)
  snapshotCommands(program)
  reconcileCommand(program)
  holdCommands(program)
  stuckCommand(program)
  fenceCommand(program)
  verifyCommand(program)
  rebuildCommand(program)
  recoverCommand(program)
  databaseCommands(program)
  tokenCommands(program)
  benchCommand(program)
  demoCommand(program)
  return program
}

function explain(error: unknown, json: boolean): number {
  if (error instanceof CommanderError || error instanceof Unsuccessful) return error.exitCode
  if (error instanceof CallFailed) {
    console.error(json ? failureJson(error) : failureText(error, readConfig().clientUrl))
    return 1
  }
  const explained = error instanceof Error && SENTENCES.some((one) => error instanceof one)
  console.error(explained ? `ipledger: ${error.message}` : error)
  return 1
}
