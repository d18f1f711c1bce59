/**
 * A command that asks the server, made from the descriptor of its method. Options that a request's fields imply come by
 * themselves (--network, --why, --version, --request-id, pages), each other option says where in the request it goes, and
 * an argument is the field of its name. A place that the request does not have is a defect, found when the program is made
 * or at the call: what somebody says is never dropped in silence.
 */
import {
  type DescMessage,
  type DescMethodUnary,
  type MessageInitShape,
  type MessageShape,
  toJson,
} from '@bufbuild/protobuf'
import { type Command, Option } from 'commander'
import { createClient, type IpledgerClient } from '../client/client.ts'
import { readConfig } from '../config.ts'
import { JSON_ANSWERS, printJson } from './print.ts'
import { seq, whole } from './readers.ts'

type Tree = Readonly<Record<string, unknown>>

/** `to`: a path in the request, or what the value makes of the request. Without it `run` reads the option. */
export type Field = { readonly option: Option; readonly to?: string | ((value: never) => object) }

export function field<T = string>(
  flags: string,
  about: string,
  to?: string | ((value: T) => object),
  read?: (text: string, before: T | undefined) => T,
): Field {
  const option = new Option(flags, about)
  if (read !== undefined) option.argParser(read)
  return { option, ...(to !== undefined && { to }) }
}

export const required = (one: Field): Field => ({ ...one, option: one.option.makeOptionMandatory() })

type Verb<I extends DescMessage, O extends DescMessage, X> = {
  readonly about: string
  readonly method: DescMethodUnary<I, O>
  /** What the argument makes of the request, if it is not the field of its name. */
  readonly argument?: (text: string) => object
  readonly fields?: readonly Field[]
  readonly help?: string
  /** What is done instead of the call alone. */
  readonly run?: (request: MessageInitShape<I>, options: X) => Promise<MessageShape<O>>
  readonly show: (answer: MessageShape<O>, request: MessageInitShape<I>) => string
}

export function verb<I extends DescMessage, O extends DescMessage, X extends object = object>(
  parent: Command,
  usage: string,
  { about, method, argument, fields = [], help, run, show }: Verb<I, O, X>,
): Command {
  const command = parent.command(usage).description(about)
  const taken = new Set(command.registeredArguments.map((one) => new Option(`--${one.name()}`).attributeName()))
  const all = [...fields, ...implied(method.input, new Set([...taken, ...fields.map(({ to }) => to)]))]
  for (const { option, to } of all) {
    if (typeof to === 'string') check(method.input, nested(to, true))
    command.addOption(option)
  }
  const [only] = command.registeredArguments
  only?.argParser(argument ?? ((text) => ({ [[...taken][0]!]: text })))
  command.option('--json', 'print the answer as the API gives it')
  if (command.name() === 'get') command.alias('show')
  if (help !== undefined) command.addHelpText('after', help)
  return command.action(async () => {
    const options = command.opts<X & { json?: boolean }>()
    const parts = [command.processedArgs[0] ?? {}, ...all.map((one) => said(command, one))]
    const request = parts.reduce(merged, {}) as MessageInitShape<I>
    check(method.input, request as Tree)
    const answer = await (run ?? ((asked) => ask(method, asked)))(request, options)
    if (options.json === true) return printJson(toJson(method.output, answer, JSON_ANSWERS))
    console.log(show(answer, request))
    if ('nextPageToken' in answer && answer.nextPageToken !== '')
      // Where it does not disturb a pipe.
      console.error(`There is more: --page-token ${answer.nextPageToken}`)
  })
}

const CLIENTS: Readonly<Record<string, keyof IpledgerClient>> = {
  NetworkService: "networks",
  PoolService: "pools",
  LeaseService: "leases",
  LivenessService: "liveness",
  AuditService: "audit",
}

/** Asks the server that IPLEDGER_URL and IPLEDGER_TOKEN name. */
export async function ask<I extends DescMessage, O extends DescMessage>(
  method: DescMethodUnary<I, O>,
  request: MessageInitShape<I>,
): Promise<MessageShape<O>> {
  const { clientUrl: url, clientToken: token } = readConfig()
  const calls = createClient({ url, token })[CLIENTS[method.parent.name]!] as unknown as Readonly<
    Record<string, (request: MessageInitShape<I>) => Promise<MessageShape<O>>>
  >
  return calls[method.localName]!(request)
}

function implied(input: DescMessage, taken: ReadonlySet<unknown>): readonly Field[] {
  const once = 'makes the command exactly-once for 24 h: repeating it gives the same answer'
  return [
    field('--network <name>', 'network (default: "default")', 'network'),
    required(field('--why <text>', 'goes into the log', 'why')),
    field('--version <n>', 'only if it is at this version', 'version', seq),
    field('--request-id <id>', once, 'requestId'),
    field('--page-size <n>', 'rows of a page, at most 1000', 'pageSize', whole),
    field('--page-token <token>', 'continue where the page before ended', 'pageToken'),
  ].filter(({ to }) => !taken.has(to) && input.fields.some(({ localName }) => localName === to))
}

/** What an option makes of the request; nothing, if it was not given. `--no-…` without a function is false. */
function said(command: Command, { option, to }: Field): Tree {
  const name = option.attributeName()
  const value: unknown = command.getOptionValue(name)
  if (to === undefined || command.getOptionValueSource(name) !== 'cli') return {}
  if (option.negate !== (value === false)) return {}
  return typeof to === 'string' ? nested(to, value) : (to(value as never) as Tree)
}

function nested(path: string, value: unknown): Tree {
  return path
    .split('.')
    .reduceRight<unknown>((inner, name) => ({ [name]: inner }), value) as Tree
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

function check(desc: DescMessage, tree: Tree): void {
  for (const [name, value] of Object.entries(tree)) {
    if (name.startsWith('$')) continue
    const found = desc.fields.find(({ localName }) => localName === name)
    if (found === undefined) throw new Error(`${desc.name} has no field ${name}`)
    if (found.fieldKind !== 'message' || found.message.typeName.startsWith('google.')) continue
    if (isTree(value)) check(found.message, value)
  }
}
