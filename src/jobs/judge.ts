/**
 * Judges leases that no source lists live, asks their sources, and reaps on proof. Sources are asked when only answers are missing:
 * pulled ones here and now, reporting ones with the answer to their next report (a row of `lookup` whose answer is `wanted`). An
 * answer proves something for a few reports only, so a run stays for most of its minute while answers are awaited.
 *
 * The questions of a lease are asked together, so that its answers are of one time. The wait before they are asked again doubles, up
 * to an hour, for as long as nothing changes at the lease.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { type Coverage, coverageOf, suspensionsOf } from '../core/attention.ts'
import { type LookUp, ownCommand } from '../core/command.ts'
import type { AddressRecord } from '../core/event.ts'
import { GUARDS, type Guards } from '../core/guards.ts'
import { type HeldRecord, type Image, isHeld } from '../core/image.ts'
import { type Judgement, judge as judgeOne, judgeProof, type Question } from '../core/judge.ts'
import { POLICY } from '../core/policy.ts'
import { scanInSlices } from '../in-slices.ts'
import type { Outcome } from '../ledger/ledger.ts'
import { readFreshness, readLookUps } from '../ledger/read-sources.ts'
import { lastEvent } from '../ledger/sql/head.ts'
import { ANSWERED, KEEP_ANSWERS } from '../ledger/sql/look-ups.ts'
import type { Row } from '../ledger/tables.ts'
import { limitTo } from '../limit-to.ts'
import { ask } from '../postgres/on-connection.ts'
import { countJudgement, countLookup } from '../telemetry.ts'
import { withinRunning } from '../time-limit.ts'
import { type Done, inEachNetwork, type JobContext } from './job.ts'

/** Suspects whose evidence is read at once. */
const AT_ONCE = 200
/** Questions to sources at a time. */
const ASKED_AT_ONCE = 8
const POLL_MS = 2_000
/** Of a minute. */
const STAY_MS = 50_000

type Run = JobContext & {
  readonly network: string
  readonly askUntil: number
  /** Sources that gave no answer in this run: they are not asked again in it. */
  readonly failing: Set<string>
  readonly guards: Guards
  /** Addresses that reporting sources were asked about. */
  readonly awaited: Set<string>
  readonly done: { reaped: number; asked: number }
}
type Suspect = { readonly record: HeldRecord; readonly witnesses: readonly string[] }
type Judged = Judgement & { readonly record: HeldRecord }

export async function judge(
  context: JobContext,
  { stayMs = STAY_MS, guards = GUARDS }: { readonly stayMs?: number; readonly guards?: Guards } = {},
): Promise<Done> {
  const end = performance.now() + stayMs
  const askUntil = performance.now() + STAY_MS
  const runs: Run[] = []
  const done = { reaped: 0, asked: 0 }
  const failures: unknown[] = []
  const note = (error: unknown): void => void failures.push(error)
  const begin = async (network: string) => {
    const failing = new Set<string>()
    const awaited = new Set<string>()
    const run = { ...context, network, askUntil, guards, failing, awaited, done }
    runs.push(run)
    await judgeSuspects(run)
    return {}
  }
  await inEachNetwork(context, begin).catch(note)
  for (;;) {
    const waiting = runs.filter(({ awaited }) => awaited.size > 0)
    if (waiting.length === 0 || performance.now() + POLL_MS > end || context.signal.aborted) break
    await delay(POLL_MS, undefined, { signal: context.signal }).catch(() => undefined)
    for (const run of waiting) {
      await judgeAnswered(run).catch((error: unknown) => {
        run.awaited.clear()
        note(error)
      })
    }
  }
  if (failures.length > 0 && !context.signal.aborted) throw failures[0]
  return done
}

/** All suspects, or those at these addresses. */
async function judgeSuspects(run: Run, addresses?: readonly string[]): Promise<void> {
  const image = await imageOf(run)
  if (image === null) return
  const coverage = coverageOf(image)
  const records = addresses?.map((address) => image.records.get(address)) ?? image.records.values()
  const pick = (record: AddressRecord | undefined) =>
    suspectOf(run.ledger.now(), image, coverage, record, run.guards)
  for await (const suspects of scanInSlices(records, pick, AT_ONCE, run.signal))
    await judgeSome(run, image, coverage, suspects)
}

async function judgeAnswered(run: Run): Promise<void> {
  const { awaited, database, network } = run
  const rows = await ask<{ address: string }>(database, ANSWERED, [network, [...awaited]])
  const addresses = rows.map(({ address }) => address)
  for (const address of addresses) awaited.delete(address)
  if (addresses.length > 0) await judgeSuspects(run, addresses)
}

async function imageOf({ ledger, network }: Run): Promise<Image | null> {
  const image = await ledger.image(network)
  return image === null || suspensionsOf(image, ledger.now(), 'REAP_ABSENT').length > 0 ? null : image
}

/** Null: by the image alone it is kept. More is read for the others only. */
export function suspectOf(
  now: number,
  image: Image,
  coverage: Coverage,
  record: AddressRecord | undefined,
  guards: Guards = GUARDS,
): Suspect | null {
  if (!isHeld(record) || guards.suspect.some(({ keeps }) => keeps(image, record))) return null
  const evidence = { image, now, freshness: () => undefined, lookUps: [] }
  const reap = guards.reap.filter(({ reads }) => !reads)
  const judged = judgeOne({ ...evidence, guards: { reap } }, record, coverage)
  if (!judged.because.every(({ code }) => code === 'WITNESS_NOT_WARM')) return null
  return { record, witnesses: judged.proof.witnesses.map(({ id }) => id) }
}

