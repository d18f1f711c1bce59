/** The process behind `load.ts`. */
import type pg from 'pg'
import { connect } from '../src/postgres/connect.ts'
import { type KeepAlive, openKeepAlive, type Reply } from './keep-alive.ts'
import type { FromLoad, Place, Run, ToLoad } from './load.ts'
import { createSamples } from './statistics.ts'

/** One call of one caller; resolves with the leases it was given. */
type Step = (turn: number) => Promise<number>
type Caller = {
  readonly step: Step
  /** Before its next call, and not timed. */
  readonly after?: () => Promise<void>
  readonly close: () => Promise<void> | void
}

function tell(message: FromLoad): void {
  process.send?.(message)
}

/** Ends the interval that is going on, where intervals are cut. */
let cut: (() => void) | undefined

async function perform(run: Run): Promise<void> {
  const callers = await Promise.all(Array.from({ length: run.callers }, (_, index) => openCaller(run, index)))
  try {
    tell({ type: 'done', acknowledged: await drive(run, callers) })
  } finally {
    await Promise.all(callers.map((caller) => caller.close()))
  }
}

async function drive(run: Run, callers: readonly Caller[]): Promise<number> {
  const samples = createSamples()
  const measuredFrom = performance.now() + run.warmUpMs
  let left = run.intervals
  let calls = 0
  let acknowledged = 0
  let ended = false
  let begunAt = measuredFrom
  let cpu = process.cpuUsage()
  let measuring = false

  function pass(now: number): void {
    if (!measuring && now >= measuredFrom) {
      measuring = true
      cpu = process.cpuUsage()
      tell({ type: 'begun' })
    }
    const { intervalMs } = run
    if (intervalMs === null) return
    while (!ended && now >= begunAt + intervalMs) finishInterval(intervalMs)
  }

  function finishInterval(lastedMs: number): void {
    const { count, p50, p99 } = samples.take()
    const spent = process.cpuUsage(cpu)
    cpu = process.cpuUsage()
    tell({
      type: 'interval',
      interval: {
        count,
        perSecond: (count * 1_000) / lastedMs,
        p50,
        p99,
        cpu: (spent.user + spent.system) / 1_000 / lastedMs,
      },
    })
    begunAt += lastedMs
    left -= 1
    if (left === 0) ended = true
  }

  async function work(caller: Caller): Promise<void> {
    for (let turn = 0; !ended; turn += 1) {
      const begun = performance.now()
      const given = await caller.step(turn)
      acknowledged += given
      const now = performance.now()
      pass(now)
      // What comes back after the last interval was part of keeping it busy, not of what it did.
      if (!ended && measuring) samples.add(now - begun)
      calls += 1
      if (calls >= run.mostCalls && !ended) {
        if (measuring) finishInterval(Math.max(1, now - begunAt))
        ended = true
      }
      await caller.after?.()
    }
  }

  cut = () => {
    if (measuring && !ended) finishInterval(Math.max(1, performance.now() - begunAt))
  }
  try {
    await Promise.all(callers.map(work))
  } finally {
    ended = true
    cut = undefined
  }
  return acknowledged
}

async function openCaller(run: Run, index: number): Promise<Caller> {
  const { work } = run
  if (work.kind === 'insert') return openInserter(work.url, run.name, index)
  const connection = await openKeepAlive(run.targets[index % run.targets.length]!)
  const close = () => connection.close()
  return work.kind === 'pass'
    ? { ...passing(work.places[index % work.places.length]!, `${run.name}-${index}`, connection), close }
    : { step: stepOf(run, index, connection), close }
}

function passing(place: Place, name: string, connection: KeepAlive): Pick<Caller, 'step' | 'after'> {
  let held = ''
  return {
    async step(turn) {
      const reply = await connection.post(RESERVE, reserveBody(place, `${name}-${turn}`))
      mustBe(reply, 200, LEASE_ID)
      held = leaseIdOf(reply.body)
      return 1
    },
    async after() {
      mustBe(await connection.post(RELEASE, `{"leaseId":"${held}"}`), 200, LEASE_ID)
    },
  }
}

