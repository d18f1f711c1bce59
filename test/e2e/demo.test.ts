/** `ipledger demo`: what it tells is what its database says. */
import { join } from 'node:path'
import { expect, test, vi } from 'vitest'
import { openDatabase } from '../../src/postgres/database.ts'
import { createLogger } from '../../src/telemetry.ts'
import { withClient } from '../support/database.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'
import { processesOf, startProcess } from './service.ts'

// It makes and starts a PostgreSQL of its own.
vi.setConfig({ testTimeout: 90_000 })

type EventRow = Readonly<{
  seq: number
  type: string
  actor: string
  cause: string
  address: string
  owner_name: string
  quarantine_reason: string | null
  fencing_token: number
  evidence: Readonly<{ proof?: Proof }> | null
}>
type Proof = Readonly<{
  sources: readonly Readonly<{
    source: string
    misses: readonly unknown[]
    lookup: Readonly<{ answer: string }>
  }>[]
  policy: Readonly<{ misses: number; minimumAgeMs: number }>
}>

const EVENTS = `
  select seq, type, actor, cause, host(address) as address, owner_name, quarantine_reason, fencing_token, evidence
    from ipledger.event where network_id = 'default' and address is not null order by seq`

test('MIR-1238: what is told of each address is in its log', async () => {
  const directory = join(temporaryDirectory(), 'data')
  const { code, stdout, stderr } = await startProcess(['demo', '--directory', directory], {}).finished
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
  expect(processesOf(directory)).toEqual([])

  const log = createLogger('error')
  const database = await openDatabase(
    { databaseUrl: undefined, databaseAdminUrl: undefined, directory },
    { log, embedded: 'own' },
  )
  const { events, held, source } = await withClient(database.serviceUrl, async (client) => ({
    events: (await client.query<EventRow>(EVENTS)).rows,
    held: (await client.query(`select host(address) as address, state, owner_name from ipledger.lease`)).rows,
    source: (await client.query(`select warm, counted from ipledger.source`)).rows[0],
  })).finally(() => database.stop())
  const of = (address: string) => events.filter((event) => event.address === address)
  const story = of('10.8.0.2')

  // Kept while the index did not name it, released by mistake, held while it was live, reaped on proof, handed on.
  expect(story.map(({ type, owner_name }) => `${type} ${owner_name}`)).toEqual([
    'lease.reserved api',
    'lease.confirmed api',
    'lease.released api',
    'lease.quarantined api',
    'lease.reaped api',
    'lease.reserved worker-2',
    'lease.confirmed worker-2',
  ])
  expect(story[2]).toMatchObject({ actor: 'clean-up' })
  expect(story[3]).toMatchObject({ quarantine_reason: 'RELEASED_BUT_LIVE' })
  expect(story[5]!.fencing_token).toBeGreaterThan(story[3]!.fencing_token)
  for (const [address, name] of [
    ['10.8.0.2', 'api'],
    ['10.8.0.4', 'batch'],
  ] as const) {
    const reaped = of(address).find(({ type }) => type === 'lease.reaped')!
    expect(reaped).toMatchObject({ cause: 'PROVEN_ABSENT', owner_name: name })
    const { sources, policy } = reaped.evidence!.proof!
    expect(policy).toMatchObject({ misses: 3, minimumAgeMs: 1_000 })
    expect(sources.map(({ source, lookup }) => [source, lookup.answer])).toEqual([['orchestrator', 'gone']])
    expect(sources[0]!.misses.length).toBeGreaterThanOrEqual(3)
    const told = new RegExp(
      `^ +${address.replaceAll('.', '\\.')} +sandbox ${name} +orchestrator +[\\d, ]+ +gone +`,
      'm',
    )
    expect(stdout).toMatch(told)
  }
  expect(of('10.8.0.77').map(({ type }) => type)).toEqual(['lease.adopted'])
  expect(held).toEqual(
    expect.arrayContaining([
      { address: '10.8.0.2', state: 'ACTIVE', owner_name: 'worker-2' },
      { address: '10.8.0.3', state: 'ACTIVE', owner_name: 'web' },
      { address: '10.8.0.5', state: 'ACTIVE', owner_name: 'worker' },
      { address: '10.8.0.77', state: 'ACTIVE', owner_name: 'legacy' },
    ]),
  )
  expect(held).toHaveLength(4)

  // The last table is the log, line by line.
  const [, table] = stdout.split('$ ipledger events --address 10.8.0.2\n')
  const lines = table!.split('\n').filter((line) => /^ +\d/.test(line))
  expect(lines.slice(0, story.length).map((line) => line.trim().split(/ {2,}/)[0])).toEqual(
    story.map(({ seq }) => String(seq)),
  )
  for (const [at, { type, actor }] of story.entries())
    expect(lines[at]).toMatch(new RegExp(`${type} +${actor} `))

  // Lists that were told are those the source is known for.
  expect(source.warm).toBe(true)
  expect(stdout.match(/^ +list \d+ .* counts$/gm)).toHaveLength(source.counted)
  expect(stdout).toMatch(
    /\$ ipledger verify --full\n +NETWORK +HEAD .*FINDINGS\n +default +(\d+) +0 +\1 .*none\n/,
  )
  expect(stdout).toContain('At no time did two sandboxes run with one address.')
})

test('a directory that is in use is left alone', async () => {
  const { code, stderr } = await startProcess(['demo', '--directory', '/'], {}).finished
  expect(code).toBe(1)
  expect(stderr).toBe('ipledger: / is not empty: the demo keeps its data in a directory of its own.\n')
})
