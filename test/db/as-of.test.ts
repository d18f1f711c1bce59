/**
 * The table of leases as it was: at every number equal to the fold of the log by core/evolve, whatever checkpoints there
 * are (issue "Sight", point 2).
 */
import { afterAll, describe, expect, test } from 'vitest'
import { type AddressBook, addressValue, UNTOUCHED } from '../../src/core/books.ts'
import type { LedgerEvent } from '../../src/core/event.ts'
import { isEndedEvent, isHeldEvent } from '../../src/core/event.ts'
import { addressOf, evolveAddress } from '../../src/core/evolve.ts'
import { leaseId } from '../../src/core/lease.ts'
import { makeCheckpoint } from '../../src/ledger/checkpoints.ts'
import { readAddress } from '../../src/ledger/rows.ts'
import { connectUnchecked } from '../../src/postgres/connect.ts'
import { createNetwork } from '../support/commands.ts'
import { useTestDatabase, withClient } from '../support/database.ts'
import { useLedger } from '../support/ledger.ts'
import { writeLongHistory } from '../support/long-history.ts'
import { seededRandom } from '../support/random.ts'
import { readLog } from '../support/read-log.ts'
import { openJobs } from '../support/run-jobs.ts'
import { expectVerified } from '../support/verified.ts'

const database = await useTestDatabase()
const ledger = useLedger({ url: database.serviceUrl })
const jobs = openJobs(database.serviceUrl)
const auditor = await connectUnchecked({ url: database.auditorUrl, applicationName: 'test' })
const random = seededRandom()
console.log(`seed ${random.seed}`)
afterAll(async () => {
  await auditor.end()
  await jobs.close()
  await expectVerified(database)
})

const NETWORK = 'past'
const POINTS = 1_000

type Shown = Readonly<Record<string, unknown>>

/** The fold of a log, event by event. */
function createFold(network: string) {
  const books = new Map<string, AddressBook>()
  const pools = new Map<number, string>()
  const times = new Map<number, number>()
  return {
    take(event: LedgerEvent) {
      times.set(event.seq, event.at)
      if (event.type === 'pool.created') pools.set(event.poolId, event.pool.name)
      if (!isHeldEvent(event) && !isEndedEvent(event)) return
      const { address } = addressOf(event)
      books.set(address, evolveAddress(books.get(address) ?? UNTOUCHED, event))
    },
    leases(): readonly Shown[] {
      const held = [...books.values()].flatMap(({ lease }) => (lease === null ? [] : [lease]))
      return held
        .sort((a, b) => byAddress(a.address, b.address))
        .map((lease) => ({
          network,
          address: `${lease.address}/${lease.prefixLength}`,
          pool: pools.get(lease.poolId),
          state: lease.state,
          lease_id: leaseId(network, lease.fencingToken),
          fencing_token: lease.fencingToken,
          version: lease.version,
          owner_kind: lease.owner?.kind ?? null,
          owner_name: lease.owner?.name ?? null,
          owner_uid: lease.owner?.uid ?? null,
          owner_incarnation: lease.owner?.incarnation ?? null,
          owner_interface: lease.owner?.interface ?? null,
          node: lease.placement.node,
          boot: lease.placement.boot,
          labels: lease.placement.labels,
          reserved_at: lease.reservedAt,
          confirmed_at: lease.confirmedAt,
          confirm_by: lease.confirmBy,
          quarantine_reason: lease.quarantine?.reason ?? null,
          quarantined_at: lease.quarantine?.at ?? null,
          quarantined_by: lease.quarantine?.by ?? null,
          quarantine_why: lease.quarantine?.why ?? null,
          since: times.get(lease.fencingToken),
        }))
    },
  }
}

function byAddress(a: string, b: string): number {
  if (a.includes(':') !== b.includes(':')) return a.includes(':') ? 1 : -1
  return addressValue(a) < addressValue(b) ? -1 : 1
}

