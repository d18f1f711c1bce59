/** Calls of the server that IPLEDGER_URL and IPLEDGER_TOKEN name: one, or the pages of a list. */
import { readFileSync } from 'node:fs'
import type { DescMessage, DescMethodUnary, MessageInitShape, MessageShape } from '@bufbuild/protobuf'
import type { IpledgerClient } from '../client/client.ts'

const CLIENTS: Readonly<Record<string, keyof IpledgerClient>> = {
  NetworkService: 'networks',
  PoolService: 'pools',
  LeaseService: 'leases',
  LivenessService: 'liveness',
  AuditService: 'audit',
  ServerService: 'server',
}

/** Loaded at the first call: help starts without. */
export async function connected(): Promise<IpledgerClient> {
  const { readConfig } = await import('../config.ts')
  const { createClient } = await import('../client/client.ts')
  const { clientUrl: url, clientToken: token, clientTls } = readConfig()
  const files = Object.entries(clientTls).flatMap(([name, file]) =>
    file === undefined ? [] : [[name, readFileSync(file, 'utf8')]],
  )
  return createClient({ url, token, tls: Object.fromEntries(files) })
}

export type Server = { readonly url?: string | undefined; readonly token?: string | undefined }

/** Options of a command stand for their variables. */
export async function setServer({ url, token }: Server): Promise<void> {
  if (url === undefined && token === undefined) return
  const { setVariables } = await import('../config.ts')
  setVariables({ IPLEDGER_URL: url, IPLEDGER_TOKEN: token })
}

/** That IPLEDGER_NETWORK names; undefined: the server's. */
export async function defaultNetwork(): Promise<string | undefined> {
  const { readConfig } = await import('../config.ts')
  return readConfig().clientNetwork
}

/** Said before a command that changes something, if the server or the network is not the default one: it must be what was meant. */
export async function announce(
  what: string,
  {
    network = '',
    node = '',
    all = false,
  }: { readonly network?: string | undefined; readonly node?: string | undefined; readonly all?: boolean },
  isGrave = true,
): Promise<void> {
  const { readConfig } = await import('../config.ts')
  const { clientUrl, isDefaultServer } = readConfig()
  if (!isGrave && isDefaultServer && ['', 'default'].includes(network)) return
  const where = all ? 'all networks' : `network ${network || 'default'}`
  console.error(`${what}: ${clientUrl}, ${where}${node && `, node ${node}`}`)
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

/** The server's default and limit. */
const PAGE_SIZE = 100
const LARGEST_PAGE = 1_000

type Page = Readonly<Record<string, readonly unknown[]>> & { readonly nextPageToken: string }

/**
 * Pages as one answer: their lists joined, the rest as in the last page. All of them, or as many as fill one page: a page that ran
 * out of time is short, and not the last.
 */
export async function everyPage<I extends DescMessage, O extends DescMessage>(
  method: DescMethodUnary<I, O>,
  request: MessageInitShape<I>,
  isAll = true,
  perform = (one: MessageInitShape<I>) => ask(method, one),
): Promise<MessageShape<O>> {
  const { pageSize = PAGE_SIZE } = request as { readonly pageSize?: number }
  const lists = method.output.fields.flatMap((field) => (field.fieldKind === 'list' ? field.localName : []))
  let next = isAll ? { ...request, pageSize: LARGEST_PAGE } : request
  let joined: Page | undefined
  for (;;) {
    const page = (await perform(next)) as unknown as Page
    const longer = lists.map((name) => [name, [...(joined?.[name] ?? []), ...page[name]!]] as const)
    joined = { ...page, ...Object.fromEntries(longer) } as Page
    const missing = isAll ? LARGEST_PAGE : pageSize - longer[0]![1].length
    if (page.nextPageToken === '' || missing <= 0) return joined as unknown as MessageShape<O>
    next = { ...request, pageSize: missing, pageToken: page.nextPageToken }
  }
}
