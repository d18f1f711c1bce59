/**
 * A command that asks the server, made from the descriptor of its method. Each option says where in the request it goes, and
 * the descriptor says how it is read. What a request's fields imply comes by itself: --network, --why, --version,
 * --request-id, pages. A place that the request does not have is a defect, found when the program is made or at the call:
 * what somebody says is never dropped in silence.
 */
import { readFileSync } from 'node:fs'
import {
  type DescField,
  type DescMessage,
  type DescMethodUnary,
  type Message,
  type MessageInitShape,
  type MessageShape,
  toJson,
} from '@bufbuild/protobuf'
import { type Command, Option } from 'commander'
import type { IpledgerClient } from '../client/client.ts'
import { type Format, JSON_ANSWERS, outputOption, printData, wideTable } from './print.ts'
import { readerOf } from './readers.ts'

type Tree = Readonly<Record<string, unknown>>

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
  readonly show: (answer: MessageShape<O>, request: MessageInitShape<I>) => string
}

/** A command with options for a request, and what was said of it once the command runs. */
export function asking<I extends DescMessage>(
  parent: Command,
  usage: string,
  input: I,
  { about, argument, fields = [], required = [], help = '' }: Spoken,
): { readonly command: Command; readonly request: () => MessageInitShape<I> } {
  const command = parent.command(usage).description(about)
  const [only] = command.registeredArguments
  const target = only === undefined ? undefined : new Option(`--${only.name()}`).attributeName()
  only?.argParser(argument ?? ((text) => ({ [target!]: text })))
  const places = fields.map(([flags, text, to, read]) => placeOf(input, new Option(flags, text), to, read))
  const taken = new Set([target, ...places.map(({ to }) => to)])
  for (const one of IMPLIED.map(([flags, text]) => new Option(flags, text))) {
    const name = one.attributeName()
    if (!taken.has(name) && hasField(input, name)) places.push(placeOf(input, one))
  }
  for (const { option } of places)
    command.addOption(option.makeOptionMandatory(['why', ...required].includes(option.attributeName())))
  command.addOption(outputOption()).addHelpText('after', help)
  const request = () => {
    const parts = [command.processedArgs[0] ?? {}, ...places.map((place) => said(command, place))]
    const made = maskOf(input, parts.reduce(merged, {})) as MessageInitShape<I>
    for (const name of Object.keys(made)) fieldAt(input, name)
    return made
  }
  return { command, request }
}

export function verb<I extends DescMessage, O extends DescMessage, X extends object = object>(
  parent: Command,
  usage: string,
  { method, run, show, ...spoken }: Verb<I, O, X>,
): Command {
  const { input } = method
  const { command, request: read } = asking(parent, usage, input, spoken)
  const isPaged = hasField(input, 'pageToken')
  if (isPaged) command.option('--all', 'every page, not only the first')
  if (command.name() === 'get') command.alias('show')
  return command.action(async () => {
    const options = command.opts<X & { readonly output?: Format; readonly all?: boolean }>()
    const request = read()
    const perform = run ?? ((asked: MessageInitShape<I>) => ask(method, asked))
    const { all, output } = options
    const answer = all
      ? await everyPage(method, (page) => perform({ ...request, ...page }, options))
      : await perform(request, options)
    await print(output, method, answer, (one) => show(one, request))
    if (!isPaged || output === 'json' || output === 'yaml') return
    const { nextPageToken } = answer as unknown as Paged
    if (nextPageToken !== '')
      console.log(`\nThere is more: --all for everything, --page-token ${nextPageToken} for the next page.`)
  })
}

type Paged = { readonly nextPageToken: string }

const IMPLIED: readonly Field[] = [
  ['--network <name>', 'network (default: "default")'],
  ['--why <text>', 'goes into the log'],
  ['--version <n>', 'only if it is at this version'],
  ['--request-id <id>', 'makes the command exactly-once for 24 h: repeating it gives the same answer'],
  ['--page-size <n>', 'rows of a page, at most 1000'],
  ['--page-token <token>', 'continue where the page before ended'],
]

