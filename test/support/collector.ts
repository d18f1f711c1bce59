/**
 * A collector: OTLP over HTTP in protobuf, as far as tests look at it. The messages are those of opentelemetry-proto 1.x
 * (https://github.com/open-telemetry/opentelemetry-proto), read by their field numbers.
 */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { BinaryReader, WireType } from '@bufbuild/protobuf/wire'

export type CollectedSpan = {
  readonly service: string
  readonly traceId: string
  readonly spanId: string
  /** Empty: the first of its trace. */
  readonly parentId: string
  readonly name: string
  /** 1 internal, 2 server, 3 client. */
  readonly kind: number
  readonly attributes: Readonly<Record<string, unknown>>
  readonly links: readonly { readonly traceId: string; readonly spanId: string }[]
  /** 2: error. */
  readonly status: number
}

export type Collector = {
  readonly url: string
  /** Requests so far, by path. */
  readonly requests: ReadonlyMap<string, number>
  readonly spans: readonly CollectedSpan[]
  /** Names of the metrics that came. */
  readonly metrics: ReadonlySet<string>
  close(): Promise<void>
}

export async function startCollector(): Promise<Collector> {
  const requests = new Map<string, number>()
  const spans: CollectedSpan[] = []
  const metrics = new Set<string>()
  const server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => {
      const path = request.url ?? ''
      const body = Buffer.concat(chunks)
      requests.set(path, (requests.get(path) ?? 0) + 1)
      if (path === '/v1/traces') spans.push(...readSpans(body))
      if (path === '/v1/metrics') for (const name of readMetricNames(body)) metrics.add(name)
      response.writeHead(200, { 'content-type': 'application/x-protobuf' }).end()
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests,
    spans,
    metrics,
    async close() {
      const closed = new Promise((resolve) => server.close(resolve))
      server.closeAllConnections()
      await closed
    },
  }
}

type Fields = {
  readonly bytes: (field: number) => readonly Uint8Array[]
  readonly number: (field: number) => number
}

function read(message: Uint8Array): Fields {
  const reader = new BinaryReader(message)
  const bytes = new Map<number, Uint8Array[]>()
  const numbers = new Map<number, number>()
  while (reader.pos < reader.len) {
    const [field, type] = reader.tag()
    if (type === WireType.LengthDelimited) bytes.set(field, [...(bytes.get(field) ?? []), reader.bytes()])
    else if (type === WireType.Varint) numbers.set(field, Number(reader.int64()))
    else reader.skip(type, field)
  }
  return { bytes: (field) => bytes.get(field) ?? [], number: (field) => numbers.get(field) ?? 0 }
}

function readSpans(request: Uint8Array): readonly CollectedSpan[] {
  return read(request)
    .bytes(1)
    .map(read)
    .flatMap((resourceSpans) => {
      const [resource] = resourceSpans.bytes(1).map(read)
      const service = String(attributesOf(resource?.bytes(1) ?? [])['service.name'])
      return resourceSpans.bytes(2).flatMap((scope) =>
        read(scope)
          .bytes(2)
          .map((span) => spanOf(read(span), service)),
      )
    })
}

function spanOf(span: Fields, service: string): CollectedSpan {
  return {
    service,
    traceId: hex(span.bytes(1)[0]),
    spanId: hex(span.bytes(2)[0]),
    parentId: hex(span.bytes(4)[0]),
    name: text(span.bytes(5)[0]),
    kind: span.number(6),
    attributes: attributesOf(span.bytes(9)),
    links: span
      .bytes(13)
      .map(read)
      .map((link) => ({ traceId: hex(link.bytes(1)[0]), spanId: hex(link.bytes(2)[0]) })),
    status: span.bytes(15).map(read)[0]?.number(3) ?? 0,
  }
}

function readMetricNames(request: Uint8Array): readonly string[] {
  const inside = (messages: readonly Uint8Array[]) => messages.map(read).flatMap((one) => one.bytes(2))
  return inside(inside(read(request).bytes(1))).map((metric) => text(read(metric).bytes(1)[0]))
}

function attributesOf(pairs: readonly Uint8Array[]): Readonly<Record<string, unknown>> {
  return Object.fromEntries(
    pairs.map(read).map((pair) => {
      const value = read(pair.bytes(2)[0] ?? new Uint8Array())
      const [string] = value.bytes(1)
      return [text(pair.bytes(1)[0]), string === undefined ? value.number(3) : text(string)]
    }),
  )
}

function hex(bytes: Uint8Array = new Uint8Array()): string {
  return Buffer.from(bytes).toString('hex')
}

function text(bytes: Uint8Array = new Uint8Array()): string {
  return new TextDecoder().decode(bytes)
}
