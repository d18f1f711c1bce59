/**
 * What the histories say of a long random past (v4, v6 and blocks, pools that come and go, eras): the same as the table of
 * leases as it was, which is the fold of the log (as-of.test.ts), and as the log itself.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { useAuditor } from '../support/auditor.ts'
import { createNetwork } from '../support/commands.ts'
import { useTestDatabase } from '../support/database.ts'
import { useLedger } from '../support/ledger.ts'
import { writeLongHistory } from '../support/long-history.ts'
import { seededRandom } from '../support/random.ts'
import { openJobs } from '../support/run-jobs.ts'
import { expectVerified } from '../support/verified.ts'

const database = await useTestDatabase()
const ledger = useLedger({ url: database.serviceUrl })
const jobs = openJobs(database.serviceUrl)
const audit = await useAuditor(database)
const random = seededRandom()
console.log(`seed ${random.seed}`)
afterAll(async () => {
  await jobs.close()
  await expectVerified(database)
})

const NETWORK = 'past'
const POINTS = 60

type Known = Readonly<{
  seq: number
  at: number
  address: string | null
  lease_id: string | null
  owner_name: string | null
}>
let log: readonly Known[] = []

beforeAll(async () => {
  await ledger.accept(createNetwork(NETWORK))
  await writeLongHistory({ ledger, jobs, random }, NETWORK, { rounds: 6, commands: 500 })
  log = await audit.ask<Known>(
    'select seq, at, address, lease_id, owner_name from event where network = $1 order by seq',
    NETWORK,
  )
}, 240_000)

/** As `leases_as_of` has them. */
const COLUMNS = `network, address, pool, state, lease_id, fencing_token, version, owner_kind, owner_name, owner_uid, owner_incarnation,
  owner_interface, node, boot, labels, reserved_at, confirmed_at, confirm_by, quarantine_reason, quarantined_at, quarantined_by,
  quarantine_why, since`

const somewhen = () => new Date(random.pick(log).at + random.below(3) - 1)
/** An address of a lease, or beside one, or anywhere in a block. */
const somewhere = async () => {
  const { address } = random.pick(log.filter((event) => event.address !== null))
  const rows = await audit.ask<{ address: string }>(
    'select host($1::inet)::inet + $2::int as address',
    address,
    random.below(20) - 1,
  )
  return random.chance(0.3) ? address!.split('/')[0]! : rows[0]!.address
}

describe('who_had', () => {
  test('of everything is the table of leases as it was', async () => {
    for (let point = 0; point < POINTS / 4; point += 1) {
      const at = somewhen()
      for (const everything of ['0.0.0.0/0', '::/0']) {
        const had = await audit.ask(`select ${COLUMNS} from who_had($1, $2, $3)`, NETWORK, everything, at)
        const table = await audit.ask(
          `select ${COLUMNS} from leases_as_of($1, $2::timestamptz) where family(address) = family($3::inet)`,
          NETWORK,
          at,
          everything,
        )
        expect(had).toEqual(table)
      }
    }
  })

  test('of an address, or a CIDR, is what of that table touches it', async () => {
    for (let point = 0; point < POINTS; point += 1) {
      const [at, one] = [somewhen(), await somewhere()]
      const asked = random.chance(0.5)
        ? one
        : `${one}/${one.includes(':') ? 120 + random.below(8) : 20 + random.below(12)}`
      const had = await audit.ask(`select ${COLUMNS} from who_had($1, $2, $3)`, NETWORK, asked, at)
      const table = await audit.ask(
        `select ${COLUMNS} from leases_as_of($1, $2::timestamptz) where address && network($3::inet)::inet`,
        NETWORK,
        at,
        asked,
      )
      expect(had, `${asked} at ${at.toISOString()}`).toEqual(table)
    }
  })

  test('says by whom it was given and what ended it, as the log does', async () => {
    for (let point = 0; point < POINTS; point += 1) {
      const at = somewhen()
      const [lease] = await audit.ask<{
        lease_id: string
        given_by: string
        given_cause: string
        seq: number
        until: number | null
        ended_as: string | null
      }>(
        'select * from who_had($1, $2, $3) limit 1',
        NETWORK,
        random.chance(0.5) ? '10.0.0.0/8' : 'fd00::/8',
        at,
      )
      if (lease === undefined) continue
      const life = await audit.ask<{ seq: number; at: number; actor: string; cause: string; type: string }>(
        'select seq, at, actor, cause, type from lease_history($1)',
        lease.lease_id,
      )
      const end = life.at(-1)!
      const ended = end.type === 'lease.released' || end.type === 'lease.reaped'
      expect(lease).toMatchObject({
        given_by: life[0]!.actor,
        given_cause: life[0]!.cause,
        seq: life.findLast((event) => event.at <= at.getTime())!.seq,
        until: ended ? end.at : null,
        ended_as: ended ? `${end.type}/${end.cause}` : null,
      })
    }
  })
})

