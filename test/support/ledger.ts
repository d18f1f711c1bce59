/** A ledger on a test's database, with what its tests ask all the time; closed after the file's tests. */
import { afterAll } from 'vitest'
import type { Answer, Command, LeaseView } from '../../src/core/command.ts'
import type { Reason, Refusal } from '../../src/core/refusal.ts'
import type { Outcome, SubmitOptions } from '../../src/ledger/ledger.ts'
import { type LedgerOptions, type OpenLedger, openLedger } from '../../src/ledger/open.ts'
import { createNetwork } from './commands.ts'

export type TestLedger = OpenLedger & {
  /** What the ledger logged: `[level, message, fields]`. */
  readonly logged: readonly Logged[]
  /** The answer of a command that must be accepted. */
  accept(command: Command, options?: SubmitOptions): Promise<Answer>
  leases(command: Command): Promise<readonly LeaseView[]>
  /** The only lease of the answer. */
  take(command: Command, options?: SubmitOptions): Promise<LeaseView>
  /** The refusal of a command that must be refused, and for this reason. */
  refuse(command: Command, reason: Reason, options?: SubmitOptions): Promise<Refusal>
}

export type Logged = { readonly level: 'warn' | 'error'; readonly fields: object; readonly message: string }

let networks = 0

export function openTestLedger(options: Omit<LedgerOptions, 'log'>): TestLedger {
  const logged: Logged[] = []
  const log = (level: Logged['level']) => (fields: object, message: string) => {
    logged.push({ level, fields, message })
  }
  const ledger = openLedger({ ...options, log: { warn: log('warn'), error: log('error') } })
  const accept = async (command: Command, submit?: SubmitOptions) =>
    accepted(await ledger.submit(command, submit), command)
  return {
    ...ledger,
    logged,
    accept,
    leases: async (command) => (await accept(command)).leases,
    async take(command, submit) {
      const { leases } = await accept(command, submit)
      if (leases.length !== 1) throw new Error(`${leases.length} leases instead of one`)
      return leases[0]!
    },
    async refuse(command, reason, submit) {
      const outcome = await ledger.submit(command, submit)
      if (outcome.ok) throw new Error(`${command.type} was accepted: ${JSON.stringify(outcome.answer)}`)
      if (outcome.refusal.reason !== reason) throw unexpected(command, outcome.refusal)
      return outcome.refusal
    },
  }
}

export function useLedger(options: Omit<LedgerOptions, 'log'>): TestLedger {
  const ledger = openTestLedger(options)
  afterAll(() => ledger.close())
  return ledger
}

/** A network of its own for a test, whatever the other tests of the file do. */
export async function freshNetwork(ledger: TestLedger): Promise<string> {
  networks += 1
  const network = `n${networks}`
  await ledger.accept(createNetwork(network))
  return network
}

function accepted(outcome: Outcome, command: Command): Answer {
  if (!outcome.ok) throw unexpected(command, outcome.refusal)
  return outcome.answer
}

function unexpected(command: Command, refusal: Refusal): Error {
  return new Error(`${command.type} was refused: ${refusal.reason}: ${refusal.message}`)
}
