/** `ipledger audit`, and `verify --seals`, as an auditor types them. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { expireUnconfirmed } from '../../src/jobs/expire-unconfirmed.ts'
import { sealLog } from '../../src/jobs/seal-log.ts'
import { createVerifySuspects } from '../../src/jobs/verify-suspects.ts'
import { sealNext } from '../../src/ledger/seals.ts'
import { fenceNode, reap, updatePool } from '../support/commands.ts'
import { useTestDatabase, withClient } from '../support/database.ts'
import { INTERVAL } from '../support/intake.ts'
import { GONE, listedAs, MINUTE, SECOND, seenThenMissed, useTruth, workload } from '../support/truth.ts'
import { ipledger, type Service, startService, stopService } from './service.ts'

// Each command of this process listens for the signals that end it.
process.setMaxListeners(50)
const database = await useTestDatabase()
const truth = await useTruth(database)
const env = { DATABASE_URL: database.adminUrl }
const directory = mkdtempSync(join(tmpdir(), 'ipledger-test-'))
const file = (name: string) => join(directory, name)
let service: Service
let network: string
/** Addresses by how their lease ended. */
const addresses: Record<string, string> = {}

const run = (...args: readonly string[]) => ipledger(service, args, env)
const tamper = (text: string, values: readonly unknown[]) =>
  withClient(database.adminUrl, (admin) => admin.query(text, [...values]))

/** One lease for each way in which it may be taken back. */
beforeAll(async () => {
  service = await startService(env, { args: ['--no-worker'] })
  network = await truth.network()
  await truth.source(network, 'agent')
  const absent = await truth.lease(network, workload('absent'))
  const fenced = await truth.lease(network, workload('fenced'), {
    placement: { node: 'n9', boot: 'b9', labels: {} },
  })
  const late = await truth.lease(network, workload('late'), { confirmed: false, confirmWithinMs: SECOND })
  const operators = await truth.lease(network, workload('operators'))
  await truth.past(network, 10 * MINUTE)
  const listed = listedAs(absent.address, workload('absent'))
  await truth.watch(network, 'agent', seenThenMissed([listed], 3), { endedAgo: INTERVAL })
  const suspects = createVerifySuspects({ stayMs: 0 })
  await truth.run(suspects)
  await truth.past(network, INTERVAL)
  const { asks } = await truth.watch(network, 'agent', [[]], { endedAgo: 0 })
  await truth.answer(network, 'agent', asks, GONE)
  await truth.ledger.accept(fenceNode('n9', 'b9', { network }))
  await truth.run(suspects)
  await truth.run(expireUnconfirmed)
  await truth.ledger.accept(reap(operators.fencingToken, operators.version, { network, cause: 'Reap' }))
  Object.assign(addresses, {
    PROVEN_ABSENT: absent.address,
    FENCED: fenced.address,
    NEVER_CONFIRMED: late.address,
    Reap: operators.address,
  })
})
afterAll(async () => {
  await stopService(service)
  rmSync(directory, { recursive: true, force: true })
})

type Rejudged = Readonly<{
  byCause: Readonly<Record<string, number>>
  judged: number
  byWord: number
  unreadable: readonly Readonly<Record<string, unknown>>[]
  disagreeing: readonly Readonly<Record<string, unknown>>[]
  differing: readonly Readonly<Record<string, unknown>>[]
}>

async function rejudged(...args: readonly string[]): Promise<Rejudged & { readonly code: number | null }> {
  const { code, stdout, stderr } = await run('audit', 'rejudge', '--network', network, '--json', ...args)
  expect(stderr).toBe('')
  return { code, ...(JSON.parse(stdout) as Rejudged) }
}

