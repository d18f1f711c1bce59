/** The process behind `sources.ts`. */
import { setTimeout as delay } from 'node:timers/promises'
import { digestOfGiven } from '../src/liveness/entries.ts'
import { podAt } from './history.ts'
import { type KeepAlive, openKeepAlive, type Target } from './keep-alive.ts'
import type { Place } from './load.ts'
import type { Answers, FromSources, Paced, SourcesTask, Told, ToSources } from './sources.ts'
import { createSamples } from './statistics.ts'

/** Of entries in one request: what fits the limit of 512 KiB with all that is around them. */
const CHUNK_BYTES = 500_000
/** The slowest answer to one request that is waited for; agents are silent for an interval, and must not be cut off. */
const SILENCE_MS = 120_000
/** Agents that are declared at a time. */
const AT_ONCE = 16
const EPOCH = 'life-1'

type Chunks = { readonly texts: readonly string[]; readonly entries: number; readonly digest: string }
/** What the last answer said; both calls quote it. */
type Seen = { era: number; head: string }
type Reporter = {
  readonly source: string
  connection: KeepAlive
  readonly seen: Seen
  /** By which it says "unchanged". */
  digest: string
  /** From the last answer: by which it says so without a begin. */
  next: { token: string; until: number }
}
const NO_NEXT = { token: '', until: 0 }
/** Between a token that is taken and its report. */
const IN_TIME_MS = 1_000

let target: Target
let place: Place
let reporter: Reporter | undefined
let listed: Chunks | undefined
let agents: readonly Reporter[] = []

const tasks: {
  readonly [T in SourcesTask['type']]: (task: Extract<SourcesTask, { type: T }>) => Promise<Answers[T]>
} = {
  async declare({ source, intervalMs }) {
    reporter ??= await openReporter(source)
    reporter = { ...reporter, source, digest: '', next: NO_NEXT }
    await declare(reporter, '', intervalMs)
    return null
  },
  async list({ pods }) {
    const { from, count, nodes } = pods
    listed = chunksOf(
      Array.from({ length: count }, (_, turn) => from + turn),
      nodes,
    )
    return null
  },
  async report({ how }) {
    const one = reporting()
    const token = await begin(one)
    return how === 'unchanged' ? reportUnchanged(one, token) : reportEntries(one, token, listed!)
  },
  async release({ pods: { from, count, nodes } }) {
    const { connection } = reporting()
    for (let k = from; k < from + count; k += 1) {
      const { node: _, ...owner } = podAt(k, nodes)
      await ask(connection, 'LeaseService/Release', JSON.stringify({ network: place.network, owner }))
    }
    return null
  },
  async retire() {
    const { connection, source } = reporting()
    await ask(
      connection,
      'LivenessService/RetireSource',
      JSON.stringify({ network: place.network, id: source }),
    )
    return null
  },
  async enrol({ nodes, podsEach, intervalMs }) {
    const enrolled: Reporter[] = []
    await each(Array.from({ length: nodes }), async (_, node) => {
      const agent = await openReporter(`node-${node}`)
      await declare(agent, agent.source, intervalMs)
      const pods = Array.from({ length: podsEach }, (_, turn) => node + turn * nodes)
      await reportEntries(agent, await begin(agent), chunksOf(pods, nodes))
      enrolled[node] = agent
    })
    agents = enrolled
    return null
  },
  async redeclare({ intervalMs }) {
    await each(agents, (agent) => declare(agent, agent.source, intervalMs))
    return null
  },
  pace,
}

function reporting(): Reporter {
  if (reporter === undefined) throw new Error('no source was declared')
  return reporter
}

function connect(): Promise<KeepAlive> {
  return openKeepAlive(target, { silenceMs: SILENCE_MS })
}

async function openReporter(source: string): Promise<Reporter> {
  return { source, connection: await connect(), seen: { era: 0, head: '0' }, digest: '', next: NO_NEXT }
}

async function declare({ connection, source }: Reporter, node: string, intervalMs: number): Promise<void> {
  const { network } = place
  const sight = {
    node,
    ownerKinds: ['pod'],
    families: [4],
    seesStopped: true,
    interval: `${intervalMs / 1_000}s`,
  }
  await ask(connection, 'LivenessService/RegisterSource', JSON.stringify({ network, id: source, sight }))
  await ask(connection, 'LivenessService/EnableSource', JSON.stringify({ network, id: source }))
}

// Reports.

type Answer = {
  readonly token: string
  readonly era: number
  readonly head: string
  readonly complete: boolean
  readonly counted: boolean
  readonly because: readonly string[]
  readonly resend: boolean
  readonly staged: boolean
  readonly digest: string
  readonly nextToken: string
  /** Absent where there is none. */
  readonly nextExpiresAt?: string
}

/** The server closes what was silent for longer than a minute. */
async function beConnected(one: Reporter): Promise<void> {
  if (!one.connection.isOpen()) one.connection = await connect()
}

async function begin(one: Reporter): Promise<string> {
  await beConnected(one)
  const { connection, source, seen } = one
  const body = `{"network":"${place.network}","source":"${source}","seenEra":${seen.era},"seenHead":"${seen.head}"}`
  const answer = await ask(connection, 'LivenessService/BeginSnapshot', body)
  seen.era = answer.era
  seen.head = answer.head
  return answer.token
}

