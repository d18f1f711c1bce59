/**
 * The two walks: every function of `src` that one warm Reserve enters, and one report that ends in a reap, from the socket to
 * the answer. Counted by V8's precise coverage. `npm run walk` prints the counts by file; `npm run walk -- --list` each function.
 * Copied into `bench/` of an older checkout it counts that one, as far back as 5ac397f.
 */
import { readFileSync } from 'node:fs'
import { Session } from 'node:inspector/promises'
import { fileURLToPath } from 'node:url'
import { readConfig } from '../src/config.ts'
import { judge } from '../src/jobs/judge.ts'
import * as clocks from '../src/ledger/clock.ts'
import { createPool } from '../src/postgres/connect.ts'
import { callersUrl, openService } from '../src/serve.ts'
import * as intakes from '../src/sources/intake.ts'
import { createLogger } from '../src/telemetry.ts'
import { openScratch } from './scratch.ts'

const MINUTE = 60_000
const WARM_CALLS = 300
/** Functions that only some of these runs enter belong to timers, not to the call. */
const RUNS = 5

let movedBy = 0

/** Time passes because the walk says so. Older code has an option for it instead of the class. */
function movedTime() {
  if (!('Clock' in clocks)) return { movedBy: () => movedBy }
  class MovedClock extends clocks.Clock {
    override observe(database: number, sent: number, received: number): number {
      return super.observe(database, sent, received) + movedBy
    }
    override database(): number {
      return super.database() + movedBy
    }
  }
  return { clock: new MovedClock() }
}

await using open = new AsyncDisposableStack()
const scratch = open.adopt(await openScratch(), (one) => one.stop())
const { url, adminUrl } = await scratch.create('walk')
const config = readConfig({
  DATABASE_URL: adminUrl,
  IPLEDGER_PORT: '0',
  IPLEDGER_GRPC_PORT: '0',
  IPLEDGER_LOG_LEVEL: 'silent',
})
const log = createLogger('silent')
const { ledger, server } = await openService(config, log, open, { worker: false, ...movedTime() })
const base = callersUrl(config.host, server.httpPort)
const database = open.adopt(createPool({ url, applicationName: 'walk', max: 4 }), (one) => one.end())
const options = { ledger, database, log }
// Older code has a function instead of the class.
const intake =
  'Intake' in intakes
    ? new intakes.Intake(options)
    : (intakes as { createIntake(given: object): intakes.Intake }).createIntake(options)
const { signal } = new AbortController()
// The only source reports by itself.
const pulled = {
  get(): never {
    throw new Error('no source is asked')
  },
}
const runJudge = () => judge({ database, ledger, intake, pulled, log, signal }, { stayMs: 0 })

// biome-ignore lint/suspicious/noExplicitAny: JSON as it came
async function call(method: string, message: object): Promise<any> {
  const response = await fetch(`${base}/ipledger.v1.${method}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(message),
  })
  const answer = await response.json()
  if (!response.ok) throw new Error(`${method}: ${JSON.stringify(answer)}`)
  return answer
}

const session = new Session()
session.connect()
await session.post('Profiler.enable')
await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false })

/** Of each function of `src` that was entered while the work ran: its file, line and name. */
async function entered(work: () => Promise<unknown>): Promise<ReadonlySet<string>> {
  await session.post('Profiler.takePreciseCoverage')
  await work()
  const { result } = await session.post('Profiler.takePreciseCoverage')
  const found = new Set<string>()
  for (const { url: script, functions } of result) {
    const file = /\/src\/(?!gen\/)(.*)$/.exec(script)?.[1]
    if (file === undefined) continue
    for (const { functionName, ranges } of functions) {
      const [range] = ranges
      // The module itself is no function.
      if (range === undefined || range.count === 0 || (functionName === '' && range.startOffset === 0))
        continue
      found.add(`${file}:${lineAt(script, range.startOffset)} ${functionName || '=>'}`)
    }
  }
  return found
}

const texts = new Map<string, string>()
function lineAt(script: string, offset: number): number {
  const text = texts.get(script) ?? readFileSync(fileURLToPath(script), 'utf8')
  texts.set(script, text)
  return text.slice(0, offset).split('\n').length
}

function show(what: string, functions: ReadonlySet<string>): void {
  const byFile = Map.groupBy([...functions].toSorted(), (one) => one.slice(0, one.indexOf(':')))
  const inline = [...functions].filter((one) => / (?:=>|<.*>)$/.test(one)).length
  console.log(
    `${what}: ${functions.size} functions in ${byFile.size} files, ${functions.size - inline} of them with a name`,
  )
  for (const [file, names] of [...byFile].toSorted(([, a], [, b]) => b.length - a.length)) {
    console.log(`  ${String(names.length).padStart(3)} ${file}`)
    if (process.argv.includes('--list'))
      for (const name of names) console.log(`        ${name.slice(file.length + 1)}`)
  }
}

const owner = (name: string) => ({ kind: 'container', name, uid: name, node: 'n1' })
const reserve = async (name: string, more: object = {}) =>
  (await call('LeaseService/Reserve', { owner: owner(name), claims: [{}], ...more })).leases[0]
const release = ({ leaseId }: { readonly leaseId: string }) => call('LeaseService/Release', { leaseId })

await call('PoolService/CreatePool', { name: 'web', cidr: '10.0.0.0/16', default: true })
for (let k = 0; k < WARM_CALLS; k += 1) await release(await reserve(`warm-${k}`))
let walk: ReadonlySet<string> | null = null
for (let k = 0; k < RUNS; k += 1) {
  let lease = { leaseId: '' }
  const run = await entered(async () => {
    lease = await reserve(`walk-${k}`)
  })
  await release(lease)
  walk = walk === null ? run : walk.intersection(run)
}
show('one warm Reserve', walk!)

// A node with two containers, one of which ends.
const sight = { node: 'n1', ownerKinds: ['container'], families: [4], interval: '30s' }
await call('LivenessService/RegisterSource', { id: 'n1', sight })
await call('LivenessService/EnableSource', { id: 'n1' })
const listed = [await reserve('stays', { confirmed: true }), await reserve('ends', { confirmed: true })].map(
  ({ address, owner: { kind, name, uid } }) => ({ address, kind, name, uid }),
)
async function report(entries: readonly object[]): Promise<void> {
  const { sequence, head, begunAt, proof } = await call('LivenessService/BeginSnapshot', { source: 'n1' })
  const message = { sequence, head, begunAt, proof, source: 'n1', epoch: 'one', complete: true, entries }
  const { verifications } = await call('LivenessService/ReportSnapshot', message)
  const verdicts = verifications.map(({ id }: { readonly id: string }) => ({ id, answer: 'GONE' }))
  if (verdicts.length > 0)
    await call('LivenessService/ReportVerdicts', { source: 'n1', epoch: 'one', verdicts })
}
for (let k = 0; k < 4; k += 1) {
  await report(listed)
  movedBy += MINUTE
}
/** The list that no longer has it, misses until it is asked after, the answer, the reap. */
const taken = await entered(async () => {
  for (let k = 0; k < 30; k += 1) {
    await report(listed.slice(0, 1))
    movedBy += MINUTE
    if ((await runJudge()).reaped === 1) return
  }
  throw new Error('it was not reaped')
})
if ((await call('LeaseService/ListLeases', { ownerName: 'ends' })).leases.length > 0)
  throw new Error('the lease is still there')
show('a report that ends in a reap', taken)
