/**
 * The tables as SQL folds them from the log are the image that `evolve` made, written as the loop writes it; whatever was
 * rebuilt is the same again.
 */
import { expect, onTestFinished, test } from 'vitest'
import { FOLDS } from '../../src/ledger/fold.ts'
import { rebuildNetwork } from '../../src/ledger/rebuild.ts'
import { verifyNetwork } from '../../src/ledger/verify.ts'
import { connect } from '../../src/postgres/connect.ts'
import { NODES } from '../core/node-rows.ts'
import { useOwnDatabase } from '../support/database.ts'
import { walk } from '../support/random-walk.ts'
import { NETWORK, played, storeScene } from '../support/stored-scene.ts'

const SEEDS = [1, 6, 9]
const STEPS = 600

test.each(SEEDS)(
  'seed %i: verify finds nothing in what the loop writes, and rebuild writes the same',
  async (seed) => {
    const database = await useOwnDatabase()
    const admin = await connect({ url: database.adminUrl, applicationName: 'test' })
    onTestFinished(() => admin.end())
    const scene = await walk(seed, STEPS)
    const digest = await storeScene(admin, scene)
    expect(new Set(scene.events.map(({ type }) => type)).size).toBeGreaterThan(12)
    const dump = async () => {
      const rows: unknown[] = []
      for (const table of Object.keys(FOLDS))
        rows.push((await admin.query(`select to_jsonb(t) as row from ipledger.${table} t order by 1`)).rows)
      return rows
    }
    const before = await dump()
    const verified = await verifyNetwork(admin, NETWORK, { from: 0 })
    expect(verified).toMatchObject({
      complete: true,
      findings: [],
      omitted: 0,
      digest,
      verifiedSeq: scene.image.head,
    })
    const secret = async () => (await admin.query('select secret from ipledger.network_lock')).rows
    const [kept] = await secret()
    expect(kept.secret).toHaveLength(32)
    await rebuildNetwork(admin, NETWORK)
    expect(await secret()).toEqual([kept])
    await admin.query(
      'truncate ipledger.lease, ipledger.pool, ipledger.network, ipledger.source, ipledger.sighting, ipledger.network_lock',
    )
    const rebuilt = await rebuildNetwork(admin, NETWORK)
    expect(rebuilt).toMatchObject({
      head: scene.image.head,
      rows: { lease: scene.image.records.size, pool: scene.image.pools.size, network: 1 },
    })
    expect(await dump()).toEqual(before)
    expect((await verifyNetwork(admin, NETWORK, { from: 0 })).findings).toEqual([])
  },
)

test('what is listed, vanishes, rests and is kept for nobody is folded alike', async () => {
  const database = await useOwnDatabase()
  const admin = await connect({ url: database.adminUrl, applicationName: 'test' })
  onTestFinished(() => admin.end())
  let sightings = 0
  for (const [at, { name, given, when }] of NODES.entries()) {
    const network = `net-${at}`
    const scene = played(...given, when)
    sightings += scene.image.sightings.size
    await storeScene(admin, scene, network)
    const { findings } = await verifyNetwork(admin, network, { from: 0 })
    expect(findings, name).toEqual([])
  }
  expect(sightings).toBeGreaterThan(20)
})
