/**
 * Commands as declarations. A `verb` asks the server and is made from the descriptor of its method: each option names a field of
 * the request, the descriptor says how it is read, and the answer is printed by its messages. Options that a field implies come
 * by themselves: --network, --why, --version, --request-id, pages; and so do those that say which server. An option for a field that
 * the request does not have is a defect, found when the program is made or at the call. A `command` is any other.
 */
import {
  type DescMessage,
  type DescMethodUnary,
  type MessageInitShape,
  type MessageShape,
  toJson,
} from '@bufbuild/protobuf'
import { MethodOptions_IdempotencyLevel as Idempotency } from '@bufbuild/protobuf/wkt'
import { type Argument, type Command, Option } from 'commander'
import { announce, ask, defaultNetwork, everyPage, type Server, setServer } from './ask.ts'
import { SilentExit } from './exit.ts'
import { spoken } from './failure.ts'
import { type Format, fieldAt, JSON_ANSWERS, type Look, outputOption, print } from './print.ts'
import { choicesOf, readerOf } from './readers.ts'
import { answerText, listIn } from './views.ts'

type Tree = Readonly<Record<string, unknown>>

/** Fields of a request that say where. */
type Where = { network?: string; readonly name?: string; readonly node?: string; readonly leaseId?: string }

/** Adds a command to the program, or to a group of it. */
export type Declared = (parent: Command) => unknown

/**
 * `to`: a path in the request (default: the field of the option's name), or a function from the value to fields of the request;
 * null: `run` reads it.
 */
export type Field = readonly [
  flags: string,
  about: string,
  to?: string | null | ((value: never) => object),
  read?: (text: string, before: never) => unknown,
]

type Declaration = {
  readonly about: string
  readonly help?: string
  /** Options that must be given. A verb's --why is one. */
  readonly required?: readonly string[]
}

type Verb<I extends DescMessage, O extends DescMessage, X> = Declaration & {
  readonly fields?: readonly Field[]
  /** From the argument to fields of the request. Default: the field of its name. */
  readonly argument?: (text: string) => object
  /** Options whose fields `run` fills, by field: `claims.address` is what --address says. */
  readonly says?: Readonly<Record<string, string>>
  /** It says which server and network also if they are the default ones. */
  readonly isGrave?: (request: MessageInitShape<I>) => boolean
  /** Default: the call alone. */
  readonly run?: (request: MessageInitShape<I>, options: X) => Promise<MessageShape<O>>
  readonly show?: (answer: MessageShape<O>, request: MessageInitShape<I>) => string
  /** Paragraphs below it. */
  readonly notes?: (answer: MessageShape<O>) => readonly (string | false)[]
  /** It is printed all the same; the exit code is 1. */
  readonly isFailure?: (answer: MessageShape<O>) => boolean
}

/** As commander takes it: flags, text, and a reader, a default, or both. */
type Flag = readonly [flags: string, about: string, ...more: readonly unknown[]]

type Plain<X, A extends readonly unknown[]> = Declaration & {
  readonly options?: readonly (Option | Flag)[]
  /** Of the first argument. */
  readonly argument?: (argument: Argument) => unknown
  readonly run: (options: X, ...args: A) => unknown
}

export const group =
  (name: string, about: string, ...all: readonly Declared[]): Declared =>
  (parent) => {
    const made = parent.command(name).description(about)
    for (const add of all) add(made)
  }

export const command =
  <X extends object, A extends readonly unknown[] = readonly string[]>(
    usage: string,
    { about, options = [], required = [], argument, help = '', run }: Plain<X, A>,
  ) =>
  (parent: Command): Command => {
    const made = parent.command(usage).description(about).addHelpText('after', help)
    for (const one of options)
      one instanceof Option ? made.addOption(one) : made.option(...(one as readonly [string, string]))
    const needed = made.options.filter((option) => required.includes(option.attributeName()))
    for (const option of needed) option.makeOptionMandatory()
    const [only] = made.registeredArguments
    if (only !== undefined) argument?.(only)
    const [, args = ''] = /^\S+(.*)/.exec(usage)!
    made.usage([args.trim(), ...needed.map(({ flags }) => flags), '[options]'].join(' ').trim())
    return made.action(async () => {
      await setServer(made.opts<Server>())
      await run(made.opts<X>(), ...(made.processedArgs as unknown as A))
    })
  }

/** Of a command that goes to a server. */
export const serverOptions = () =>
  [
    new Option('--url <url>', 'the server (default: http://127.0.0.1:8080)').env('IPLEDGER_URL'),
    new Option('--token <token>', 'who you are to it').env('IPLEDGER_TOKEN'),
  ].map((option) => option.helpGroup(SERVER))