async function judgeSome(
  run: Run,
  image: Image,
  coverage: Coverage,
  suspects: readonly Suspect[],
): Promise<void> {
  const { database, network, ledger, guards } = run
  const query = (text: string, values: readonly unknown[]) => ask<Row>(database, text, values)
  const ids = new Set<string>()
  for (const { witnesses } of suspects) for (const id of witnesses) ids.add(id)
  const freshness = await readFreshness(query, network, [...ids])
  const judgeAll = async (some: readonly Suspect[]): Promise<readonly Judged[]> => {
    const addresses = some.map(({ record }) => record.address)
    const lookUps = await readLookUps(query, network, addresses)
    const known = { image, now: ledger.now(), freshness: (id: string) => freshness.get(id), guards }
    return some.map(({ record }) => {
      const evidence = { ...known, lookUps: lookUps.get(record.address) ?? [] }
      return { ...judgeOne(evidence, record, coverage), record }
    })
  }
  const judged = await judgeAll(suspects)
  for (const { verdict } of judged) countJudgement(network, verdict)
  await reap(run, judged)
  const questions = judged.flatMap((one) =>
    one.verdict === 'reap' ? [] : questionsDue(one, ledger.now(), guards),
  )
  if (questions.length === 0) return
  const [last] = await ask<{ seq: number }>(database, lastEvent('$1'), [network])
  const answered = await askAll(run, image, questions, last!.seq)
  await reap(run, await judgeAll(suspects.filter(({ record }) => answered.has(record.address))))
}

/** The ledger judges again, in full, on what it reads under the lock. */
async function reap({ ledger, network, done }: Run, judged: readonly Judged[]): Promise<void> {
  const command = { ...ownCommand(network, 'job:judge', 'PROVEN_ABSENT'), type: 'reapProven' } as const
  const reaping: Promise<Outcome>[] = []
  for (const { verdict, record } of judged)
    if (verdict === 'reap')
      reaping.push(ledger.submit({ ...command, token: record.token, version: record.seq }))
  for (const outcome of await Promise.all(reaping))
    if (outcome.ok && outcome.answer.leases.length > 0) done.reaped += 1
}

// Questions.

type Due = Question & { readonly attempts: number }

/** Asked again after a while. Every other answer stands until too many reports have come since. */
const DOUBTS: ReadonlySet<string> = new Set(['live', 'unknown', 'error'])

/** What is to be asked now, if only answers are missing. */
function questionsDue({ proof }: Judgement, now: number, guards: Guards): readonly Due[] {
  const since = new Map(proof.witnesses.map((one) => [one.id, one.since]))
  // A question from before the last change is another one.
  const asked = proof.lookUps.filter(({ source, head }) => head >= (since.get(source) ?? 0))
  const isOver = ({ askedAt, attempts }: LookUp): boolean => now >= askedAt + retryMs(attempts)
  const valid = asked.filter((one) => !DOUBTS.has(one.answer) || !isOver(one))
  const { verdict, questions } = judgeProof({ ...proof, lookUps: valid }, guards.reap)
  if (verdict !== 'ask') return []
  const before = ({ source, owner }: Question) =>
    asked.find((one) => one.source === source && one.owner.kind === owner.kind && one.owner.uid === owner.uid)
  const isDue = (question: Question): boolean => {
    const last = before(question)
    return last === undefined || isOver(last)
  }
  if (!questions.some(isDue)) return []
  return questions.map((question) => ({ ...question, attempts: (before(question)?.attempts ?? 0) + 1 }))
}

function retryMs(attempts: number): number {
  return Math.min(POLICY.lookUpRetryMs * 2 ** (attempts - 1), POLICY.longestLookUpRetryMs)
}

/** Asks, and stores the answers. Addresses about which a source answered now. */
async function askAll(
  run: Run,
  image: Image,
  questions: readonly Due[],
  head: number,
): Promise<ReadonlySet<string>> {
  const limited = limitTo(ASKED_AT_ONCE)
  const rows: object[] = []
  const answered = new Set<string>()
  const answers = await Promise.all(questions.map((one) => limited(() => askOne(run, image, one, head))))
  for (const one of answers) {
    if (one === null) continue
    const { owner, ...answer } = one
    rows.push({ ...owner, ...answer })
    if (one.answer === 'wanted') run.awaited.add(one.address)
    else answered.add(one.address)
  }
  await ask(run.database, KEEP_ANSWERS, [run.network, JSON.stringify(rows)])
  run.done.asked += rows.length
  return answered
}

/** Null: not now. */
async function askOne(
  { pulled, network, ledger, signal, failing, askUntil }: Run,
  image: Image,
  { source: id, address, owner, node, attempts }: Due,
  head: number,
): Promise<LookUp | null> {
  const source = image.sources.get(id)
  if (source === undefined || failing.has(id) || signal.aborted || performance.now() > askUntil) return null
  const { kind } = source.declaration
  // As of the moment of asking: the answer is no older.
  const question = { source: id, address, owner, head, askedAt: ledger.now(), attempts }
  if (kind === 'push') return { ...question, answer: 'wanted', terminalSince: null, detail: '' }
  const asking = { owner, address, node, epoch: source.epoch?.name ?? '' }
  const found = await withinRunning(POLICY.lookUpTimeoutMs, signal, (limit) =>
    pulled.get(network, source.declaration).lookUp(asking, limit),
  )
  if (signal.aborted) return null
  if (found.answer === 'error') failing.add(id)
  countLookup(kind, found.answer)
  const terminalSince = found.answer === 'terminal' ? found.since : null
  return { ...question, answer: found.answer, terminalSince, detail: found.detail }
}
