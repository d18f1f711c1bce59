/**
 * What telemetry costs: Reserve through a server that tells nothing, one whose metrics are scraped, and two that send their
 * spans to a collector on this machine, all of them and one in a hundred. All on one database, in turn.
 */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { alternate, type Bench, compare, type Subject } from './measure.ts'
import { type Server, startServer } from './server.ts'
import type { Stage } from './stage.ts'

const SCRAPE_EVERY_MS = 5_000
/** What it may take away (the goal). */
const GOAL = 0.05

export async function telemetry(
  bench: Bench,
  stage: Stage,
  reserving: (what: string, callers: number) => Promise<Subject>,
  manyCallers: number,
): Promise<void> {
  await using open = new AsyncDisposableStack()
  const sink = await startSink()
  open.defer(() => sink.close())
  const start = async (env: Readonly<Record<string, string>>): Promise<Server> => {
    const server = await startServer({ database: stage.database, worker: false, env }, bench.signal)
    open.defer(() => server.stop())
    return server
  }
  const traces = (ratio: string) => ({
    OTEL_EXPORTER_OTLP_ENDPOINT: sink.url,
    OTEL_METRICS_EXPORTER: 'none',
    OTEL_TRACES_SAMPLER: 'parentbased_traceidratio',
    OTEL_TRACES_SAMPLER_ARG: ratio,
  })
  const scraped = await start({ IPLEDGER_METRICS: 'yes' })
  const all = await start(traces('1'))
  const some = await start(traces('0.01'))
  const scraper = setInterval(() => void scrape(scraped), SCRAPE_EVERY_MS)
  open.defer(() => clearInterval(scraper))

  for (const callers of [1, manyCallers]) {
    const by = callers === 1 ? ('p50' as const) : ('rate' as const)
    const goal = by === 'p50' ? { most: 1 + GOAL } : { least: 1 - GOAL }
    const subject = async (what: string, server: Server): Promise<Subject> => ({
      ...(await reserving(`Reserve, ${callers} ${callers === 1 ? 'caller' : 'callers'}, ${what}`, callers)),
      servers: [server],
    })
    const metrics = await subject('metrics scraped', scraped)
    const [nothing, counted, everything, sampled] = await alternate(bench, [
      await subject('no telemetry', stage.servers[0]!),
      // However short the run is, it is scraped once.
      {
        ...metrics,
        work: async () => {
          await scrape(scraped)
          return metrics.work()
        },
      },
      await subject('every call traced', all),
      await subject('1 in 100 calls traced', some),
    ])
    bench.show(compare('telemetry', nothing!))
    for (const rounds of [counted!, everything!, sampled!])
      bench.show(compare('telemetry', rounds, { rounds: nothing!, by, goal }))
  }
  // With its end it has sent what it had left.
  await all.stop()
  if (sink.received() === 0) throw new Error('no span arrived')
}

async function scrape(server: Server): Promise<void> {
  const page = await fetch(`${server.url}/metrics`)
  if (!page.ok) throw new Error(`the page of metrics is ${page.status}`)
  await page.text()
}

/** Takes whatever comes, and looks at nothing. */
async function startSink(): Promise<{ readonly url: string; received(): number; close(): Promise<void> }> {
  let bytes = 0
  const server = createServer((request, response) => {
    request.on('data', (chunk: Buffer) => {
      bytes += chunk.length
    })
    request.on('end', () => response.writeHead(200).end())
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    received: () => bytes,
    async close() {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()))
      server.closeAllConnections()
      await closed
    },
  }
}
