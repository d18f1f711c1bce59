/**
 * Every screen but the live one, of a network with very many leases, in a /8 and in a /48: what a person looks for is there. How long each takes is printed, beside
 * the same screen of a network without leases; figures are of `IPLEDGER_TEST_LEASES=1000000`, which takes some minutes.
 */
import { afterAll, expect, test } from 'vitest'
import { holderOf, POOL, writeHistory } from '../../bench/history.ts'
import { loadedImage } from '../../src/ledger/ledger.ts'
import { SAMPLE_POOLS, sizesOf } from '../../src/ledger/read-pools.ts'
import { withClient } from '../support/database.ts'
import { useService } from '../support/service.ts'
import { openBrowser } from './chromium.ts'

const LEASES = Number(process.env.IPLEDGER_TEST_LEASES ?? 20_000)
const WITHIN_MS = 180_000 + LEASES
const held = LEASES.toLocaleString('en-US')
const last = { ...holderOf(LEASES * 1.05 - 1).owner, node: holderOf(LEASES * 1.05 - 1).node }

const service = await useService()
const { ok } = service.call
const browser = await openBrowser()
afterAll(() => browser.close())
await ok('NetworkService/CreateNetwork', { name: 'empty' })
await ok('PoolService/CreatePool', { network: 'empty', name: POOL, cidr: '10.0.0.0/8' })

test.each([
  { network: 'eight', cidr: '10.0.0.0/8', some: '10.0.7.0/24' },
  { network: 'fortyeight', cidr: 'fd00:1::/48', some: 'fd00:1::700/120' },
])('$network: each screen of very many leases', { timeout: WITHIN_MS }, async ({ network, cidr, some }) => {
  await writeHistory(service.database.adminUrl, {
    network,
    cidr,
    addresses: LEASES * 1.1,
    held: LEASES,
    reserves: LEASES * 1.05,
    isActive: true,
  })
  const image = await loadedImage(service.ledger, network)
  // As the job does once a minute.
  await withClient(service.database.adminUrl, (admin) =>
    admin.query(SAMPLE_POOLS, [network, sizesOf(image!.pools.values())]),
  )
  const [lease] = (await ok('LeaseService/ListLeases', { network, ownerName: last.name })).leases
  const at = `?at=${LEASES / 2}`
  const name = encodeURIComponent(last.name)
  /** What each view shows of this network, and of one without leases. */
  const views: Readonly<Record<string, readonly [view: string, shown: string, ofNone: string]>> = {
    overview: ['overview/*', `[aria-label^="pool: ${held} active"]`, '[aria-label^="pool: "]'],
    pool: [`pool/*/${POOL}`, '.map a', '.map'],
    'its past': [`pool/*/${POOL}${at}`, 'text=one of', ''],
    'a /24 of it': [`pool/*/${encodeURIComponent(some)}`, '.map a', '.hint'],
    address: [`address/*/${lease.address}`, `text=${last.name}`, ''],
    leases: ['leases/*', 'role=cell[name=/bench/]', 'text=No leases.'],
    'of a node': [`leases/*?node=${last.node}`, `role=cell[name="${last.node}"]`, 'text=No leases.'],
    owner: [`owner/*/${name}`, `text=${lease.address}`, 'text=Nobody of this name'],
    lease: [`lease/*/${encodeURIComponent(lease.leaseId)}`, `text=${last.name}`, ''],
    attention: ['attention/*', '.tools time', '.tools time'],
    events: ['events/*', 'role=cell[name=/lease/]', 'role=cell[name=/pool.created/]'],
    sources: ['sources/*', 'text=No sources', 'text=No sources'],
    search: ['search/*/bench', 'text=bench/held-', 'text=has this name'],
    'search for nothing': ['search/*/nothing', 'text=has this name', 'text=has this name'],
    server: ['server/*', `text=${network}`, 'text=empty'],
  }
  const page = await browser.newPage({ viewport: { width: 1600, height: 900 } })
  for (const [what, [view, ...shown]] of Object.entries(views)) {
    const times: number[] = []
    for (const [index, of] of [network, 'empty'].entries()) {
      if (shown[index] === '') continue
      await page.goto(`${service.url}/#/live/${of}`)
      const began = performance.now()
      await page.goto(`${service.url}/#/${view.replace('*', of)}`)
      const looked = page.locator('main').locator(shown[index]!).first()
      // A locator that waits looks every 500 ms in the end: too seldom for a figure.
      await expect.poll(() => looked.isVisible(), { interval: 20, timeout: 30_000 }).toBe(true)
      times.push(performance.now() - began)
    }
    console.log(network, what.padEnd(20), ...times.map((ms) => `${ms.toFixed(0).padStart(6)} ms`))
  }
  await page.close()
})