describe('histories', () => {
  test('of an address, a CIDR, a lease and an owner are the events of the log about it, in order', async () => {
    for (let point = 0; point < POINTS; point += 1) {
      const one = await somewhere()
      const asked = random.chance(0.5) ? one : `${one}/${one.includes(':') ? 122 : 26}`
      const [from, to] = [somewhen(), somewhen()].sort((a, b) => Number(a) - Number(b))
      const told = await audit.ask(
        'select seq from address_history($1, $2, $3, $4)',
        NETWORK,
        asked,
        from,
        to,
      )
      const known = await audit.ask(
        'select seq from event where network = $1 and address && network($2::inet)::inet and at between $3 and $4 order by seq',
        NETWORK,
        asked,
        from,
        to,
      )
      expect(told, `${asked} from ${from!.toISOString()} to ${to!.toISOString()}`).toEqual(known)
      const { lease_id, owner_name } = random.pick(
        log.filter((event) => event.owner_name !== null && event.lease_id !== null),
      )
      expect((await audit.ask('select seq from lease_history($1)', lease_id)).length).toBeGreaterThan(0)
      expect(await audit.ask('select seq from lease_history($1)', lease_id)).toEqual(
        log.filter((event) => event.lease_id === lease_id).map(({ seq }) => ({ seq })),
      )
      expect(await audit.ask('select seq from owner_history($1, $2)', NETWORK, owner_name)).toEqual(
        log.filter((event) => event.owner_name === owner_name).map(({ seq }) => ({ seq })),
      )
    }
    expect(await audit.ask('select * from lease_history($1)', 'no lease')).toEqual([])
    expect(await audit.ask('select * from lease_history($1)', `${NETWORK}/9007199254740991`)).toEqual([])
  })

  test('every event is a sentence', async () => {
    const told = await audit.ask<{
      seq: number
      type: string
      what: string | null
      pool: string | null
      lease_id: string | null
    }>('select seq, type, what, pool, lease_id from event where network = $1 order by seq', NETWORK)
    const poor = told.filter(
      ({ what, type, pool, lease_id }) =>
        what === null ||
        !/^[^ ].*[^ .]\.$/s.test(what) ||
        /null|undefined| {2}|\(\)/.test(what) ||
        (type.startsWith('lease.') && (!what.includes(lease_id!) || !what.includes(pool!))),
    )
    expect(poor).toEqual([])
    expect(new Set(told.map(({ type }) => type)).size).toBeGreaterThan(10)
  })

  test('explain_address agrees with who_had, wherever and whenever', async () => {
    for (let point = 0; point < POINTS; point += 1) {
      const [at, one] = [somewhen(), await somewhere()]
      const [answer, ...steps] = await audit.explain(NETWORK, one, at)
      const [held] = await audit.whoHad(NETWORK, one, at)
      const where = `${one} at ${at.toISOString()}: ${answer!.what}`
      if (held === undefined)
        expect(answer!.what, where).toMatch(/ is (free|never handed out|in no pool)|nothing was known/)
      else {
        expect(answer!.what, where).toContain(`lease ${held.lease_id} is ${held.state}`)
        expect(steps.some(({ seq }) => seq === held.seq)).toBe(true)
      }
      expect(steps.map(({ seq }) => seq)).toEqual(steps.map(({ seq }) => seq).sort((a, b) => a! - b!))
      expect(steps.every((step) => step.at <= at.getTime())).toBe(true)
      expect(answer!.what).not.toMatch(/null| {2}/)
    }
  })
})