function stepOf(run: Run, index: number, connection: KeepAlive): Step {
  const { work } = run
  const place = 'places' in work ? work.places[index % work.places.length]! : undefined
  const reserve = (turn: number | string) => reserveBody(place!, `${run.name}-${index}-${turn}`)
  switch (work.kind) {
    case 'check':
      return async () => {
        for (let time = 0; time < work.times; time += 1)
          mustBe(await connection.post('/grpc.health.v1.Health/Check', '{}'), 200, 'SERVING')
        return 0
      }
    case 'reserve':
    case 'echo': {
      const given = work.kind === 'reserve' ? 1 : 0
      return async (turn) => {
        mustBe(await connection.post(RESERVE, reserve(turn)), 200, LEASE_ID)
        return given
      }
    }
    case 'pair':
    case 'churn': {
      const held: string[] = []
      const hold = work.kind === 'churn' ? work.hold : 0
      return async (turn) => {
        const reply = await connection.post(RESERVE, reserve(turn))
        mustBe(reply, 200, LEASE_ID)
        held.push(leaseIdOf(reply.body))
        if (held.length > hold) {
          mustBe(await connection.post(RELEASE, `{"leaseId":"${held.shift()}"}`), 200, LEASE_ID)
        }
        return 1
      }
    }
    case 'batch':
      return async (turn) => {
        const requests = Array.from({ length: work.size }, (_, item) => reserve(`${turn}-${item}`))
        const body = `{"network":"${place!.network}","requests":[${requests.join(',')}]}`
        const reply = await connection.post(BATCH_RESERVE, body)
        mustBe(reply, 200, LEASE_ID)
        if (reply.body.includes('"error":{')) throw new Error(`an item was refused: ${excerpt(reply.body)}`)
        return work.size
      }
    case 'exhausted':
      return async (turn) => {
        mustBe(await connection.post(RESERVE, reserve(turn)), 429, 'resource_exhausted')
        return 0
      }
    case 'pass':
    case 'insert':
      throw new Error(`${work.kind} has a caller of its own`)
  }
}

const RESERVE = '/ipledger.v1.LeaseService/Reserve'
const RELEASE = '/ipledger.v1.LeaseService/Release'
const BATCH_RESERVE = '/ipledger.v1.LeaseService/BatchReserve'
const LEASE_ID = '"leaseId":"'

/** An owner as an orchestrator would name it: all of it given, and long enough to be one. */
function reserveBody(place: Place, name: string): string {
  return `{"network":"${place.network}","owner":{"kind":"container","name":"bench/${name}","uid":"${name}","incarnation":"1","node":"node-${name.length}"},"claims":[{"pool":"${place.pool}"}]}`
}

function leaseIdOf(body: string): string {
  const start = body.indexOf(LEASE_ID) + LEASE_ID.length
  return body.slice(start, body.indexOf('"', start))
}

function mustBe(reply: Reply, status: number, part: string): void {
  if (reply.status === status && reply.body.includes(part)) return
  throw new Error(`expected ${status} with ${part}, got ${reply.status}: ${excerpt(reply.body)}`)
}

function excerpt(body: string): string {
  return body.length > 500 ? `${body.slice(0, 500)}…` : body
}

async function openInserter(url: string, name: string, index: number): Promise<Caller> {
  const client: pg.Client = await connect({ url, applicationName: 'ipledger bench insert' })
  return {
    async step(turn) {
      await client.query({
        name: 'insert_one',
        text: `insert into bench.one_row (network_id, name, address, at) values ($1, $2, '192.0.2.1', clock_timestamp())`,
        values: [name, `${index}-${turn}`],
      })
      return 0
    },
    close: () => client.end(),
  }
}

process.on('message', (message: ToLoad) => {
  if (message.type === 'stop') {
    process.disconnect?.()
    return
  }
  if (message.type === 'cut') {
    cut?.()
    return
  }
  perform(message.run).catch((error: unknown) =>
    tell({ type: 'failed', message: error instanceof Error ? error.message : String(error) }),
  )
})
// Nothing is left to do without the bench.
process.on('disconnect', () => process.exit(0))
tell({ type: 'ready' })