const networkOption = (option: Option) => option.env('IPLEDGER_NETWORK').helpGroup(SERVER)
/** Of a command that works in one network. */
export const networkOptions = () => [
  networkOption(new Option('--network <name>', 'network of the ledger').default('default')),
  ...serverOptions(),
]
const SERVER = 'Server:'

const IMPLIED: readonly Field[] = [
  ['--network <name>', 'network of the ledger (default: "default")'],
  ['--why <text>', 'goes into the log'],
  ['--version <n>', 'only if it is at this version'],
  ['--dry-run', 'decide and answer, but write nothing', 'validateOnly'],
  ['--request-id <id>', 'makes the command exactly-once for 24 h: repeating it gives the same answer'],
  ['--page-size <n>', 'rows of a page, at most 1000'],
  ['--page-token <token>', 'continue where the page before ended'],
]

/** Options for the fields of a request, and the request that they make. `target`: the field of the argument. */
export function requestOptions<I extends DescMessage>(
  input: I,
  declared: readonly Field[],
  target = '',
  formats?: readonly Format[],
) {
  const optionOf = ([flags, about, to, read]: Field) => {
    const option = new Option(flags, about)
    const field = to === undefined ? option.attributeName() : to
    const reader = read ?? (typeof field === 'string' ? readerOf(fieldAt(input, field)) : undefined)
    if (reader !== undefined && !option.negate) option.argParser(reader as (text: string) => unknown)
    if (typeof field === 'string' && read === undefined)
      Object.assign(option, { argChoices: choicesOf(fieldAt(input, field)) })
    return { option: field === 'network' ? networkOption(option) : option, field }
  }
  const fields = declared.map(optionOf)
  const taken = new Set([target, ...fields.map(({ field }) => field)])
  for (const implied of IMPLIED) {
    const [flags, , to = new Option(flags).attributeName()] = implied
    const name = String(to)
    if (!taken.has(name) && hasField(input, name)) fields.push(optionOf(implied))
  }
  const request = (options: object, argument: object = {}): MessageInitShape<I> => {
    let made: Tree = { ...argument }
    const given = fields.flatMap(({ option, field }) => {
      const value = (options as Tree)[option.attributeName()]
      return value !== undefined && (value === false) === option.negate ? [{ field, value }] : []
    })
    for (const { field, value } of given)
      if (typeof field === 'function') made = { ...made, ...field(value as never) }
    for (const { field, value } of given)
      if (typeof field === 'string') made = withField(made, field.split('.'), value)
    for (const name of Object.keys(made)) fieldAt(input, name)
    return masked(input, made) as MessageInitShape<I>
  }
  /** The option of a field that an answer names: `claims[0].pools[0]`. */
  const optionFor = (path: string): string | undefined => {
    const named = path.replaceAll(/\[\d+\]/g, '')
    const { option } = fields.find(({ field }) => `${named}.`.startsWith(`${field}.`)) ?? {}
    return option?.long ?? undefined
  }
  const options = [...fields.map(({ option }) => option), outputOption(formats), ...serverOptions()]
  return { options, request, optionFor }
}

function withField(tree: Tree, [name = '', ...rest]: readonly string[], value: unknown): Tree {
  const inner = rest.length === 0 ? value : withField((tree[name] ?? {}) as Tree, rest, value)
  return { ...tree, [name]: inner }
}