function shown(row: Shown): Shown {
  const [address, length] = (row.address as string).split('/')
  const full = address!.includes(':') ? 128 : 32
  return { ...row, address: `${readAddress(address!)}/${length ?? full}` }
}

async function asOf(seq: number, page: { readonly after?: string | undefined; readonly most?: number } = {}) {
  const { rows } = await auditor.query<Shown>('select * from leases_as_of($1, $2::bigint, $3, $4)', [
    NETWORK,
    seq,
    page.after ?? null,
    page.most ?? null,
  ])
  return rows.map(shown)
}

async function asOfTime(at: number) {
  const { rows } = await auditor.query<Shown>(
    'select * from leases_as_of($1, to_timestamp($2::float8 / 1000))',
    [NETWORK, at],
  )
  return rows.map(shown)
}

/** At each of these numbers, in order. */
async function compareAt(log: readonly LedgerEvent[], points: readonly number[]): Promise<void> {
  const fold = createFold(NETWORK)
  let next = 0
  for (const seq of [...points].sort((a, b) => a - b)) {
    for (; next < log.length && log[next]!.seq <= seq; next += 1) fold.take(log[next]!)
    const found = await asOf(seq)
    const expected = fold.leases()
    if (JSON.stringify(found) !== JSON.stringify(expected)) expect(found, `at ${seq}`).toEqual(expected)
  }
}

describe('the leases as of a number', () => {
  let log: readonly LedgerEvent[] = []

  test('are the fold of the log at 1,000 points, before, between and behind checkpoints', async () => {
    await ledger.accept(createNetwork(NETWORK))
    await writeLongHistory({ ledger, jobs, random }, NETWORK, { rounds: 8, commands: 300 })
    log = await readLog(database, NETWORK)
    // A few numbers before any checkpoint is there.
    const anywhere = () => random.pick(log).seq + random.below(3) - 1
    await compareAt(log, Array.from({ length: 20 }, anywhere))
    const made = await withClient(database.serviceUrl, async (client) => {
      let count = 0
      while (await makeCheckpoint(client, NETWORK, { distance: 300, part: 40 })) count += 1
      return count
    })
    expect(made).toBeGreaterThan(5)
    const at = await auditor.query<{ seq: number }>('select seq from checkpoint where network = $1', [
      NETWORK,
    ])
    const around = at.rows.flatMap(({ seq }) => [seq - 1, seq, seq + 1])
    await compareAt(log, [
      0,
      log.at(-1)!.seq + 1_000,
      2 ** 40 - 1,
      ...around,
      ...Array.from({ length: POINTS }, anywhere),
    ])
  }, 300_000)

  // Few events since the checkpoint or many, a page larger than they are or smaller: either way of finding one.
  test('in pages, each behind the last address of the one before, with or without its mask', async () => {
    const points = [...Array.from({ length: 30 }, () => random.pick(log).seq), log.at(-1)!.seq, 2 ** 40 - 1]
    for (const seq of points) {
      const whole = await asOf(seq)
      const most = 1 + random.below(random.pick([5, 60]))
      // From the beginning, or from somewhere in it, a few pages on.
      let first = random.pick([0, random.below(whole.length + 1)])
      for (let pages = 0; pages < 12; pages += 1) {
        const last = whole[first - 1]?.address as string | undefined
        const after = random.below(2) === 0 ? last : last?.split('/')[0]
        const page = await asOf(seq, { after, most })
        const expected = whole.slice(first, first + most)
        expect(page, `${most} at ${seq} behind ${after}`).toEqual(expected)
        if (page.length < most) break
        first += most
      }
    }
  })

  test('at a time: after the last event that is not later', async () => {
    const event = random.pick(log)
    const last = log.findLast(({ at }) => at <= event.at)!
    expect(await asOfTime(event.at)).toEqual(await asOf(last.seq))
    expect(await asOfTime(log[0]!.at - 1)).toEqual([])
    expect(await asOfTime(log.at(-1)!.at + 3_600_000)).toEqual(await asOf(log.at(-1)!.seq))
  })
})
