/**
 * Commands as declarations. A `verb` asks the server and is made from the descriptor of its method: each option says where in the
 * request it goes, the descriptor says how it is read, and the answer is shown as its messages are. What a request's fields imply
 * comes by itself: --network, --why, --version, --request-id, pages. A place that the request does not have is a defect, found
 * when the program is made or at the call: what somebody says is never dropped in silence. A `command` is any other.
 */
import {
  type DescMessage,
  type DescMethodUnary,
  type Message,
  type MessageInitShape,
  type MessageShape,
  toJson,
} from '@bufbuild/protobuf'
import { type Command, Option } from 'commander'
import { ask, everyPage } from './ask.ts'
import { SilentExit } from './failure.ts'
import { type Format, fieldAt, JSON_ANSWERS, outputOption, print, wideTable } from './print.ts'
import { readerOf } from './readers.ts'
import { answerText } from './views.ts'

type Tree = Readonly<Record<string, unknown>>

/** Adds a command to the program, or to a group of it. */
export type Declared = (parent: Command) => unknown

/**
 * `to`: a path in the request (default: the field of the option's name), or what the value makes of the request; null: `run`
 * reads it.
 */
export type Field = readonly [
  flags: string,
  about: string,
  to?: string | null | ((value: never) => object),
  read?: (text: string, before: never) => unknown,
]

type Spoken = {
  readonly about: string
  /** What the argument makes of the request, if it is not the field of its name. */
  readonly argument?: (text: string) => object
  readonly fields?: readonly Field[]
  /** Options that must be given, besides --why. */
  readonly required?: readonly string[]
  readonly help?: string
}

type Verb<I extends DescMessage, O extends DescMessage, X> = Spoken & {
  readonly method: DescMethodUnary<I, O>
  /** What is done instead of the call alone. */
  readonly run?: (request: MessageInitShape<I>, options: X) => Promise<MessageShape<O>>
  readonly show?: (answer: MessageShape<O>, request: MessageInitShape<I>) => string
  /** Paragraphs below it. */
  readonly notes?: (answer: MessageShape<O>) => readonly (string | false)[]
  /** It is printed all the same; the exit code is 1. */
  readonly isFailure?: (answer: MessageShape<O>) => boolean
}

/** As commander takes it: flags, text, and a reader, a default, or both. */
type Flag = readonly [flags: string, about: string, ...more: readonly unknown[]]

type Plain<X, W extends readonly unknown[]> = Pick<Spoken, 'about' | 'help'> & {
  readonly options?: readonly (Option | Flag)[]
  readonly required?: readonly string[]
  /** Of the first argument. */
  readonly choices?: readonly string[]
  readonly run: (options: X, ...words: W) => unknown
}

export const group =
  (name: string, about: string, ...all: readonly Declared[]): Declared =>
  (parent) => {
    const made = parent.command(name).description(about)
    for (const add of all) add(made)
  }

export const command =
  <X extends object, W extends readonly unknown[] = readonly string[]>(
    usage: string,
    { about, options = [], required = [], choices, help = '', run }: Plain<X, W>,
  ): Declared =>
  (parent) => {
    const made = parent.command(usage).description(about).addHelpText('after', help)
    for (const one of options)
      one instanceof Option ? made.addOption(one) : made.option(...(one as readonly [string, string]))
    for (const option of made.options)
      option.makeOptionMandatory(option.mandatory || required.includes(option.attributeName()))
    if (choices !== undefined) made.registeredArguments[0]!.choices(choices)
    return made.action(async () => void (await run(made.opts<X>(), ...(made.processedArgs as unknown as W))))
  }

/** A command with options for a request, and what was said of it once the command runs. */
export function asking<I extends DescMessage>(
  parent: Command,
  usage: string,
  input: I,
  { about, argument, fields = [], required = [], help = '' }: Spoken,
): { readonly made: Command; readonly request: () => MessageInitShape<I> } {
  const made = parent.command(usage).description(about)
  const [only] = made.registeredArguments
  const target = only === undefined ? undefined : new Option(`--${only.name()}`).attributeName()
  only?.argParser(argument ?? ((text) => ({ [target!]: text })))
  const places = fields.map(([flags, text, to, read]) => placeOf(input, new Option(flags, text), to, read))
  const taken = new Set([target, ...places.map(({ to }) => to)])
  for (const option of IMPLIED.map(([flags, text]) => new Option(flags, text))) {
    const name = option.attributeName()
    if (!taken.has(name) && hasField(input, name)) places.push(placeOf(input, option))
  }
  for (const { option } of places)
    made.addOption(option.makeOptionMandatory(['why', ...required].includes(option.attributeName())))
  made.addOption(outputOption()).addHelpText('after', help)
  const request = () => {
    const parts = [made.processedArgs[0] ?? {}, ...places.map((place) => said(made, place))]
    const asked = maskOf(input, parts.reduce(merged, {})) as MessageInitShape<I>
    for (const name of Object.keys(asked)) fieldAt(input, name)
    return asked
  }
  return { made, request }
}

