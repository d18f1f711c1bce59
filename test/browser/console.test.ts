/** The console in Chromium, on a real service: what a person sees, and what nobody may do to it. */
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { gunzipSync } from 'node:zlib'
import type { Page } from 'playwright-core'
import { afterAll, expect, onTestFinished, test } from 'vitest'
import { createToken } from '../../src/api/tokens.ts'
import { serviceOn, useService } from '../support/service.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'
import { openBrowser } from './chromium.ts'

const AXE = readFileSync(fileURLToPath(import.meta.resolve('axe-core/axe.min.js')), 'utf8')
const HOSTILE = `<img src=x onerror="document.title='owned'">`

const service = await useService()
const { ok } = service.call
await ok('PoolService/CreatePool', { name: 'web', cidr: '10.0.0.0/24', gateway: '10.0.0.1', default: true })
const reserve = async (name: string, more: object = {}) =>
  (await ok('LeaseService/Reserve', { owner: { kind: 'pod', name, node: 'n1', ...more }, confirmed: true }))
    .leases[0]
const first = await reserve('default/first', { labels: { app: 'shop' } })
await reserve(HOSTILE)
await ok('LeaseService/Release', { leaseId: first.leaseId })
const second = await reserve('default/second')
await ok('LeaseService/Quarantine', { address: '10.0.0.99', why: HOSTILE })

const browser = await openBrowser()
afterAll(() => browser.close())

/** A page that fails the test if it asks another host, logs an error, or throws. */
async function open(path = '', { url = service.url } = {}): Promise<Page> {
  const page = await browser.newPage({ viewport: { width: 1600, height: 900 } })
  const wrong: string[] = []
  page.on('request', (asked) => new URL(asked.url()).origin === url || wrong.push(asked.url()))
  page.on('pageerror', (error) => wrong.push(error.message))
  page.on(
    'console',
    (said) => said.type() === 'error' && !/status of 4\d\d/.test(said.text()) && wrong.push(said.text()),
  )
  onTestFinished(async () => {
    await page.close()
    expect(wrong).toEqual([])
  })
  await page.goto(`${url}/${path}`)
  return page
}

const VIEWS = {
  overview: '#/overview/default',
  leases: '#/leases/default',
  address: `#/address/default/${first.address}`,
  attention: '#/attention/default',
  sources: '#/sources/default',
  server: '#/server/default',
  search: '#/search/default/nothing-has-this-name',
}

test('/ is the page for a browser and JSON for others; all is small, packed, and asked again only by its tag', async () => {
  const ask = (path: string, headers: Record<string, string> = {}) => fetch(service.url + path, { headers })
  expect((await ask('/')).headers.get('content-type')).toBe('application/json')
  const page = await ask('/', { accept: 'text/html' })
  expect(page.headers.get('content-security-policy')).toMatch(
    /^default-src 'none'; script-src 'self' 'sha256-[^']+'; style-src 'self'; connect-src 'self'; .*frame-ancestors 'none'$/,
  )
  const text = await page.text()
  const { imports } = JSON.parse(/<script type="importmap">(.*?)<\/script>/.exec(text)![1]!)
  const sizes = { own: 0, libraries: 0 }
  const seen = new Set<string>()
  const load = async (path: string): Promise<void> => {
    if (seen.has(path)) return
    seen.add(path)
    const answer = await ask(path, { 'accept-encoding': 'gzip' })
    expect([path, answer.status, answer.headers.get('content-encoding')]).toEqual([path, 200, 'gzip'])
    sizes[path.includes('/lib/') ? 'libraries' : 'own'] += await packedSize(path)
    const again = await ask(path, { 'if-none-match': answer.headers.get('etag')! })
    expect(again.status).toBe(304)
    const body = await answer.text()
    // Of types nothing is left behind.
    expect(body).not.toMatch(/from '[^']*\/gen\//)
    for (const [, name] of body.matchAll(/(?:from|import) ?["']([^"']+)["']/g))
      await load(imports[name!] ?? new URL(name!, `http://x${path}`).pathname)
  }
  for (const [, path] of text.matchAll(/(?:src|href)="(\/[^"]+)"/g)) await load(path!)
  console.log(`compressed: ${sizes.own} bytes of ours, ${sizes.libraries} of libraries`)
  expect(sizes.own).toBeLessThan(60 * 1024)
  expect(sizes.libraries).toBeLessThan(60 * 1024)
})

/** As it goes over the network. */
async function packedSize(path: string): Promise<number> {
  const { get } = await import('node:http')
  const { promise, resolve, reject } = Promise.withResolvers<Buffer>()
  get(service.url + path, { headers: { 'accept-encoding': 'gzip' } }, async (answer) =>
    resolve(Buffer.concat(await answer.toArray())),
  ).on('error', reject)
  const packed = await promise
  expect(gunzipSync(packed).length).toBeGreaterThan(0)
  return packed.length
}