export const verb =
  <I extends DescMessage, O extends DescMessage, X extends object = object>(
    usage: string,
    method: DescMethodUnary<I, O>,
    {
      fields = [],
      argument,
      says = {},
      isGrave,
      run,
      show,
      notes,
      isFailure,
      required = [],
      ...about
    }: Verb<I, O, X>,
  ) =>
  (parent: Command): Command => {
    const [, word = ''] = /[<[]([\w-]+)/.exec(usage) ?? []
    const target = word.replace(/-(.)/g, (_, letter: string) => letter.toUpperCase())
    // `network get` and `network resume` alone mean the network of the environment.
    const isNetwork = usage.includes('[') && ['getNetwork', 'resumeHold'].includes(method.localName)
    const { options, request: requestOf, optionFor } = requestOptions(method.input, fields, target)
    const isPaged = hasField(method.input, 'pageToken')
    if (isPaged) options.push(new Option('--all', 'every page, not only the first'))
    const isRead = method.idempotency === Idempotency.NO_SIDE_EFFECTS
    if (isRead && show === undefined && listIn(method.output) !== undefined)
      options.push(
        new Option('--sort <column>', 'by this column of what is printed; -<column>: the greatest first'),
        new Option('--no-headers', 'without the titles of the columns'),
      )
    type Options = X & Look & { readonly output?: Format; readonly all?: boolean }
    const made = command<Options, readonly [object?]>(usage, {
      ...about,
      options,
      required: ['why', ...required],
      argument: (only) => only.argParser(argument ?? ((text) => ({ [target]: text }))),
      async run(given, named) {
        const request = requestOf(
          given,
          named ?? (isNetwork ? { [target]: await defaultNetwork() } : {}),
        ) as Where & MessageInitShape<I>
        // The id of a lease has its network.
        const { leaseId } = request
        if (leaseId !== undefined && made.getOptionValueSource('network') === 'env') delete request.network
        const isProgram = given.output !== undefined && given.output !== 'wide'
        const mustSay = isGrave?.(request) === true
        if (mustSay || !(isRead || isProgram)) {
          const { name, network = hasField(method.input, 'network') ? '' : name, node } = request
          await announce(pathOf(made), { network: leaseId?.split('/')[0] ?? network, node }, mustSay)
        }
        const perform = async (one: MessageInitShape<I>) => {
          try {
            return await (run?.(one, given) ?? ask(method, one))
          } catch (error) {
            if (isProgram) throw error
            throw spoken(error, (field) => says[field.replaceAll(/\[\d+\]/g, '')] ?? optionFor(field))
          }
        }
        const answer = isPaged
          ? await everyPage(method, request, given.all === true, perform)
          : await perform(request)
        await printAnswer(given, method, answer, () => {
          const text = show?.(answer, request) ?? answerText(method.output, answer, given)
          return [text, ...(notes?.(answer) ?? []).filter((note) => note !== false)].join('\n\n')
        })
        if (isFailure?.(answer)) throw new SilentExit()
      },
    })(parent)
    return made.name() === 'get' ? made.alias('show') : made
  }

/** For programs the API's JSON; for people its messages or the text of `people`, and a hint if there is more. */
export function printAnswer<O extends DescMessage>(
  look: Look & { readonly output?: Format | undefined },
  { output }: DescMethodUnary<DescMessage, O>,
  answer: MessageShape<O>,
  people = () => answerText(output, answer),
): Promise<void> {
  const { nextPageToken: next } = answer as { readonly nextPageToken?: string }
  const more = next ? `\n\nThere is more: --all for everything, --page-token ${next} for the next page.` : ''
  const { output: format } = look
  const isWide = format === 'wide' && listIn(output) !== undefined
  const text = () =>
    format === 'name'
      ? namesIn(output, answer)
      : (isWide ? answerText(output, answer, { ...look, isWide }) : people()) + more
  return print(format, toJson(output, answer, JSON_ANSWERS), text)
}

/** Of the things in an answer, a line each: ids of leases, names of all else. */
function namesIn<O extends DescMessage>(output: O, answer: MessageShape<O>): string {
  const list = listIn(output)
  const one = output.fields.find(({ fieldKind }) => fieldKind === 'message')
  const at = (field: typeof list | typeof one) => (answer as Tree)[field?.localName ?? '']
  const things = (list === undefined ? [at(one)] : at(list)) as readonly Tree[]
  const names = things.map(
    (thing) => thing?.leaseId ?? thing?.name ?? thing?.id ?? thing?.seq ?? thing?.address,
  )
  return names.filter((name) => name !== undefined).join('\n')
}

/** An empty list or map says nothing by itself: with one, a mask names every field that is to change. */
export function masked<R extends object>(input: DescMessage, request: R): R {
  const given = input.fields.filter(({ localName }) => localName in request && !UNMASKED.has(localName))
  const isCleared = given.some(({ fieldKind, localName }) => {
    return (
      (fieldKind === 'list' || fieldKind === 'map') && Object.keys((request as Tree)[localName]!).length === 0
    )
  })
  if (!isCleared || !hasField(input, 'updateMask')) return request
  return { ...request, updateMask: { paths: given.map(({ name }) => name) } }
}

/** `ipledger pool create` */
export function pathOf(made: Command): string {
  return made.parent === null ? made.name() : `${pathOf(made.parent)} ${made.name()}`
}

const UNMASKED: ReadonlySet<string> = new Set(['network', 'name', 'version', 'requestId', 'updateMask'])

function hasField({ fields }: DescMessage, name: string): boolean {
  return fields.some(({ localName }) => localName === name)
}
