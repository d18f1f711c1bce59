/** How options and arguments are read. What is malformed is refused here; what it means is the server's business. */

import type { MessageInitShape } from '@bufbuild/protobuf'
import { type Duration, durationFromMs } from '@bufbuild/protobuf/wkt'
import { type Command, InvalidArgumentError } from 'commander'
import type { OwnerSchema } from '../gen/ipledger/v1/types_pb.ts'

const UNITS = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const

/** `30s`, `2m`, `1h30m`, `500ms`, `7d`. */
export function duration(text: string): Duration {
  const parts = [...text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d)/g)]
  if (parts.length === 0 || parts.map((part) => part[0]).join('') !== text) {
    throw new InvalidArgumentError('A duration is a number with ms, s, m, h or d: 30s, 2m, 1h30m.')
  }
  const ms = parts.reduce((sum, part) => sum + Number(part[1]) * UNITS[part[2] as keyof typeof UNITS], 0)
  return durationFromMs(Math.round(ms))
}

/** A 64-bit number of the ledger: a version, a position. */
export function seq(text: string): bigint {
  if (!/^\d{1,19}$/.test(text)) throw new InvalidArgumentError('It must be a whole number.')
  return BigInt(text)
}

export function whole(text: string): number {
  if (!/^\d{1,9}$/.test(text)) throw new InvalidArgumentError('It must be a whole number.')
  return Number(text)
}

/** For options that may be repeated, or hold several values with commas between. */
export function list(text: string, before: readonly string[] = []): readonly string[] {
  return [...before, ...text.split(',').map((part) => part.trim())]
}

/** For options that may be repeated and whose values may hold commas. */
export function repeated(text: string, before: readonly string[] = []): readonly string[] {
  return [...before, text]
}

export type LabelMap = Readonly<Record<string, string>>

export function label(text: string, before: LabelMap = {}): LabelMap {
  const at = text.indexOf('=')
  if (at < 1) throw new InvalidArgumentError('A label is written key=value.')
  return { ...before, [text.slice(0, at)]: text.slice(at + 1) }
}

type EnumOf<E> = Exclude<E[keyof E], 0>

/** Values of a protobuf enum by their names, in any case; `-` stands for `_`. */
export function names<const E extends Readonly<Record<string, number>>>(
  known: E,
): (text: string, before?: readonly EnumOf<E>[]) => readonly EnumOf<E>[] {
  return (text, before = []) => [
    ...before,
    ...text.split(',').map((part) => {
      const found = known[part.trim().toUpperCase().replaceAll('-', '_')]
      // 0 is "unspecified": no name of it belongs in a request.
      if (!found) throw new InvalidArgumentError(`It must be one of ${namesOf(known).join(', ')}.`)
      return found as EnumOf<E>
    }),
  ]
}

/** One value of a protobuf enum by its name. */
export function name<const E extends Readonly<Record<string, number>>>(
  known: E,
): (text: string) => EnumOf<E> {
  const read = names(known)
  return (text) => read(text)[0]!
}

function namesOf(known: Readonly<Record<string, number>>): readonly string[] {
  return Object.keys(known).filter((one) => known[one] !== 0)
}

/** `default/42` names a lease; an address has no slash. */
export function isLeaseId(target: string): boolean {
  return target.includes('/')
}

// Options that several commands share.

/** Options of every command that asks the server. */
export type CallOptions = Readonly<{ json?: boolean; network?: string }>

export function withJson(command: Command): Command {
  return command.option('--json', 'print the answer as the API gives it')
}

export function withNetwork(command: Command): Command {
  return command.option('--network <name>', 'network', 'default')
}

export function withRequestId(command: Command): Command {
  return command.option(
    '--request-id <id>',
    'makes the command exactly-once for 24 h: repeating it gives the same answer',
  )
}

export function withPage(command: Command): Command {
  return command
    .option('--page-size <n>', 'rows of a page, at most 1000', whole)
    .option('--page-token <token>', 'continue where the page before ended')
}

export type OwnerOptions = Readonly<{
  kind?: string
  name?: string
  uid?: string
  incarnation?: string
  interface?: string
  node?: string
  boot?: string
  label?: LabelMap
}>

export function withOwner(command: Command): Command {
  return command
    .option('--kind <kind>', 'what the owner is: pod, container, vm, sandbox, infrastructure, …')
    .option('--name <name>', 'name of the owner, unique per kind in a network: default/web-0')
    .option('--uid <uid>', 'identity at its authority: pod uid, container id')
    .option('--incarnation <id>', 'one life of the owner: sandbox id, start')
    .option('--interface <name>', 'interface of the owner')
}

export function ownerOf(options: OwnerOptions): MessageInitShape<typeof OwnerSchema> {
  const { kind, name, uid, incarnation, node, boot, label: labels } = options
  return {
    ...given({ kind, name, uid, incarnation, node, boot, labels }),
    ...given({ interface: options.interface }),
  }
}

type Given<T> = { [K in keyof T]?: Exclude<T[K], undefined> }

/** Without what was not said. */
export function given<T extends object>(fields: T): Given<T> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as Given<T>
}
