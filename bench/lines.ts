/**
 * The lines of the table, by the names `--only` knows. Each brings its floor from the same run. "Pairs" are a Reserve
 * and the Release of what it gave; owners are fresh each time and name an incarnation.
 */
import { readdirSync, statfsSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { rebuild } from '../src/ledger/rebuild.ts'
import { audit } from './audit.ts'
import type { History } from './history.ts'
import type { Place, Work } from './load.ts'
import { alternate, type Bench, compare, type Figures, run, type Subject } from './measure.ts'
import type { Row } from './report.ts'
import { type Server, startServer } from './server.ts'
import { openStage, type Stage } from './stage.ts'
import { telemetry } from './telemetry.ts'
import { agents, reconcile } from './truth.ts'
import { clusterResidentBytes, residentBytes } from './usage.ts'

const CALLERS = 64
const WIDE = '10.0.0.0/8'

/** In the order of the table; `soak` only when asked for. */
export const LINES = {
  reserve,
  pairs,
  batch,
  fill,
  size,
  recycled,
  networks,
  processes,
  exhausted,
  age,
  rebuild: rebuildLine,
  audit: auditLine,
  reconcile,
  agents,
  telemetry: telemetryLine,
  snapshot,
  soak,
} satisfies Record<string, (bench: Bench) => Promise<void>>

export type LineName = keyof typeof LINES

// Subjects.

const check = (stage: Stage, callers = CALLERS, times = 1): Subject => ({
  what: `${times === 1 ? 'no-op RPC' : `${times} no-op RPCs`}, ${callers} ${plural(callers, 'caller')}`,
  work: () => ({ kind: 'check', times }),
  callers,
  stage,
})

const insert = (stage: Stage, connections: number): Subject => ({
  what: `one-row INSERT, ${connections} ${plural(connections, 'connection')}`,
  work: () => ({ kind: 'insert', url: stage.database.adminUrl }),
  callers: connections,
  stage,
})

const reserving = (stage: Stage, what: string, places: () => PlacesOf, callers = CALLERS): Subject => ({
  what,
  work: async () => ({ kind: 'reserve', places: await places() }),
  callers,
  stage,
})

const pairing = (stage: Stage, what: string, places: () => PlacesOf): Subject => ({
  what,
  work: async () => ({ kind: 'pair', places: await places() }),
  callers: CALLERS,
  stage,
})

type PlacesOf = readonly Place[] | Promise<readonly Place[]>

/** A network of its own for each run, so that no run finds what the one before used up. */
const fresh =
  (stage: Stage, cidr: string, history?: History): (() => Promise<readonly Place[]>) =>
  async () => [await stage.place(cidr, history)]

function plural(count: number, word: string): string {
  return count === 1 ? word : `${word}s`
}

// Lines.

async function reserve(bench: Bench): Promise<void> {
  const stage = await mainStage(bench)
  const places = [await stage.place(WIDE)]
  const subject = (callers: number) =>
    reserving(stage, `Reserve, ${callers} ${plural(callers, 'caller')}`, () => places, callers)

  const [insertOne, checkOne, reserveOne] = await alternate(bench, [
    insert(stage, 1),
    check(stage, 1),
    subject(1),
  ])
  bench.show(compare('floor', checkOne!))
  bench.show(compare('floor', insertOne!))
  bench.show(compare('reserve', reserveOne!, { rounds: insertOne!, by: 'p50', goal: { most: 3 } }))

  const echo = await startServer(
    {
      database: stage.database,
      worker: false,
      script: fileURLToPath(new URL('echo-server.ts', import.meta.url)),
    },
    bench.signal,
  )
  try {
    const echoed: Subject = {
      ...subject(CALLERS),
      what: `Reserve answered without a ledger, ${CALLERS} callers`,
      work: () => ({ kind: 'echo', places }),
      servers: [echo],
    }
    const [checked, answered, reserved] = await alternate(bench, [check(stage), echoed, subject(CALLERS)])
    bench.show(compare('floor', checked!))
    bench.show(compare('floor', answered!, { rounds: checked! }))
    bench.show(compare('reserve', reserved!, { rounds: checked!, goal: { least: 0.7 } }))
  } finally {
    await echo.stop()
  }

  const [checkMany, reserveMany] = await alternate(bench, [check(stage, 256), subject(256)])
  bench.show(compare('floor', checkMany!))
  bench.show(compare('reserve', reserveMany!, { rounds: checkMany! }))
}

async function telemetryLine(bench: Bench): Promise<void> {
  const stage = await mainStage(bench)
  await telemetry(
    bench,
    stage,
    async (what, callers) => {
      const places = [await stage.place(WIDE)]
      return reserving(stage, what, () => places, callers)
    },
    CALLERS,
  )
}

async function pairs(bench: Bench): Promise<void> {
  const stage = await mainStage(bench)
  const [checks, paired] = await alternate(bench, [
    check(stage, CALLERS, 2),
    pairing(stage, `Reserve and Release, ${CALLERS} callers`, fresh(stage, WIDE)),
  ])
  bench.show(compare('pairs', paired!, { rounds: checks! }))
}

async function batch(bench: Bench): Promise<void> {
  const stage = await mainStage(bench)
  const size = 100
  const batches: Subject = {
    what: `BatchReserve of ${size}, 8 callers (leases)`,
    work: async () => ({ kind: 'batch', places: [await stage.place(WIDE)], size }),
    callers: 8,
    stage,
    units: size,
  }
  const [inserted, reserved] = await alternate(bench, [insert(stage, 32), batches])
  bench.show(compare('floor', inserted!))
  bench.show(compare('batch', reserved!, { rounds: inserted!, goal: { least: 1.5 } }))
}

async function fill(bench: Bench): Promise<void> {
  const stage = await mainStage(bench)
  const cidr = `10.0.0.0/${bench.scale.fillPrefix}`
  const addresses = 2 ** (32 - bench.scale.fillPrefix) - 2
  const filled = (percent: number) =>
    pairing(
      stage,
      `pairs, /${bench.scale.fillPrefix} ${percent} % full`,
      fresh(stage, cidr, { held: Math.floor((addresses * percent) / 100), pairs: 0, churned: 0 }),
    )
  const [empty, half, full] = await alternate(bench, [filled(0), filled(50), filled(99)])
  bench.show(compare('fill', empty!))
  bench.show(compare('fill', half!, { rounds: empty!, goal: { least: 0.9 } }))
  bench.show(compare('fill', full!, { rounds: empty!, goal: { least: 0.9 } }))
}

async function size(bench: Bench): Promise<void> {
  const stage = await mainStage(bench)
  const sized = (what: string, cidr: string) => pairing(stage, `pairs, empty ${what}`, fresh(stage, cidr))
  const [middle, small, large, v6] = await alternate(bench, [
    sized('/16', '10.0.0.0/16'),
    sized('/24', '10.0.0.0/24'),
    sized('/8', WIDE),
    sized('v6 /48', '2001:db8::/48'),
  ])
  bench.show(compare('size', middle!))
  bench.show(compare('size', small!, { rounds: middle! }))
  bench.show(compare('size', large!, { rounds: middle!, goal: { least: 0.9 } }))
  bench.show(compare('size', v6!, { rounds: middle!, goal: { least: 0.9 } }))
}

async function recycled(bench: Bench): Promise<void> {
  const stage = await mainStage(bench)
  const cidr = `10.0.0.0/${bench.scale.fillPrefix}`
  const [untouched, used] = await alternate(bench, [
    pairing(stage, 'pairs, no address was used before', fresh(stage, WIDE)),
    pairing(stage, 'pairs, every address was used before', fresh(stage, cidr, usedUp(bench))),
  ])
  bench.show(compare('recycled', used!, { rounds: untouched! }))
}

/** Every address of a pool of the size that is filled was held once, and is free again. */
function usedUp(bench: Bench): History {
  const addresses = 2 ** (32 - bench.scale.fillPrefix) - 2
  return { held: 0, pairs: addresses, churned: addresses }
}

async function networks(bench: Bench): Promise<void> {
  const stage = await mainStage(bench)
  const eight = await Promise.all(Array.from({ length: 8 }, () => stage.place(WIDE)))
  const [one, many] = await alternate(bench, [
    reserving(stage, `Reserve on 1 network, ${CALLERS} callers`, () => eight.slice(0, 1)),
    reserving(stage, `Reserve on 8 networks, ${CALLERS} callers`, () => eight),
  ])
  bench.show(compare('networks', many!, { rounds: one! }))
}

async function processes(bench: Bench): Promise<void> {
  const stage = await mainStage(bench)
  const places = [await stage.place(WIDE)]
  const more: Server[] = []
  try {
    more.push(await stage.join(), await stage.join())
    const through = (servers: readonly Server[]): Subject => ({
      ...reserving(
        stage,
        `Reserve through ${servers.length} ${servers.length === 1 ? 'process' : 'processes'}, ${CALLERS} callers`,
        () => places,
      ),
      servers,
    })
    const [one, three] = await alternate(bench, [
      through(stage.servers.slice(0, 1)),
      through([...stage.servers.slice(0, 1), ...more]),
    ])
    bench.show(compare('processes', three!, { rounds: one! }))
  } finally {
    await Promise.all(more.map((server) => server.stop()))
  }
}

async function exhausted(bench: Bench): Promise<void> {
  const stage = await mainStage(bench)
  const full = await stage.place('10.0.0.0/24', { held: 254, pairs: 0, churned: 0 })
  const refused: Subject = {
    what: `POOL_EXHAUSTED, ${CALLERS} callers`,
    work: () => ({ kind: 'exhausted', places: [full] }),
    callers: CALLERS,
    stage,
  }
  const [granted, refusals] = await alternate(bench, [
    reserving(stage, `Reserve, ${CALLERS} callers`, fresh(stage, WIDE)),
    refused,
  ])
  bench.show(compare('exhausted', refusals!, { rounds: granted!, goal: { least: 1 } }))
}

async function age(bench: Bench): Promise<void> {
  const { old, place } = await agedStage(bench)
  const young = await open(bench, 'young')
  try {
    const youth = await young.place(WIDE)
    const events = `${(bench.scale.agedEvents / 1e6).toLocaleString('en-US')} M`
    const [reserveYoung, reserveOld, pairYoung, pairOld] = await alternate(bench, [
      reserving(young, 'Reserve, log empty', () => [youth]),
      reserving(old, `Reserve, ${events} events in the log`, () => [place]),
      pairing(young, 'pairs, log empty', () => [youth]),
      pairing(old, `pairs, ${events} events in the log`, () => [place]),
    ])
    bench.show(compare('age', reserveOld!, { rounds: reserveYoung!, goal: { least: 0.9 } }))
    bench.show(compare('age', pairOld!, { rounds: pairYoung!, goal: { least: 0.9 } }))
  } finally {
    await young.close()
  }
}

async function rebuildLine(bench: Bench): Promise<void> {
  const { old, place } = await agedStage(bench)
  const again = async (what: string, expect: 'nothing' | 'everything') => {
    const begun = performance.now()
    const { events, replaced, differences } = await rebuild({
      adminUrl: old.database.adminUrl,
      network: place.network,
      signal: bench.signal,
    })
    if ((replaced === 0) !== (expect === 'nothing')) {
      throw new Error(`a rebuild replaced ${replaced} rows: ${JSON.stringify(differences.slice(0, 3))}`)
    }
    const perSecond = (events * 1_000) / (performance.now() - begun)
    bench.show({
      line: 'rebuild',
      what,
      perSecond,
      p50: null,
      p99: null,
      cpu: null,
      floor: null,
      ratio: null,
      goal: { least: REBUILT_PER_SECOND },
      reached: perSecond >= REBUILT_PER_SECOND,
    })
  }
  await again('rebuild, projections as they should be (events)', 'nothing')
  for (const table of PROJECTIONS) {
    await old.admin.query(`delete from ipledger.${table} where network_id = $1`, [place.network])
  }
  await again('rebuild, projections lost (events)', 'everything')
}

async function auditLine(bench: Bench): Promise<void> {
  const { old, place } = await agedStage(bench)
  await audit(bench, old, place)
}

const REBUILT_PER_SECOND = 200_000
const PROJECTIONS = [
  'pool',
  'lease',
  'released_address',
  'untouched_range',
  'pool_position',
  'closed_attachment',
]

/**
 * Every address is recycled, so that rows die as fast as they can. The minute before the transaction begins is the
 * floor; the last one with it open is the figure. Jobs run as in a service, since pruning is part of what must go on.
 */
async function snapshot(bench: Bench): Promise<void> {
  const { heldOpenIntervals, heldOpenIntervalMs, fillPrefix } = bench.scale
  const stage = await workingStage(bench)
  const place = await stage.place(`10.0.0.0/${fillPrefix}`, usedUp(bench))
  const subject = pairing(stage, 'pairs, every address was used before', () => [place])
  const shape = longShape(heldOpenIntervalMs, heldOpenIntervals + 2)
  const sent: Promise<unknown>[] = []
  const send = (statement: string) => {
    const answered = stage.admin.query(statement)
    // The run goes on; it is heard of below.
    answered.catch(() => {})
    sent.push(answered)
  }
  const course = await run(bench, subject, shape, {
    hear(_interval, index) {
      if (index === 0) send(HOLD)
      if (index === heldOpenIntervals) send('rollback')
    },
  })
  await Promise.all(sent)
  const lasted = (heldOpenIntervals * heldOpenIntervalMs) / 1_000
  const text = lasted >= 60 ? `${lasted / 60} min` : `${lasted} s`
  const last: Figures = { ...course.at(-2)!, what: `pairs, a transaction held open for ${text}` }
  bench.show({
    ...compare('snapshot', [last], { rounds: [course[0]!], goal: { least: 0.8 } }),
    course: course.map((figures, index) => ({
      at: index === 0 ? 'before' : index > heldOpenIntervals ? 'after' : `${index} of ${heldOpenIntervals}`,
      perSecond: figures.perSecond,
      p99: figures.p99,
    })),
  })
}

/** What comes first is the floor of what comes later, so the server must be as warm then as it will be. */
function longShape(intervalMs: number, intervals: number) {
  return { warmUpMs: intervalMs / 4, intervalMs, intervals }
}

/** The first statement of the transaction takes its snapshot. */
const HOLD = 'begin isolation level repeatable read; select count(*) from ipledger.pool'

/** Each caller holds 100 leases and replaces them for an hour, in a pool of which half is held by others. */
async function soak(bench: Bench): Promise<void> {
  const { soakIntervalMs, soakIntervals, fillPrefix } = bench.scale
  const stage = await workingStage(bench)
  const half = 2 ** (31 - fillPrefix)
  const place = await stage.place(`10.0.0.0/${fillPrefix}`, { held: half, pairs: 0, churned: 0 })
  const hold = Math.min(100, Math.floor(half / CALLERS / 2))
  const subject: Subject = {
    what: `churn, ${CALLERS} callers hold ${hold} leases each`,
    work: (): Work => ({ kind: 'churn', places: [place], hold }),
    callers: CALLERS,
    stage,
  }
  let start: Promise<readonly Size[]> | undefined
  const course = await run(bench, subject, longShape(soakIntervalMs, soakIntervals), {
    hear(_interval, index) {
      mustFit(bench)
      if (index > 0) return
      // Not from nothing: caches are full, every table has been written.
      start = sizesOf(bench, stage)
      start.catch(() => {})
    },
  })
  const before = (await start) ?? []
  const after = await sizesOf(bench, stage)
  const last: Figures = { ...course.at(-1)!, what: `${subject.what}, at the end` }
  const first: Figures = { ...course[0]!, what: 'at the start' }
  bench.show({
    ...compare('soak', [last], { rounds: [first] }),
    course: course.map((figures, index) => ({
      at: `${Math.round(((index + 1) * soakIntervalMs) / 1_000)} s`,
      perSecond: figures.perSecond,
      p99: figures.p99,
    })),
    sizes: after.map(({ of, bytes }) => ({
      of,
      start: before.find((one) => one.of === of)?.bytes ?? 0,
      end: bytes,
    })),
  } satisfies Row)
}

/** A profile of the server under Reserve by 64 callers; answers where it was written. */
export async function profile(bench: Bench, directory: string): Promise<readonly string[]> {
  const stage = await mainStage(bench)
  const places = [await stage.place(WIDE)]
  const server = await startServer(
    { database: stage.database, worker: false, profile: directory },
    bench.signal,
  )
  const subject = reserving(stage, 'Reserve, profiled', () => places)
  const { warmUpMs, measureMs } = bench.scale
  try {
    await run(bench, { ...subject, servers: [server] }, { warmUpMs, intervalMs: measureMs, intervals: 1 })
  } finally {
    await server.stop()
  }
  return readdirSync(directory)
    .filter((name) => name.endsWith('.cpuprofile') && name.includes(`.${server.pid}.`))
    .map((name) => join(directory, name))
}

type Size = { readonly of: string; readonly bytes: number }

async function sizesOf(bench: Bench, stage: Stage): Promise<readonly Size[]> {
  const memory = [
    { of: 'memory of the server', bytes: residentBytes(stage.servers[0]!.pid) },
    { of: 'memory of PostgreSQL', bytes: clusterResidentBytes(bench.scratch.postmaster()) },
  ].filter((one): one is Size => one.bytes !== undefined)
  const { rows } = await stage.admin.query<Size>(
    `select relation.of, relation.bytes from (
       select relname::text as of, pg_relation_size(oid) as bytes, 1 as kind, relname as name
         from pg_class where relnamespace = 'ipledger'::regnamespace and relkind = 'r'
       union all
       select i.relname::text || ' (index)', pg_relation_size(i.oid), 2, i.relname
         from pg_class i where i.relnamespace = 'ipledger'::regnamespace and i.relkind = 'i'
     ) relation where relation.bytes > 8192 * 2 order by relation.kind, relation.name`,
  )
  return [...memory, ...rows]
}

const LEAST_FREE_BYTES = 4 * 2 ** 30

function mustFit(bench: Bench): void {
  if (bench.scratch.directory === undefined) return
  const { bavail, bsize } = statfsSync(bench.scratch.directory)
  if (bavail * bsize < LEAST_FREE_BYTES)
    throw new Error(`less than ${LEAST_FREE_BYTES / 2 ** 30} GiB are left on the disk`)
}

// Stages that several lines share.

const shared = new WeakMap<Bench, { main?: Promise<Stage>; working?: Promise<Stage>; aged?: Promise<Aged> }>()

type Aged = { readonly old: Stage; readonly place: Place }

function sharedOf(bench: Bench) {
  const known = shared.get(bench) ?? {}
  shared.set(bench, known)
  return known
}

async function open(bench: Bench, purpose: string, worker = false): Promise<Stage> {
  const stage = await openStage(bench.scratch, { purpose, worker }, bench.signal)
  bench.stages.push(stage)
  return stage
}

function mainStage(bench: Bench): Promise<Stage> {
  const known = sharedOf(bench)
  known.main ??= open(bench, 'main')
  return known.main
}

/** With the jobs of a service, for what runs so long that pruning is part of it. */
function workingStage(bench: Bench): Promise<Stage> {
  const known = sharedOf(bench)
  known.working ??= open(bench, 'working', true)
  return known.working
}

/** A network with a long log: a tenth of a million leases held, a million addresses gone round and round. */
function agedStage(bench: Bench): Promise<Aged> {
  const known = sharedOf(bench)
  known.aged ??= open(bench, 'aged').then(async (old) => {
    const held = Math.min(100_000, bench.scale.agedEvents / 10)
    const pairs = Math.floor((bench.scale.agedEvents - held) / 2)
    bench.say(`writing a log of ${bench.scale.agedEvents.toLocaleString('en-US')} events`)
    const place = await old.place(WIDE, { held, pairs, churned: Math.min(1_000_000, Math.ceil(pairs / 4)) })
    return { old, place }
  })
  return known.aged
}