const CLIENTS: Readonly<Record<string, keyof IpledgerClient>> = {
  NetworkService: 'networks',
  PoolService: 'pools',
  LeaseService: 'leases',
  LivenessService: 'liveness',
  AuditService: 'audit',
}

/** Of the server that IPLEDGER_URL and IPLEDGER_TOKEN name. Loaded when somebody asks: help starts without. */
export async function connected(): Promise<IpledgerClient> {
  const [{ readConfig }, { createClient }] = await Promise.all([
    import('../config.ts'),
    import('../client/client.ts'),
  ])
  const { clientUrl: url, clientToken: token, clientTls } = readConfig()
  const files = Object.entries(clientTls).flatMap(([name, file]) =>
    file === undefined ? [] : [[name, readFileSync(file, 'utf8')]],
  )
  return createClient({ url, token, tls: Object.fromEntries(files) })
}

export async function ask<I extends DescMessage, O extends DescMessage>(
  method: DescMethodUnary<I, O>,
  request: MessageInitShape<I>,
): Promise<MessageShape<O>> {
  const calls = (await connected())[CLIENTS[method.parent.name]!] as unknown as Readonly<
    Record<string, (request: MessageInitShape<I>) => Promise<MessageShape<O>>>
  >
  return calls[method.localName]!(request)
}

/** Every page of a list. */
export async function* pages<I extends DescMessage, O extends DescMessage>(
  method: DescMethodUnary<I, O>,
  request: MessageInitShape<I>,
): AsyncGenerator<MessageShape<O>> {
  for (let pageToken = ''; ; ) {
    const page = await ask(method, { ...request, pageSize: 1_000, pageToken })
    yield page
    pageToken = (page as unknown as { readonly nextPageToken: string }).nextPageToken
    if (pageToken === '') return
  }
}

/** All pages as one answer: their lists joined, the rest as the last page says it. */
async function everyPage<O extends DescMessage>(
  { output }: DescMethodUnary<DescMessage, O>,
  perform: (page: object) => Promise<MessageShape<O>>,
): Promise<MessageShape<O>> {
  const lists = output.fields
    .filter(({ fieldKind }) => fieldKind === 'list')
    .map(({ localName }) => localName)
  let joined: Record<string, unknown> = {}
  for (let pageToken = ''; ; ) {
    const page = (await perform({ pageSize: 1_000, pageToken })) as unknown as Record<string, unknown> & Paged
    const longer = lists.map((name) => [name, [...((joined[name] as []) ?? []), ...(page[name] as [])]])
    joined = { ...page, ...Object.fromEntries(longer) }
    pageToken = page.nextPageToken
    if (pageToken === '') return joined as MessageShape<O>
  }
}

export async function print<O extends DescMessage>(
  format: Format | undefined,
  { output }: DescMethodUnary<DescMessage, O>,
  answer: MessageShape<O>,
  people: (answer: MessageShape<O>) => string,
): Promise<void> {
  if (await printData(format, toJson(output, answer, JSON_ANSWERS))) return
  const list = output.fields.find((field) => field.fieldKind === 'list' && field.listKind === 'message')
  if (format !== 'wide' || list?.message === undefined) return console.log(people(answer))
  const things = (answer as unknown as Readonly<Record<string, readonly Message[]>>)[list.localName]!
  console.log(wideTable(list.message, things))
}

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

function fieldAt(desc: DescMessage, path: string): DescField {
  const [name, ...rest] = path.split('.')
  const found = desc.fields.find(({ localName }) => localName === name)
  if (found === undefined) throw new Error(`${desc.name} has no field ${name}`)
  return rest.length === 0 ? found : fieldAt(found.message!, rest.join('.'))
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