export const verb =
  <I extends DescMessage, O extends DescMessage, X extends object = object>(
    usage: string,
    { method, run, show, notes, isFailure, ...spoken }: Verb<I, O, X>,
  ) =>
  (parent: Command): Command => {
    const { made, request: read } = asking(parent, usage, method.input, spoken)
    const isPaged = hasField(method.input, 'pageToken')
    if (isPaged) made.option('--all', 'every page, not only the first')
    if (made.name() === 'get') made.alias('show')
    return made.action(async () => {
      const options = made.opts<X & { readonly output?: Format; readonly all?: boolean }>()
      const request = read()
      const perform = (asked: MessageInitShape<I>) => run?.(asked, options) ?? ask(method, asked)
      const answer = isPaged
        ? await everyPage(method, request, options.all === true, perform)
        : await perform(request)
      await printAnswer(options.output, method, answer, () => {
        const shown = show?.(answer, request) ?? answerText(method.output, answer)
        return [shown, ...(notes?.(answer) ?? []).filter((note) => note !== false)].join('\n\n')
      })
      if (isFailure?.(answer)) throw new SilentExit()
    })
  }

const IMPLIED: readonly Field[] = [
  ['--network <name>', 'network (default: "default")'],
  ['--why <text>', 'goes into the log'],
  ['--version <n>', 'only if it is at this version'],
  ['--request-id <id>', 'makes the command exactly-once for 24 h: repeating it gives the same answer'],
  ['--page-size <n>', 'rows of a page, at most 1000'],
  ['--page-token <token>', 'continue where the page before ended'],
]

/** For programs what the API answers; for people its messages, or what `people` says, and that there is more. */
export function printAnswer<O extends DescMessage>(
  format: Format | undefined,
  { output }: DescMethodUnary<DescMessage, O>,
  answer: MessageShape<O>,
  people = () => answerText(output, answer),
): Promise<void> {
  const list = output.fields.find((field) => field.fieldKind === 'list' && field.listKind === 'message')
  const { nextPageToken = '', ...fields } = answer as unknown as Readonly<
    Record<string, readonly Message[]>
  > &
    Partial<Paged>
  const more =
    nextPageToken &&
    `\n\nThere is more: --all for everything, --page-token ${nextPageToken} for the next page.`
  const isWide = format === 'wide' && list !== undefined
  const text = () => (isWide ? wideTable(list.message!, fields[list.localName]!) : people()) + more
  return print(format, toJson(output, answer, JSON_ANSWERS), text)
}

type Paged = { readonly nextPageToken: string }
type Place = { readonly option: Option; readonly to: Field[2] }

function placeOf(
  input: DescMessage,
  option: Option,
  to: Field[2] = option.attributeName(),
  read?: Field[3],
): Place {
  const reader = read ?? (typeof to === 'string' ? readerOf(fieldAt(input, to)) : undefined)
  if (reader !== undefined && !option.negate) option.argParser(reader as (text: string) => unknown)
  return { option, to }
}

/** A mask names every field that changes: what an option clears is in it already, what others set is added. */
export function maskOf<R extends object>(input: DescMessage, request: R): R {
  const { updateMask, ...said } = request as { readonly updateMask?: { readonly paths: readonly string[] } }
  if (updateMask === undefined) return request
  const given = input.fields.filter(({ localName }) => localName in said && !NOT_CHANGED.has(localName))
  return {
    ...request,
    updateMask: { paths: [...new Set([...updateMask.paths, ...given.map(({ name }) => name)])] },
  }
}

const NOT_CHANGED: ReadonlySet<string> = new Set(['network', 'name', 'version', 'requestId'])

function hasField({ fields }: DescMessage, name: string): boolean {
  return fields.some(({ localName }) => localName === name)
}

/** What an option makes of the request; nothing, if it was not given. */
function said(command: Command, { option, to }: Place): Tree {
  const name = option.attributeName()
  const value: unknown = command.getOptionValue(name)
  const isGiven = command.getOptionValueSource(name) === 'cli' && option.negate === (value === false)
  if (!isGiven || to === null || to === undefined) return {}
  if (typeof to === 'function') return to(value as never) as Tree
  return to.split('.').reduceRight<unknown>((inner, one) => ({ [one]: inner }), value) as Tree
}

/** Lists are joined; of two values of one field the later counts. */
function merged(one: Tree, other: Tree): Tree {
  const joined: Record<string, unknown> = { ...one }
  for (const [name, value] of Object.entries(other)) {
    const before = joined[name]
    if (Array.isArray(before) && Array.isArray(value)) joined[name] = [...before, ...value]
    else joined[name] = isTree(before) && isTree(value) ? merged(before, value) : value
  }
  return joined
}

function isTree(value: unknown): value is Tree {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
