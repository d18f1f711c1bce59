/** The process behind `load.ts`. */
import { createHistogram } from 'node:perf_hooks'
import { openLedger } from '../src/ledger/open.ts'
import { connect } from '../src/postgres/connect.ts'
import { performBurst } from './burst-calls.ts'
import { openKeepAlive, type Target } from './keep-alive.ts'
import type { FromLoad, LoadedImage, Measured, Run, ToLoad } from './load.ts'
import { batchOf, leaseIdsIn, pathOf, reserveOf } from './messages.ts'

type Caller = {
  /** `name`: of an owner that is new. */
  call(name: string): Promise<unknown>
  close(): Promise<void> | void
}

let runs = 0

function tell(message: FromLoad): void {
  process.send?.(message)
}

async function perform(run: Run): Promise<Measured> {
  const name = `run-${process.pid}-${++runs}`
  const callers = await Promise.all(Array.from({ length: run.callers }, () => openCaller(run)))
  try {
    // An image is loaded by the first call.
    await callers[0]!.call(`${name}-first`)
    return await drive(run, callers, name)
  } finally {
    await Promise.all(callers.map((caller) => caller.close()))
  }
}

async function drive(
  { warmUpMs, measureMs }: Run,
  callers: readonly Caller[],
  name: string,
): Promise<Measured> {
  const microseconds = createHistogram()
  const begins = performance.now() + warmUpMs
  const ends = begins + measureMs
  let before: NodeJS.CpuUsage | undefined
  let spent: NodeJS.CpuUsage | undefined
  await Promise.all(
    callers.map(async (caller, index) => {
      let now = performance.now()
      for (let turn = 0; now < ends; turn += 1) {
        const began = now
        await caller.call(`${name}-${index}-${turn}`)
        now = performance.now()
        if (now < begins) continue
        if (before === undefined) {
          before = process.cpuUsage()
          tell({ type: 'begun' })
        }
        // What comes back after the end was part of keeping it busy, not of what it did.
        if (now < ends) microseconds.record(Math.max(1, Math.round((now - began) * 1_000)))
        else spent ??= process.cpuUsage(before)
      }
    }),
  )
  const { user, system } = spent!
  return {
    perSecond: (microseconds.count * 1_000) / measureMs,
    p50: microseconds.percentile(50) / 1_000,
    p99: microseconds.percentile(99) / 1_000,
    cpu: (user + system) / 1_000 / measureMs,
  }
}

function openCaller({ through, network, work }: Run): Promise<Caller> {
  return through.kind === 'table' ? inserting(through.url) : calling(through, network, work)
}

async function inserting(url: string): Promise<Caller> {
  const client = await connect({ url, applicationName: 'bench insert' })
  const text = `insert into bench.one_row (network_id, name, address, at) values ('', $1, '192.0.2.1', clock_timestamp())`
  return {
    call: (name) => client.query({ name: 'insert_one', text, values: [name] }),
    close: () => client.end(),
  }
}

async function calling(target: Target, network: string, work: Run['work']): Promise<Caller> {
  const { post, close } = await openKeepAlive(target)
  const ask = async (method: string, body: string) => leaseIdsIn(await post(pathOf(method), body))[0]!
  const calls = {
    reserve: (name) => ask('Reserve', reserveOf(network, name)),
    keyed: (name) => ask('Reserve', reserveOf(network, name, `,"requestId":"${name}"`)),
    pair: async (name) => ask('Release', `{"leaseId":"${await ask('Reserve', reserveOf(network, name))}"}`),
    batch: (name) => ask('BatchReserve', batchOf(network, name)),
  } satisfies Record<Run['work'], Caller['call']>
  return { call: calls[work], close }
}

async function loadImage(url: string, network: string): Promise<LoadedImage> {
  const ledger = await openLedger({ url })
  const began = performance.now()
  await ledger.image(network, { deadline: began + 120_000 })
  const ms = performance.now() - began
  await ledger.close()
  return { ms, mostMb: process.resourceUsage().maxRSS / 1_000 }
}

function answerTo(task: ToLoad) {
  switch (task.type) {
    case 'run':
      return perform(task.run)
    case 'burst':
      return performBurst(task.burst)
    case 'image':
      return loadImage(task.url, task.network)
    default:
      return task satisfies never
  }
}

process.on('message', async (task: ToLoad) => {
  try {
    tell({ type: 'done', answer: await answerTo(task) })
  } catch (error) {
    tell({ type: 'failed', message: error instanceof Error ? (error.stack ?? error.message) : String(error) })
  }
})
process.on('disconnect', () => process.exit(0))