test('every reap is judged again over the API, and comes to what was done', async () => {
  expect(await rejudged()).toMatchObject({
    code: 0,
    byCause: { PROVEN_ABSENT: 1, FENCED: 1, NEVER_CONFIRMED: 1, Reap: 1 },
    judged: 3,
    byWord: 1,
    unreadable: [],
    disagreeing: [],
    differing: [],
  })
  const { code, stdout } = await run('audit', 'rejudge', '--network', network)
  expect(code).toBe(0)
  expect(stdout).toMatch(/by the policy then +all the same/)
  expect(stdout).toMatch(/by today's policy +all the same/)
})

test('what another policy would have kept is listed, and is no failure', async () => {
  const { code, differing } = await rejudged('--policy', 'misses=5,confirmGraceMs=3600000')
  expect(code).toBe(0)
  expect(differing.map(({ address, verdict }) => `${address} ${verdict}`)).toEqual([
    `${addresses.PROVEN_ABSENT} keep`,
    `${addresses.NEVER_CONFIRMED} keep`,
  ])
  expect(differing[0]).toMatchObject({
    cause: 'PROVEN_ABSENT',
    because: 'missed by agent in 4 of 5 counted snapshots',
  })
  const { stdout } = await run('audit', 'rejudge', '--network', network, '--policy', 'misses=5')
  expect(stdout).toMatch(/by misses=5 +1 would not have been done/)
  expect(stdout).toContain('missed by agent in 4 of 5 counted snapshots')

  await truth.ledger.accept(updatePool('web', { reapPolicy: { misses: 6 } }, { network }))
  const today = await rejudged()
  expect(today.differing.map(({ address }) => address)).toEqual([addresses.PROVEN_ABSENT])
  expect(today).toMatchObject({ code: 0, disagreeing: [] })
  await truth.ledger.accept(updatePool('web', { reapPolicy: null }, { network }))

  const seq = Number(today.differing[0]!.seq)
  expect(await rejudged('--from', String(seq), '--to', String(seq))).toMatchObject({ judged: 1 })
  const before = await rejudged('--to', String(seq - 1))
  const after = await rejudged('--from', String(seq + 1))
  expect(before.judged + after.judged).toBe(2)
  for (const [policy, said] of [
    ['tomorrow', 'It is today, or settings as misses=5'],
    ['patience=3', 'It is today, or settings as misses=5'],
    ['misses=many', 'It is today, or settings as misses=5'],
  ] as const) {
    const refused = await run('audit', 'rejudge', '--policy', policy)
    expect([refused.code, refused.stderr]).toEqual([1, expect.stringContaining(said)])
  }
})

test('digests and lines are exported, hold, and tell later what was altered', async () => {
  const { code, stdout } = await run('audit', 'seals', '--network', network)
  expect([code, stdout]).toEqual([0, 'no seals\n'])
  // Small ones, as a network has that is not busy.
  while ('sealed' in (await sealNext(truth.connections, network, { events: 4, afterMs: 0 })));
  expect(await truth.run(sealLog), 'nothing is left').toEqual({ seals: 0, sealed: 0, stopped: 0 })

  const table = await run('audit', 'seals', '--network', network)
  expect(table.stdout).toMatch(/^NETWORK +FIRST +LAST +EVENTS +SEALED +DIGEST\n/)
  const digests = await run('audit', 'seals', '--json')
  writeFileSync(file('digests'), digests.stdout)
  const exported = await run('audit', 'export', network)
  expect([exported.code, exported.stderr]).toEqual([0, ''])
  writeFileSync(file('log'), exported.stdout)
  const whole = await run('audit', 'check', file('log'), '--against', file('digests'))
  expect([whole.code, whole.stderr]).toEqual([0, ''])
  expect(whole.stdout).toMatch(/findings +none/)
  const fine = await run('verify', '--network', network, '--seals', '--against', file('digests'))
  expect(fine.stdout).toMatch(/SEALED +KEPT DIGESTS +FINDINGS/)
  expect([fine.code, fine.stderr]).toEqual([0, ''])

  const { rows } = await tamper(
    `update ipledger.event set evidence = jsonb_set(evidence, '{proof,sources,0,misses}', '[]')
      where network_id = $1 and type = 'lease.reaped' and cause = 'PROVEN_ABSENT' returning seq`,
    [network],
  )
  const { seq } = rows[0] as { readonly seq: number }
  const found = await run('verify', '--network', network, '--seals')
  expect(found.code).toBe(1)
  expect(found.stdout).toContain(`${network}: EVENT_ALTERED: event ${network}/${seq} is not what was sealed`)
  const altered = JSON.parse((await run('verify', '--network', network, '--seals', '--json')).stdout)
  expect(altered.networks[0].findings[0]).toMatchObject({
    what: 'EVENT_ALTERED',
    seq,
    found: expect.stringMatching(/^\["/),
  })
  expect((await run('verify', '--network', network, '--against', file('digests'))).stdout).toContain(
    'EXPORT_DIFFERS',
  )
  expect(await rejudged()).toMatchObject({
    code: 1,
    disagreeing: [{ seq, verdict: 'keep', because: 'missed by agent in 0 of 3 counted snapshots' }],
  })

  const changed = await run('audit', 'export', network)
  writeFileSync(file('changed'), changed.stdout)
  const refused = await run('audit', 'check', file('changed'))
  expect(refused.code).toBe(1)
  expect(refused.stdout).toContain(`EVENT_ALTERED: event ${network}/${seq} is not what was sealed`)
  expect(JSON.parse((await run('audit', 'check', file('changed'), '--json')).stdout)).toMatchObject({
    network,
    findings: [{ what: 'EVENT_ALTERED', seq }],
  })

  await tamper('delete from ipledger.event where network_id = $1 and seq between 3 and 6', [network])
  expect((await run('verify', '--network', network, '--seals')).stdout).toContain(
    `EVENTS_DELETED: events ${network}/3 to 6 are gone`,
  )
})

test('what cannot be read is said in a sentence', async () => {
  writeFileSync(file('empty'), '')
  writeFileSync(file('other'), '{"seal":{}}\n')
  for (const [args, said] of [
    [['audit', 'check', file('nowhere')], 'no such file'],
    [['audit', 'check', file('empty')], 'The file is empty.'],
    [['audit', 'check', file('other')], 'Line 1 of the file is no whole seal.'],
    [['audit', 'check', file('log'), '--against', file('empty')], 'has no digest of a seal.'],
    [['verify', '--against', file('nowhere')], 'no such file'],
    [['audit', 'export', 'nowhere'], 'There is no event of network nowhere.'],
  ] as const) {
    const { code, stderr } = await run(...args)
    expect([code, stderr]).toEqual([1, expect.stringMatching(/^ipledger: [^\n]+\n$/)])
    expect(stderr).toContain(said)
  }
})
