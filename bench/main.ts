/**
 * `ipledger bench`: what DESIGN §7 asks for, each line beside its floor from the same run, on a scratch database that
 * must verify clean at the end. It fails when something breaks, never because of a speed.
 */
import { StartRefused } from '../src/config.ts'
import { verify } from '../src/ledger/verify.ts'
import { connect } from '../src/postgres/connect.ts'
import { createLogger } from '../src/telemetry.ts'
import { HISTORY_ACTOR } from './history.ts'
import { LINES, type LineName, profile } from './lines.ts'
import { startLoad } from './load.ts'
import { describeMachine } from './machine.ts'
import type { Bench, Scale } from './measure.ts'
import { amount, count, GENERATOR, people, type Report, type Row } from './report.ts'
import { openScratch } from './scratch.ts'
import type { Stage } from './stage.ts'

export type BenchOptions = {
  /** Everything small: that it runs, not how fast. */
  readonly quick?: boolean | undefined
  /** The hour of churn, which nothing else includes. */
  readonly soak?: boolean | undefined
  /** Lines by name. */
  readonly only?: readonly string[] | undefined
  /** A PostgreSQL of the caller's, where databases are made and dropped. Default: an embedded one. */
  readonly databaseUrl?: string | undefined
  readonly json?: boolean | undefined
  /** Directory for a CPU profile of the server under Reserve. */
  readonly profile?: string | undefined
}

const FULL: Scale = {
  rounds: 3,
  warmUpMs: 1_000,
  measureMs: 3_000,
  fillPrefix: 16,
  agedEvents: 10_000_000,
  heldOpenIntervals: 10,
  heldOpenIntervalMs: 60_000,
  soakIntervalMs: 60_000,
  soakIntervals: 60,
  listed: 100_000,
  agents: 2_000,
  agentIntervalMs: 30_000,
  agentIntervals: 2,
}

const QUICK: Scale = {
  rounds: 1,
  warmUpMs: 100,
  measureMs: 300,
  fillPrefix: 19,
  agedEvents: 100_000,
  heldOpenIntervals: 3,
  heldOpenIntervalMs: 1_000,
  soakIntervalMs: 1_000,
  soakIntervals: 2,
  listed: 5_000,
  agents: 40,
  agentIntervalMs: 1_000,
  agentIntervals: 2,
}

export const LINE_NAMES = Object.keys(LINES) as readonly LineName[]

/**
 * Prints the table and answers the exit code.
 *
 * @throws StartRefused when it cannot begin, any other error when something broke on the way
 */
export async function runBench(options: BenchOptions): Promise<number> {
  const lines = choose(options)
  const interrupted = new AbortController()
  const interrupt = () => interrupted.abort()
  for (const name of SIGNALS) process.on(name, interrupt)
  try {
    const report = await perform(options, lines, interrupted.signal)
    console.log(options.json === true ? JSON.stringify(report, null, 2) : people(report))
    return report.verified.findings.length === 0 ? 0 : 1
  } catch (error) {
    if (!interrupted.signal.aborted) throw error
    console.error('ipledger: the bench was interrupted; what it had made is gone')
    return 130
  } finally {
    for (const name of SIGNALS) process.off(name, interrupt)
  }
}

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const

function choose({ only = [], soak = false, quick = false }: BenchOptions): readonly LineName[] {
  const unknown = only.find((name) => !LINE_NAMES.some((line) => line === name))
  if (unknown !== undefined)
    throw new StartRefused(`There is no line "${unknown}": --only takes ${LINE_NAMES.join(', ')}.`)
  return LINE_NAMES.filter((line) => {
    if (only.includes(line)) return true
    if (line === 'soak') return soak || (quick && only.length === 0)
    return only.length === 0 && !soak
  })
}

async function perform(
  options: BenchOptions,
  lines: readonly LineName[],
  signal: AbortSignal,
): Promise<Report> {
  const begun = performance.now()
  const quick = options.quick ?? false
  const scale = quick ? QUICK : FULL
  const say = (line: string) => console.error(`${seconds(begun)} s  ${line}`)
  const scratch = await openScratch(options.databaseUrl, createLogger('error'))
  await using open = new AsyncDisposableStack()
  open.defer(() => scratch.drop())
  const stages: Stage[] = []
  // On the way out of a failure what is stopped may have failed with it.
  open.defer(async () => void (await Promise.allSettled(stages.map((stage) => stage.close()))))
  const load = await startLoad(signal)
  open.defer(() => load.stop())

  const rows: Row[] = []
  const bench: Bench = {
    scale,
    scratch,
    load,
    signal,
    stages,
    say,
    show(row) {
      // Too short to be a figure is too short to be held against a goal.
      rows.push(quick ? { ...row, reached: null } : row)
      say(
        `${row.what}: ${row.amount === undefined ? `${count(row.perSecond)}/s` : amount(row.amount)}${row.ratio === null ? '' : `, ${row.ratio.value.toFixed(2)} of ${row.floor?.what}`}`,
      )
    },
  }
  for (const line of lines) await LINES[line](bench)
  const profiled = options.profile === undefined ? [] : await profile(bench, options.profile)

  const server = await connect({ url: scratch.url, applicationName: 'ipledger bench' })
  const machine = await describeMachine(server, scratch.directory, quick ? 200 : 2_000).finally(() =>
    server.end(),
  )
  say('verifying')
  const verified = await verifyAll(stages, signal)
  return {
    quick,
    machine,
    generator: GENERATOR,
    rows,
    verified,
    profile: profiled,
    seconds: (performance.now() - begun) / 1_000,
  }
}

/** Clean means: the log and its projections are in order, and the log has exactly the leases that were acknowledged. */
async function verifyAll(stages: readonly Stage[], signal: AbortSignal): Promise<Report['verified']> {
  const findings: string[] = []
  let networks = 0
  let events = 0
  for (const stage of stages) {
    await stage.close()
    const reserved = await countReserved(stage)
    if (reserved !== stage.acknowledged) {
      findings.push(
        `${stage.database.name}: ${stage.acknowledged} leases were acknowledged, the log has ${reserved}`,
      )
    }
    const found = await verify({ url: stage.database.serviceUrl, full: true, signal })
    for (const network of found.networks) {
      networks += 1
      events += network.eventsChecked
      findings.push(
        ...network.findings.map((one) => `${stage.database.name}, ${network.network}: ${one.message}`),
      )
    }
  }
  for (const finding of findings.slice(0, 100)) console.error(finding)
  return { networks, events, findings }
}

async function countReserved(stage: Stage): Promise<number> {
  const admin = await connect({ url: stage.database.adminUrl, applicationName: 'ipledger bench' })
  try {
    const { rows } = await admin.query<{ count: number }>(
      `select count(*) as count from ipledger.event where type = 'lease.reserved' and actor <> $1`,
      [HISTORY_ACTOR],
    )
    return rows[0]!.count
  } finally {
    await admin.end()
  }
}

function seconds(begun: number): string {
  return Math.round((performance.now() - begun) / 1_000)
    .toString()
    .padStart(5)
}