test('overview: pools as bars with their counts, and what waits', async () => {
  const page = await open()
  const bar = page.getByRole('img', { name: 'web: 2 active, 1 quarantined, 1 cooling, 3 excluded, 249 free' })
  await bar.waitFor()
  await page.getByText('OPERATOR_ONLY').first().waitFor()
})

test('an address: why it is as it is, who had it, and as it was', async () => {
  const page = await open(VIEWS.address)
  await page.getByText(`${first.address} of pool web is free and cooling until`).waitFor()
  await page.getByRole('cell', { name: 'pod default/first' }).waitFor()
  await page.getByText('Evidence').first().click()
  await page.getByText('"type": "lease.released"').waitFor()
  // The oldest entry of its story: its reservation.
  await page.locator('.story a').last().click()
  await page.getByText(`As it was at ${first.version}`).waitFor()
  await page.locator('.answer [data-state="ACTIVE"]').waitFor()
  expect(page.url()).toContain(`#/address/default/${first.address}?at=${first.version}`)
})

test.each([
  ['an address', first.address, `/#/address/default/${first.address}`],
  ['a lease', second.leaseId, `/#/address/default/${second.address}`],
  ['an owner', 'default/second', '/#/leases/default?name=default%2Fsecond'],
  ['a node', 'n1', '/#/leases/default?node=n1'],
  ['a pool', 'web', '/#/leases/default?pool=web'],
])('the box takes %s', async (_, typed, goes) => {
  const page = await open()
  await page.getByRole('heading', { name: 'Overview' }).waitFor()
  await page.keyboard.press('/')
  await page.keyboard.type(typed)
  await page.keyboard.press('Enter')
  await page.waitForURL(service.url + goes)
})

test('a search that cannot be answered says so, and finds again', async () => {
  const page = await open()
  const path = '**/*LivenessService/ListSources'
  await page.route(path, (asked) =>
    asked.fulfill({ status: 429, json: { code: 'unavailable', message: 'the database is away' } }),
  )
  await page.goto(`${service.url}/${VIEWS.search}`)
  await page.getByRole('alert').getByText('the database is away').waitFor()
  expect(await page.getByText('has this name').count()).toBe(0)
  await page.unroute(path)
  await page.getByRole('button', { name: 'Try again' }).click()
  await page.getByText('has this name').waitFor()
})

test('what a caller chose is never markup', async () => {
  const page = await open(VIEWS.leases)
  await page.getByRole('cell', { name: `pod ${HOSTILE}` }).waitFor()
  for (const view of [
    '#/address/default/10.0.0.99',
    VIEWS.attention,
    `#/search/default/${encodeURIComponent(HOSTILE)}`,
  ]) {
    await page.goto(`${service.url}/${view}`)
    await page.getByText(HOSTILE).first().waitFor()
  }
  expect(await page.locator('img').count()).toBe(0)
  expect(await page.title()).not.toBe('owned')
})

const LOOKS = [
  { width: 1600, dark: false },
  { width: 1600, dark: true },
  { width: 400, dark: false },
]

test.each(Object.entries(VIEWS))(
  '%s has no violation of axe, and fits, wide and narrow, light and dark',
  async (_, path) => {
    const page = await open(path)
    await page.locator('main h1').waitFor()
    await page.getByText('Loading…').waitFor({ state: 'detached' })
    await page.evaluate(AXE)
    for (const { width, dark } of LOOKS) {
      await page.setViewportSize({ width, height: 900 })
      await page.emulateMedia({ colorScheme: dark ? 'dark' : 'light' })
      expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(width)
      const { violations } = (await page.evaluate('axe.run()')) as {
        violations: readonly { id: string; nodes: readonly { html: string; failureSummary: string }[] }[]
      }
      expect(violations.map(({ id, nodes }) => [id, nodes[0]!.html, nodes[0]!.failureSummary])).toEqual([])
    }
  },
)

test('a token is asked for, and what its role may not see is said', async () => {
  const file = `${temporaryDirectory()}/tokens`
  const auditor = createToken({ file, name: 'reader', role: 'auditor' })
  const agent = createToken({ file, name: 'n1', role: 'agent', node: 'n1' })
  const guarded = await serviceOn(service, { IPLEDGER_TOKENS: file })
  onTestFinished(() => guarded.stop())
  const page = await open(VIEWS.server, { url: guarded.url })
  const signIn = async (token: string) => {
    await page.getByLabel('Token').fill(token)
    await page.getByRole('button', { name: 'Sign in' }).click()
  }
  await signIn('ipl_wrong')
  await page.getByRole('alert').waitFor()
  await signIn(auditor)
  await page.getByText('reader, auditor').waitFor()
  // Kept in memory only.
  await page.reload()
  await page.getByLabel('Keep it').check()
  await signIn(agent)
  await page.getByText('n1, agent').waitFor()
  await page.reload()
  await page.getByText('n1, agent').waitFor()
  await page.goto(`${guarded.url}/${VIEWS.sources}`)
  await page.getByRole('alert').getByText('PERMISSION_DENIED').waitFor()
})