async function reportEntries(one: Reporter, token: string, chunks: Chunks): Promise<Told> {
  const { texts, entries, digest } = chunks
  const begun = performance.now()
  let bytes = 0
  for (const [number, text] of texts.entries()) {
    const isLast = number === texts.length - 1
    const total = isLast ? `,"total":{"entries":${entries},"digest":"${digest}"}` : ''
    // What fits one request needs no chunks.
    const chunk = texts.length === 1 ? '' : `,"chunk":{"number":${number}${total}}`
    const body = reportBody(one, token, `"entries":[${text}]${chunk}`)
    bytes += body.length
    const answer = await report(one, body)
    if (isLast) {
      mustBe(answer, answer.complete && answer.digest !== '')
      one.digest = answer.digest
      return { ms: performance.now() - begun, requests: texts.length, bytes, counted: answer.counted }
    }
    mustBe(answer, answer.staged)
  }
  throw new Error('there was nothing to report')
}

async function reportUnchanged(one: Reporter, token: string): Promise<Told> {
  const begun = performance.now()
  const body = reportBody(one, token, `"unchanged":"${one.digest}"`)
  const answer = await report(one, body)
  mustBe(answer, answer.complete && !answer.resend)
  return { ms: performance.now() - begun, requests: 1, bytes: body.length, counted: answer.counted }
}

function reportBody({ source, seen }: Reporter, token: string, content: string): string {
  return `{"network":"${place.network}","source":"${source}","seenEra":${seen.era},"seenHead":"${seen.head}","token":"${token}","epoch":"${EPOCH}","complete":true,${content}}`
}

async function report(one: Reporter, body: string): Promise<Answer> {
  const answer = await ask(one.connection, 'LivenessService/ReportSnapshot', body)
  one.seen.era = answer.era
  one.seen.head = answer.head
  one.next = { token: answer.nextToken, until: Date.parse(answer.nextExpiresAt ?? '') }
  return answer
}

function mustBe(answer: Answer, isSo: boolean): void {
  if (!isSo) throw new Error(`a report was taken otherwise: ${JSON.stringify(answer)}`)
}

async function ask(connection: KeepAlive, method: string, body: string): Promise<Answer> {
  const reply = await connection.post(`/ipledger.v1.${method}`, body)
  if (reply.status !== 200) throw new Error(`${method} answered ${reply.status}: ${reply.body.slice(0, 500)}`)
  return JSON.parse(reply.body) as Answer
}

// Entries.

/** The pool's first address, and those after it. */
const FIRST = 0x0a_00_00_01

function entryAt(k: number, nodes: number) {
  const value = FIRST + k
  const address = [value >>> 24, (value >>> 16) & 255, (value >>> 8) & 255, value & 255].join('.')
  return { address, ...podAt(k, nodes), state: 'running' }
}

function chunksOf(pods: readonly number[], nodes: number): Chunks {
  const texts: string[] = []
  let text = ''
  const entries = pods.map((k) => entryAt(k, nodes))
  for (const entry of entries) {
    const one = JSON.stringify(entry)
    if (text.length + one.length >= CHUNK_BYTES) {
      texts.push(text)
      text = ''
    }
    text += text === '' ? one : `,${one}`
  }
  return { texts: [...texts, text], entries: entries.length, digest: digestOfGiven(entries) }
}

// Agents.

async function pace({ intervalMs, intervals }: Extract<SourcesTask, { type: 'pace' }>): Promise<Paced> {
  const samples = createSamples()
  const busy = new Set<Reporter>()
  const failures: unknown[] = []
  let reports = 0
  let late = 0
  const cpu = process.cpuUsage()
  const begun = performance.now()
  const apart = intervalMs / agents.length

  async function tellUnchanged(agent: Reporter): Promise<void> {
    busy.add(agent)
    try {
      const from = performance.now()
      await beConnected(agent)
      const { token, until } = agent.next
      await reportUnchanged(agent, Date.now() + IN_TIME_MS < until ? token : await begin(agent))
      samples.add(performance.now() - from)
      reports += 1
    } catch (error) {
      failures.push(error)
    } finally {
      busy.delete(agent)
    }
  }

  const sent: Promise<void>[] = []
  for (let turn = 0; turn < agents.length * intervals && failures.length === 0; turn += 1) {
    const wait = begun + turn * apart - performance.now()
    if (wait > 1) await delay(wait)
    const agent = agents[turn % agents.length]!
    if (busy.has(agent)) late += 1
    else sent.push(tellUnchanged(agent))
  }
  const left = begun + intervals * intervalMs - performance.now()
  if (left > 0 && failures.length === 0) await delay(left)
  await Promise.all(sent)
  if (failures.length > 0) throw failures[0]
  const lastedMs = performance.now() - begun
  const spent = process.cpuUsage(cpu)
  const { p50, p99 } = samples.take()
  return { reports, late, lastedMs, p50, p99, cpu: (spent.user + spent.system) / 1_000 / lastedMs }
}

async function each<T>(all: readonly T[], work: (one: T, index: number) => Promise<void>): Promise<void> {
  let next = 0
  async function workOff(): Promise<void> {
    while (next < all.length) {
      const index = next++
      await work(all[index] as T, index)
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, workOff))
}

// The bench.

function tell(message: FromSources): void {
  process.send?.(message)
}

process.on('message', (message: ToSources) => {
  switch (message.type) {
    case 'open':
      target = message.target
      place = message.place
      return
    case 'task': {
      const { task } = message
      const perform = tasks[task.type] as (task: SourcesTask) => Promise<Answers[keyof Answers]>
      perform(task).then(
        (answer) => tell({ type: 'done', answer }),
        (error: unknown) =>
          tell({ type: 'failed', message: error instanceof Error ? error.message : String(error) }),
      )
      return
    }
    case 'stop':
      process.disconnect?.()
  }
})
// Nothing is left to do without the bench.
process.on('disconnect', () => process.exit(0))
tell({ type: 'ready' })
