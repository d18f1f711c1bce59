/** The nodes that asked for a lease elsewhere, in its row and in its events: who of them may end it survives a rebuild. */
import { afterAll, expect, test } from 'vitest'
import { rebuild } from '../../src/ledger/rebuild.ts'
import { verify } from '../../src/ledger/verify.ts'
import { connect } from '../../src/postgres/connect.ts'
import { claim, confirm, createPool, owner, release, reserve } from '../support/commands.ts'
import { useTestDatabase } from '../support/database.ts'
import { freshNetwork, useLedger } from '../support/ledger.ts'
import { expectVerified } from '../support/verified.ts'

const database = await useTestDatabase()
const ledger = useLedger({ url: database.serviceUrl })
const reader = await connect({ url: database.adminUrl, applicationName: 'test' })
afterAll(() => reader.end())

const X = '10.0.0.1'
const V = owner({ name: 'v', uid: 'v', incarnation: '1' })
const by = (node: string) => ({ actor: { name: `agent-${node}`, node } })

async function askedFor(network: string, ...nodes: readonly string[]) {
  await ledger.accept(createPool({ name: 'a', cidr: '10.0.0.0/24' }, { network }))
  const tokens = []
  for (const node of nodes) {
    const placement = { node, boot: `${node}-1`, labels: {} }
    const lease = await ledger.take(reserve({ network, owner: V, claims: [claim({ pool: 'a' })], placement }))
    expect(lease.address).toBe(X)
    tokens.push(lease.fencingToken)
  }
  return tokens[0]!
}

async function askedFrom(network: string): Promise<string> {
  const { rows } = await reader.query<{ asked_from: string }>(
    'select asked_from from ipledger.lease where network_id = $1',
    [network],
  )
  return rows[0]!.asked_from
}

test('is kept with everything that happens to the lease, and comes back from the log', async () => {
  const network = await freshNetwork(ledger)
  const token = await askedFor(network, 'na', 'nb')
  await ledger.accept(confirm(token, { network, ...by('nb') }))
  expect(await askedFrom(network)).toBe('nb')
  await expectVerified(database, { network })
  await reader.query('delete from ipledger.lease where network_id = $1', [network])
  await rebuild({ adminUrl: database.adminUrl, network })
  expect(await askedFrom(network)).toBe('nb')
  const refused = await ledger.refuse(release(token, { network, ...by('na') }), 'ILLEGAL_STATE')
  expect(refused.metadata).toMatchObject({ address: X, askedFrom: 'nb' })
  await ledger.accept(release(token, { network, ...by('nb') }))
  const { rows } = await reader.query(
    'select type, settings from ipledger.event where network_id = $1 and address = $2 order by seq',
    [network, X],
  )
  const settings = { askedFrom: ['nb'] }
  expect(rows).toEqual([
    { type: 'lease.reserved', settings: null },
    { type: 'lease.updated', settings },
    { type: 'lease.confirmed', settings },
    { type: 'lease.released', settings },
  ])
  await expectVerified(database, { network })
})

test('of several nodes comes back as several', async () => {
  const network = await freshNetwork(ledger)
  const token = await askedFor(network, 'na', 'nb', 'nc')
  for (const node of ['na', 'nb', 'nc'])
    expect(
      (await ledger.refuse(release(token, { network, ...by(node) }), 'ILLEGAL_STATE')).metadata.askedFrom,
    ).toBe('nb, nc')
  await ledger.accept(release(token, { network }))
})

test('tampered with in the row, it is found and put right', async () => {
  const network = await freshNetwork(ledger)
  await askedFor(network, 'na', 'nb')
  await reader.query("update ipledger.lease set asked_from = '' where network_id = $1", [network])
  const { networks } = await verify({ url: database.serviceUrl, full: true, network })
  expect(networks.flatMap(({ findings }) => findings.map(({ what }) => what))).toEqual(['LEASE_DIFFERS'])
  await rebuild({ adminUrl: database.adminUrl, network })
  expect(await askedFrom(network)).toBe('nb')
})
