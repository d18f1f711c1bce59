/**
 * A standby is promoted that lacks the last commits (12.4: failover-loses-acknowledged-commit), and the ledger goes on with
 * it without a restart, because the address it connects to has moved.
 */
import { afterAll, expect, onTestFinished, test } from 'vitest'
import type { Reserve } from '../../src/core/command.ts'
import type { LedgerOptions } from '../../src/ledger/open.ts'
import { connect } from '../../src/postgres/connect.ts'
import { openDatabase } from '../../src/postgres/database.ts'
import { createLogger } from '../../src/telemetry.ts'
import { claim, createNetwork, createPool, owner, release, reserve } from '../support/commands.ts'
import { openTestLedger, type TestLedger } from '../support/ledger.ts'
import { startProxy } from '../support/proxy.ts'
import { startTestServer } from '../support/server.ts'
import { startStandby } from '../support/standby.ts'
import { expectVerified } from '../support/verified.ts'

const ERA = 2 ** 40
const primary = await startTestServer()
afterAll(() => primary.stop())

function any(network: string, name: string): Reserve {
  return reserve({ network, owner: owner({ name }), claims: [claim({ pool: 'a' })] })
}

async function erasOf(url: string, network: string) {
  const admin = await connect({ url, applicationName: 'test' })
  const { rows } = await admin.query(
    `select seq, cause, (settings ->> 'recovering')::boolean as recovering from ipledger.event
      where network_id = $1 and type = 'era.begun' order by seq`,
    [network],
  )
  await admin.end()
  return rows
}

test('12.4: commits are lost with the primary: a new era on the promoted standby, and back on the old primary another', async () => {
  const admin = await connect({ url: primary.url('postgres'), applicationName: 'test' })
  await admin.query('create database ledger')
  await admin.end()
  const { serviceUrl } = await openDatabase(
    { databaseUrl: primary.url('ledger'), databaseAdminUrl: undefined, directory: '' },
    { log: createLogger('warn'), embedded: 'own' },
  )
  const replication = await startProxy(primary.url('postgres'))
  onTestFinished(() => replication.close())
  const standby = await startStandby(primary, replication.url)
  onTestFinished(() => standby.stop())
  const moving = await startProxy(serviceUrl)
  const open = (options: Partial<LedgerOptions> = {}): TestLedger => {
    const opened = openTestLedger({ url: moving.url, connections: 2, ...options })
    onTestFinished(() => opened.close())
    return opened
  }
  onTestFinished(() => moving.close())
  const there = (server: { url: (database: string) => string }) =>
    serviceUrl.replace(/@[^/]*/, `@${new URL(server.url('ledger')).host}`)

  const ledger = open()
  for (const network of ['lost', 'whole', 'declared']) {
    await ledger.accept(createNetwork(network))
    await ledger.accept(createPool({ name: 'a', cidr: '10.0.0.0/24' }, { network }))
    await ledger.take(any(network, 'before'))
  }
  await standby.caughtUp()
  replication.down(true)
  const lost = await ledger.take(any('lost', 'lost'))
  expect(lost).toMatchObject({ address: '10.0.0.2', fencingToken: 4 })

  moving.retarget(there(standby))
  const refused = await ledger.refuse(any('whole', 'x'), 'DATABASE_UNAVAILABLE', {
    deadline: performance.now() + 1_500,
  })
  expect(refused.message).toContain('read-only standby')

  await standby.promote()
  // Somebody who quotes the lost lease before anybody else has asked is told by the era that begins first.
  await ledger.refuse(release(lost.fencingToken, { network: 'lost' }), 'LEASE_NOT_FOUND')
  await ledger.refuse(any('lost', 'y'), 'NETWORK_RECOVERING')
  await ledger.refuse(any('whole', 'y'), 'NETWORK_RECOVERING')
  const declared = await open({ commitsAreNeverLost: true }).take(any('declared', 'y'))
  expect(declared).toMatchObject({ address: '10.0.0.2', fencingToken: ERA + 1 })
  const promoted = standby.url('ledger')
  expect(await erasOf(promoted, 'lost')).toEqual([{ seq: ERA, cause: 'EVENTS_LOST', recovering: true }])
  expect(await erasOf(promoted, 'whole')).toEqual([{ seq: ERA, cause: 'FAILED_OVER', recovering: true }])
  expect(await erasOf(promoted, 'declared')).toEqual([{ seq: ERA, cause: 'FAILED_OVER', recovering: false }])
  await expectVerified({ serviceUrl: there(standby) })

  // The old primary is the life it was, and knows nothing of the era in between; this process does.
  moving.retarget(there(primary))
  await ledger.refuse(any('whole', 'z'), 'NETWORK_RECOVERING')
  expect(await erasOf(primary.url('ledger'), 'whole')).toEqual([
    { seq: 2 * ERA, cause: 'EVENTS_LOST', recovering: true },
  ])
  await expectVerified({ serviceUrl: there(primary) })
}, 60_000)
