/** The console in Chromium, on a real service: what a person sees, and what nobody may do to it. */
import { execFileSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { gunzipSync } from 'node:zlib'
import type { Page } from 'playwright-core'
import { afterAll, expect, onTestFinished, test } from 'vitest'
import { createToken } from '../../src/api/tokens.ts'
import { EVENT_TYPES } from '../../src/core/event.ts'
import { serve, stop } from '../e2e/commands.ts'
import { withClient } from '../support/database.ts'
import { freePort } from '../support/free-port.ts'
import { rpc } from '../support/rpc.ts'
import { complaints } from '../support/runbooks.ts'
import { startTestServer } from '../support/server.ts'
import { serviceOn, useService } from '../support/service.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'
import { waitFor } from '../support/wait-for.ts'
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
const second = await reserve('default/second', { labels: { app: 'shop' } })
await ok('LeaseService/Quarantine', { address: '10.0.0.99', why: HOSTILE })
await ok('NetworkService/CreateNetwork', { name: 'long' })
await ok('PoolService/CreatePool', { network: 'long', name: 'p', cidr: '10.9.0.0/24' })
for (let times = 0; times < 200; times += 1)
  await ok('PoolService/UpdatePool', { network: 'long', name: 'p', labels: { times: String(times) } })
const network = 'wide'
await ok('NetworkService/CreateNetwork', { name: network })
await ok('PoolService/CreatePool', { network, name: 'six', cidr: 'fd00::/64' })
await ok('PoolService/CreatePool', { network, name: 'large', cidr: '10.64.0.0/10' })
const [large, six] = (await ok('LeaseService/Reserve', { network, owner: { kind: 'pod', name: 'far' } }))
  .leases
await ok('LivenessService/RegisterSource', { id: 'eyes', sight: { node: 'n9', ownerKinds: ['pod'] } })
const { sequence, head, begunAt } = await ok('LivenessService/BeginSnapshot', { source: 'eyes' })
const entries = [{ address: '10.0.0.200', kind: 'pod', name: 'stray' }]
const list = { source: 'eyes', epoch: 'e1', sequence, head, begunAt, complete: true, entries }
await ok('LivenessService/ReportSnapshot', list)

const browser = await openBrowser()
afterAll(() => browser.close())

/** A page that fails the test if it asks another host, logs an error, or throws. */
async function open(path = '', { url = service.url, expected = /status of 4\d\d/ } = {}): Promise<Page> {
  const page = await browser.newPage({ viewport: { width: 1600, height: 900 } })
  const wrong: string[] = []
  page.on('request', (asked) => new URL(asked.url()).origin === url || wrong.push(asked.url()))
  page.on('pageerror', (error) => wrong.push(error.message))
  page.on(
    'console',
    (said) => said.type() === 'error' && !expected.test(said.text()) && wrong.push(said.text()),
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
  live: '#/live/default',
  events: '#/events/default',
  address: `#/address/default/${first.address}`,
  pool: '#/pool/default/web',
  block: '#/pool/wide/large',
  six: '#/pool/wide/six',
  lease: `#/lease/default/${encodeURIComponent(second.leaseId)}`,
  owner: '#/owner/default/default%2Fsecond',
  source: '#/sources/default/eyes',
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
    for (const [, name] of body.matchAll(/(?:from|import) ?["']([^"'\s]+)["']/g))
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
  await page.getByText(`The sentence above describes number ${first.version}`).waitFor()
  await page.locator('.answer [data-state="ACTIVE"]').waitFor()
  expect(page.url()).toContain(`#/address/default/${first.address}?at=${first.version}`)
})

test.each([
  ['an address', first.address, `/#/address/default/${first.address}`],
  ['a lease', second.leaseId, `/${VIEWS.lease}`],
  ['an owner', 'default/second', `/${VIEWS.owner}`],
  ['a source', 'eyes', `/${VIEWS.source}`],
  ['a label', 'app=shop', '/#/leases/default?label=app%3Dshop'],
  ['a CIDR', '10.0.0.0/28', '/#/pool/default/10.0.0.0%2F28'],
  ['a node', 'n1', '/#/leases/default?node=n1'],
  ['a pool', 'web', '/#/pool/default/web'],
])('the box takes %s', async (_, typed, goes) => {
  const page = await open()
  // The page listens for keys from then on.
  await page.locator('h1:focus').waitFor()
  await page.keyboard.press('/')
  await page.keyboard.type(typed)
  await page.keyboard.press('Enter')
  await page.waitForURL(service.url + goes)
})

test('a search that cannot be answered says so, and finds again', async () => {
  const page = await open()
  const path = '**/*AuditService/Find'
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

test('a view that is asked for while the page is drawn for the first time is shown', async () => {
  const page = await browser.newPage()
  onTestFinished(() => page.close())
  await page.addInitScript(`addEventListener('load', () => { location.hash = '${VIEWS.server}' })`)
  await page.goto(`${service.url}/${VIEWS.leases}`)
  await page.getByRole('heading', { name: 'Server' }).waitFor()
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

test('a copied command says the same to a shell, whatever a caller chose', async () => {
  const query = `name=${encodeURIComponent("x'; y $(z)")}&state=ACTIVE`
  for (const [view, command] of [
    ['leases', 'ipledger lease list'],
    ['live', 'ipledger watch'],
  ] as const) {
    const page = await open(`${VIEWS[view]}?${query}`)
    const copied = await page.getByRole('button', { name: 'Copy as command' }).getAttribute('title')
    expect(copied).toBe(`${command} --network default --name 'x'\\''; y $(z)' --state ACTIVE`)
    const words = wordsOf(copied!)
    expect(words).toContain("x'; y $(z)")
    expect(complaints(words.slice(1))).toEqual([])
  }
})

/** As a shell takes them. */
const wordsOf = (command: string): readonly string[] =>
  execFileSync('sh', ['-c', `printf '%s\\n' ${command}`], { encoding: 'utf8' })
    .split('\n')
    .slice(0, -1)

const LOOKS = [
  { width: 1600, dark: false },
  { width: 1600, dark: true },
  { width: 400, dark: false },
]

async function expectAccessible(page: Page): Promise<void> {
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
}

test.each(Object.entries(VIEWS))(
  '%s has no violation of axe, and fits, wide and narrow, light and dark',
  async (_, path) => {
    const page = await open(path)
    await page.locator('main h1').waitFor()
    await page.getByText('Loading…').waitFor({ state: 'detached' })
    const command = (await page.getByRole('button', { name: 'Copy as command' }).getAttribute('title'))!
    expect(complaints(wordsOf(command).slice(1))).toEqual([])
    await expectAccessible(page)
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
  const curl = await page.getByRole('button', { name: 'Copy as curl' }).getAttribute('title')
  expect(curl).toContain('-H "authorization: Bearer $IPLEDGER_TOKEN"')
  // It sees, and cannot act.
  await page.goto(`${guarded.url}/${VIEWS.lease}`)
  await page.getByText('ipledger reap').waitFor()
  await page.getByText('not with the role auditor').waitFor()
  expect(await page.getByRole('button', { name: 'Reap' }).count()).toBe(0)
  await page.goto(`${guarded.url}/${VIEWS.server}`)
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
  await page.goto(`${guarded.url}/${VIEWS.live}`)
  await watching(page)
  expect(await page.getByRole('textbox', { name: 'node' }).inputValue()).toBe('n1')
  await reserve('seen/elsewhere', { node: 'n2' })
  await reserve('seen/here')
  await page.getByRole('cell', { name: 'pod seen/here' }).waitFor()
  expect(await owners(page)).toEqual(['pod seen/here'])
  await button(page, 'Pause').click()
  writeFileSync(file, readFileSync(file, 'utf8').split('\n')[0]!)
  const asAgent = rpc(guarded.url, { token: agent })
  const isRefused = async () => (await asAgent('ServerService/GetServer', {})).status === 401
  await waitFor(isRefused, { what: 'the token to be refused' })
  await button(page, 'Resume').click()
  await page.getByRole('alert').getByText('UNAUTHENTICATED').waitFor()
})

const status = (page: Page) => page.getByRole('status')
const watching = (page: Page) => status(page).getByText('Watching.').waitFor()
const button = (page: Page, name: string) => page.getByRole('button', { name })
/** Owners of the entries that are shown, the newest first. */
const owners = (page: Page) => page.locator('td:nth-child(5)').allTextContents()

test('live: what happens meanwhile, by what one looks for, leads to its address; what is new waits', async () => {
  const page = await open(`${VIEWS.live}?node=live-1`)
  await watching(page)
  await reserve('live/elsewhere')
  const { address } = await reserve('live/one', { node: 'live-1' })
  await page.getByRole('cell', { name: 'pod live/one' }).waitFor()
  await reserve('live/two', { node: 'live-1' })
  await button(page, '1 new: show').waitFor()
  expect(await owners(page)).toEqual(['pod live/one'])
  await expectAccessible(page)
  await button(page, '1 new: show').press('Enter')
  await button(page, 'Nothing new').waitFor()
  expect(await owners(page)).toEqual(['pod live/two', 'pod live/one'])
  const cells = await page.locator('tbody tr').last().locator('td').allTextContents()
  expect(cells.slice(1)).toEqual([
    'lease.reserved (Reserve)',
    address,
    'ACTIVE ',
    'pod live/one',
    'live-1',
    'loopback',
  ])
  await page.getByLabel('kind').fill('vm')
  await button(page, 'Filter').click()
  await page.getByText('Nothing has happened since').waitFor()
  await page.goBack()
  await watching(page)
  await reserve('live/three', { node: 'live-1' })
  await page.getByRole('link', { name: 'pod live/three' }).waitFor()
  await page.locator('td a').first().click()
  await page.getByRole('heading', { name: /^10\.0\.0\.\d+$/ }).waitFor()
})

test('live: a pause changes nothing, and misses nothing', async () => {
  const page = await open(`${VIEWS.live}?kind=paused`)
  const happens = (name: string) => reserve(name, { kind: 'paused' })
  await watching(page)
  await happens('one')
  await page.getByRole('cell', { name: 'paused one' }).waitFor()
  await button(page, 'Pause').click()
  await status(page).getByText('Paused.').waitFor()
  // Another page shows that it would have been seen by now.
  const other = await open(`${VIEWS.live}?kind=paused`)
  await watching(other)
  await happens('two')
  await other.getByRole('cell', { name: 'paused two' }).waitFor()
  await button(page, 'Nothing new').waitFor()
  expect(await owners(page)).toEqual(['paused one'])
  await happens('three')
  await button(page, 'Resume').click()
  await button(page, '2 new: show').click()
  expect(await owners(page)).toEqual(['paused three', 'paused two', 'paused one'])
})

test('live: of more than 500 the newest stay', async () => {
  const page = await open(`${VIEWS.live}?kind=busy`)
  let connections = 1
  await watching(page)
  page.on('request', () => {
    connections += 1
  })
  const { leaseId } = await reserve('one', { kind: 'busy' })
  await page.getByRole('cell', { name: 'busy one' }).waitFor()
  // Large, so that an answer arrives in pieces.
  const labels = Object.fromEntries(Array.from({ length: 49 }, (_, n) => [`l${n}`, 'x'.repeat(250)]))
  const relabel = (n: number) =>
    ok('LeaseService/UpdateLabels', { leaseId, labels: { ...labels, n: `${n}` } })
  await Promise.all(Array.from({ length: 510 }, (_, n) => relabel(n)))
  await button(page, '500 or more new: show').click()
  expect(connections).toBe(1)
  expect(await owners(page)).toHaveLength(500)
  expect(await page.getByText('lease.reserved').count()).toBe(0)
})

const AWAY = /net::ERR_/

test('live: a server that goes away and comes back: nothing is missed, nothing is doubled', async () => {
  const first = await serviceOn(service)
  const page = await open(`${VIEWS.live}?kind=away`, { url: first.url, expected: AWAY })
  const happens = (name: string) => reserve(name, { kind: 'away' })
  await watching(page)
  await happens('one')
  await page.getByRole('cell', { name: 'away one' }).waitFor()
  await happens('two')
  await button(page, '1 new: show').waitFor()
  await first.stop()
  await status(page).getByText('Not connected.').waitFor()
  await happens('three')
  await using _ = await serviceOn(service, { IPLEDGER_PORT: new URL(first.url).port })
  await button(page, '2 new: show').click()
  await watching(page)
  await happens('four')
  await button(page, '1 new: show').click()
  expect(await owners(page)).toEqual(['away four', 'away three', 'away two', 'away one'])
})

test('live: a proxy that refuses, and a connection that is silent, are left for another', async () => {
  const page = await open(`${VIEWS.live}?kind=silent`, { expected: /status of 502/ })
  const happens = (name: string) => reserve(name, { kind: 'silent' })
  await watching(page)
  await page.clock.install()
  await page.route('**/*WatchLeases', (asked) => asked.fulfill({ status: 502, body: 'nobody is there' }))
  await page.reload()
  await page.clock.fastForward(20_000)
  await status(page).getByText('Not connected. It goes on where it was. (status 502)').waitFor()
  await page.unroute('**/*WatchLeases')
  await page.clock.fastForward(20_000)
  await watching(page)
  await page.clock.fastForward(20_000)
  await status(page).getByText('silent for 20 s').waitFor()
  await happens('one')
  await page.clock.fastForward(20_000)
  await page.getByRole('cell', { name: 'silent one' }).waitFor()
})

test('live: what is refused stays refused until somebody asks again', async () => {
  const page = await open(`${VIEWS.live}?pool=later`)
  await page.getByRole('alert').getByText('POOL_NOT_FOUND').waitFor()
  await ok('PoolService/CreatePool', { name: 'later', cidr: '10.1.0.0/24' })
  await button(page, 'Try again').click()
  await watching(page)
  expect(await page.getByRole('alert').count()).toBe(0)
})

test('live: a log that was set back, and gave out the same numbers again, begins anew', async () => {
  const server = await startTestServer()
  onTestFinished(() => server.stop())
  await withClient(server.url('postgres'), (admin) => admin.query('create database set_back'))
  const env = { DATABASE_URL: server.url('set_back'), IPLEDGER_PORT: String(await freePort()) }
  const start = () => serve(env, '--no-worker')
  const empty = await start()
  await rpc(empty.url).ok('PoolService/CreatePool', { name: 'web', cidr: '10.0.0.0/24', default: true })
  const happens = (name: string) =>
    rpc(empty.url).ok('LeaseService/Reserve', { owner: { kind: 'pod', name } })
  await stop(empty)
  const backup = `${temporaryDirectory()}/copy`
  await server.restart((directory) => void execFileSync('cp', ['-a', directory, backup]))
  const lost = await start()
  const page = await open(VIEWS.live, { url: lost.url, expected: AWAY })
  await watching(page)
  await happens('lost')
  await page.getByRole('cell', { name: 'pod lost' }).waitFor()
  await button(page, 'Pause').click()
  await stop(lost)
  await server.restart((directory) => {
    execFileSync('rm', ['-rf', directory])
    execFileSync('cp', ['-a', backup, directory])
  })
  const restored = await start()
  onTestFinished(() => stop(restored).then(() => {}))
  await happens('other')
  await button(page, 'Resume').click()
  await page.getByText('The log was set back').waitFor()
  await watching(page)
  expect(await page.getByRole('cell', { name: 'pod lost' }).count()).toBe(0)
})

test('a map: who has each address, by pointer and by keys, and what leads where', async () => {
  const page = await open(VIEWS.pool)
  const held = page.getByRole('link', { name: `${second.address} ACTIVE pod default/second on n1` })
  await held.hover()
  const hint = page.locator('.hint')
  await hint.getByText('default/second').waitFor()
  await page.getByRole('link', { name: '10.0.0.99 QUARANTINED' }).waitFor()
  await page.getByRole('link', { name: '10.0.0.1 EXCLUDED' }).waitFor()
  await page.getByRole('link', { name: '10.0.0.0 EXCLUDED' }).focus()
  await page.keyboard.press('ArrowDown')
  await hint.getByText('10.0.0.16 ').waitFor()
  await page.keyboard.press('ArrowRight')
  await hint.getByText('10.0.0.17 ').waitFor()
  await held.click()
  await page.locator('.answer').getByText('default/second').waitFor()
})

test('a map at any time of the log: by marks, by the slider, as a film; its address says when', async () => {
  const page = await open(VIEWS.pool)
  const counts = page.getByText(/\d+ active, \d+ reserved/)
  await page.getByRole('button', { name: 'Mark before' }).click()
  await page.getByText('lease.quarantined 10.0.0.99').waitFor()
  const at = /at=(\d+)/.exec(page.url())![1]!
  await page.getByRole('link', { name: '10.0.0.99 QUARANTINED' }).waitFor()
  const slider = page.getByRole('slider', { name: 'Time' })
  await slider.press('Home')
  await page.getByText('0 active, 0 reserved, 0 quarantined, 0 cooling').waitFor()
  // Sent to a colleague, it shows the same.
  const other = await open(`${VIEWS.pool}?at=${Number(at) - 1}`)
  await other.getByRole('link', { name: '10.0.0.99 FREE' }).waitFor()
  await other.getByRole('link', { name: `${second.address} ACTIVE pod default/second on n1` }).waitFor()
  await page.getByRole('button', { name: 'Play' }).click()
  await page.locator('.time strong', { hasText: 'now' }).waitFor()
  await counts.getByText('1 quarantined').waitFor()
  await page.getByRole('button', { name: 'Play' }).waitFor()
})

test('a map of another number or time that is sent, while one is there: what it shows and says', async () => {
  const page = await open(VIEWS.pool)
  const { version, reservedAt } = (await ok('LeaseService/GetLease', { leaseId: second.leaseId })).lease
  const cell = (state: string) =>
    page.getByRole('link', { name: new RegExp(`^${second.address.replaceAll('.', '\\.')} ${state}`) })
  await cell('ACTIVE').waitFor()
  // It is no mark.
  await page.goto(`${service.url}/${VIEWS.pool}?at=${version - 1}`)
  await cell('(FREE|COOLING)').waitFor()
  await page.goto(`${service.url}/${VIEWS.pool}?at=${version}`)
  await cell('ACTIVE').waitFor()
  await page.locator(`.time strong time[datetime="${reservedAt}"]`).waitFor()
  await page.goBack()
  await cell('(FREE|COOLING)').waitFor()
})

test('leases of a label whose value has a sign of equality; of a label without a value none', async () => {
  await ok('NetworkService/CreateNetwork', { name: 'labelled' })
  await ok('PoolService/CreatePool', { network: 'labelled', name: 'p', cidr: '10.8.0.0/24', default: true })
  const owner = { kind: 'pod', name: 'it', labels: { args: 'a=b' } }
  await ok('LeaseService/Reserve', { network: 'labelled', owner })
  const page = await open('#/leases/labelled?label=args%3Da%3Db')
  await page.getByRole('link', { name: 'pod it' }).waitFor()
  await page.goto(`${service.url}/#/leases/labelled?label=args`)
  await page.getByText('No leases.').waitFor()
})

test('a time that is none is refused in the view, and can be changed there', async () => {
  const page = await open(`${VIEWS.pool}?at=-1h`)
  await page.getByRole('alert').getByText('INVALID_FIELD').waitFor()
  await page.goto(`${service.url}/${VIEWS.events}?from=-15m&address=10.0.0.300`)
  await page.getByRole('alert').getByText('INVALID_FIELD').waitFor()
  await page.getByLabel('address', { exact: true }).fill(second.address)
  await page.getByRole('button', { name: 'Filter' }).click()
  await page.getByRole('link', { name: second.leaseId }).first().waitFor()
})

test('a film waits for each of its maps', async () => {
  const page = await open(VIEWS.pool)
  await page.locator('.map a').first().waitFor()
  let asked = 0
  await page.route('**/GetAddressMap', async (route) => {
    asked += 1
    const answer = await route.fetch()
    // Longer than a picture is shown.
    await new Promise((resolve) => setTimeout(resolve, 300))
    await route.fulfill({ response: answer }).catch(() => {})
  })
  const shown = new Set<string>()
  await page.getByRole('button', { name: 'Play' }).click()
  await expect
    .poll(async () => shown.add((await page.locator('.time strong').textContent())!).size, {
      timeout: 20_000,
    })
    .toBeGreaterThan(2)
  await page.getByRole('button', { name: 'Pause' }).click()
  // Every map that was asked for was also waited for.
  const { failed } = (await page.evaluate(`({ failed: performance.getEntriesByType('resource')
    .filter(({ name, responseStatus }) => name.endsWith('GetAddressMap') && responseStatus === 0).length })`)) as {
    failed: number
  }
  expect([asked > 2, failed]).toEqual([true, 0])
})

test('a map of the time that one writes', async () => {
  const at = (await ok('LeaseService/GetLease', { leaseId: second.leaseId })).lease.reservedAt
  const page = await open(VIEWS.pool)
  await page.getByRole('link', { name: '10.0.0.99 QUARANTINED' }).waitFor()
  // A field of Chromium is in its zone, here UTC as in the service.
  const local = await page.evaluate(
    `new Date(Date.parse('${at}') - 60_000 * new Date().getTimezoneOffset() - 1_000).toISOString().slice(0, 19)`,
  )
  await page.getByLabel('At', { exact: true }).fill(String(local))
  await page.getByLabel('At', { exact: true }).blur()
  await expect.poll(() => page.url()).toContain(`at=${encodeURIComponent(String(local).slice(0, 10))}`)
  // Before there was a pool nothing was handed out.
  await page.getByRole('link', { name: '10.0.0.99 EXCLUDED' }).waitFor()
})

test('marks of IPv6 stay while one goes back in time', async () => {
  const network = 'marked'
  await ok('NetworkService/CreateNetwork', { name: network })
  await ok('PoolService/CreatePool', { network, name: 'six', cidr: 'fd00:5::/64' })
  for (const address of ['fd00:5::a', 'fd00:5::b'])
    await ok('LeaseService/Quarantine', { network, address, why: 'answers ping' })
  const page = await open(`#/pool/${network}/six`)
  for (const address of ['fd00:5::b', 'fd00:5::a']) {
    await page.getByRole('button', { name: 'Mark before' }).click()
    await page.getByText(`lease.quarantined ${address}`).waitFor()
  }
  // There the later one was not yet in the map.
  await page.getByRole('link', { name: 'fd00:5::b' }).waitFor({ state: 'detached' })
  await page.getByRole('button', { name: 'Next mark' }).click()
  await page.getByText('lease.quarantined fd00:5::b').waitFor()
})

test('a block that is leased as one fills all its cells', async () => {
  const network = 'blocks'
  await ok('NetworkService/CreateNetwork', { name: network })
  await ok('PoolService/CreatePool', { network, name: 'big', cidr: '10.3.0.0/28', prefixLength: 30 })
  await ok('PoolService/CreatePool', { network, name: 'small', cidr: '10.3.0.16/28' })
  const claims = [{ pools: ['big'] }]
  await ok('LeaseService/Reserve', { network, owner: { kind: 'vm', name: 'router' }, claims })
  const page = await open(`#/pool/${network}/10.3.0.0%2F27`)
  await page.getByRole('link', { name: 'RESERVED vm router' }).first().waitFor()
  const cells = await page.locator('.map a[data-part="reserved"]').allTextContents()
  expect(cells).toHaveLength(4)
})

test('events: by type, by owner, by time, and the ones further back', async () => {
  const page = await open(VIEWS.events)
  const rows = page.getByRole('row')
  await rows.nth(1).waitFor()
  expect((await page.getByLabel('type').locator('option').allTextContents()).sort()).toEqual(
    ['any', ...EVENT_TYPES].sort(),
  )
  await page.getByLabel('type').selectOption('lease.released')
  await rows.getByRole('link', { name: 'pod default/first' }).first().waitFor()
  await expect(rows.getByText('lease.reserved').count()).resolves.toBe(0)
  await page.getByLabel('name').fill('default/second')
  await page.getByRole('button', { name: 'Filter' }).click()
  await page.getByText('Nothing of this kind has happened').waitFor()
  await page.getByLabel('type').selectOption('lease.reserved')
  await rows.getByRole('link', { name: second.leaseId }).waitFor()
  await page.getByLabel('to').fill('2020-01-01T00:00:00')
  await page.getByRole('button', { name: 'Filter' }).click()
  await page.getByText('Nothing of this kind has happened').waitFor()
  expect(page.url()).toMatch(/to=20(?:19|20)-/)
  // A page of the log after the other.
  await page.goto(`${service.url}/#/events/long`)
  await rows.getByText('pool.updated').first().waitFor()
  await page.getByText('Only 200 are shown; there are more.').waitFor()
  await page.getByRole('link', { name: 'Further back' }).click()
  await rows.getByText('network.created').waitFor()
  await rows.getByText('lease.quarantined').waitFor({ state: 'detached' })
})

test('a larger pool in which nothing is leased is all its blocks', async () => {
  const network = 'untouched'
  await ok('NetworkService/CreateNetwork', { name: network })
  await ok('PoolService/CreatePool', { network, name: 'wide', cidr: '10.0.0.0/8' })
  const page = await open(`#/pool/${network}/wide`)
  await page.getByRole('link', { name: '10.7.0.0/16: nothing of 65,536' }).waitFor()
})

test('a larger pool by blocks, down to an address; of IPv6 what was ever leased', async () => {
  const page = await open(VIEWS.block)
  const [a, b] = large.address.split('.')
  await page.getByRole('link', { name: new RegExp(`^${a}\\.${b}\\.0\\.0/18: 1 reserved of`) }).click()
  await page.getByRole('link', { name: /1 reserved of 64/ }).click()
  await page.getByRole('link', { name: `${large.address} RESERVED pod far` }).click()
  await page.locator('.answer').getByText('far').waitFor()
  const other = await open(VIEWS.six)
  await other.getByRole('link', { name: `${six.address} RESERVED pod far` }).waitFor()
  expect(await other.locator('.map a').count()).toBe(1)
})

test('an act: first what it would change, then why, then it is done', async () => {
  const { address, leaseId } = await reserve('default/odd')
  const page = await open(`#/address/default/${address}`)
  await page.getByRole('button', { name: `Quarantine ${address}` }).click()
  const dialog = page.getByRole('dialog')
  await dialog.getByText('Nothing is done yet').waitFor()
  await dialog.getByText(`${address} (lease ${leaseId}) becomes QUARANTINED OPERATOR`).waitFor()
  expect((await ok('LeaseService/GetLease', { leaseId })).lease.state).toBe('ACTIVE')
  // Without a reason it is not done.
  await dialog.getByRole('button', { name: 'Quarantine' }).click()
  expect((await ok('LeaseService/GetLease', { leaseId })).lease.state).toBe('ACTIVE')
  await dialog.getByLabel('Why').fill('answers ping')
  await dialog.getByRole('button', { name: 'Quarantine' }).click()
  await dialog.getByText('Done:').waitFor()
  await dialog.getByRole('button', { name: 'Close' }).click()
  await page.locator('.answer [data-state="QUARANTINED"]').waitFor()
  expect(await page.locator('.bars span').evaluateAll((all) => all.map(({ title }) => title))).toContain(
    'pod default/odd: quarantined',
  )
  expect((await ok('LeaseService/GetLease', { leaseId })).lease.quarantine.why).toBe('answers ping')

  await page.goto(`${service.url}/#/attention/default?code=OPERATOR_ONLY`)
  await page.getByRole('row', { name: address }).getByRole('button', { name: 'Reap' }).click()
  await dialog.getByText('becomes ENDED').waitFor()
  // What changes after the look is not reaped.
  await ok('LeaseService/UpdateLabels', { leaseId, labels: { seen: 'yes' } })
  await dialog.getByLabel('Why').fill('it was a printer')
  await dialog.getByRole('button', { name: 'Reap' }).click()
  await dialog.getByRole('alert').getByText('VERSION_MISMATCH').waitFor()
  await page.keyboard.press('Escape')
  await page.getByRole('row', { name: address }).getByRole('button', { name: 'Reap' }).click()
  await dialog.getByLabel('Why').fill('it was a printer')
  await dialog.getByRole('button', { name: 'Reap' }).click()
  await dialog.getByText('Done:').waitFor()
  await dialog.getByRole('button', { name: 'Close' }).click()
  await page.getByRole('row', { name: address }).waitFor({ state: 'detached' })
})

test('a source: what it lists, what enabling it would do, and then it is enabled', async () => {
  const page = await open(VIEWS.source)
  await page.getByRole('row', { name: '10.0.0.200' }).getByText('stray').waitFor()
  await page.getByRole('button', { name: 'Enable eyes' }).click()
  const dialog = page.getByRole('dialog')
  await dialog.getByText('adopts 1, quarantines 0, confirms 0').waitFor()
  expect((await ok('LivenessService/GetSource', { id: 'eyes' })).source.state).toBe('REGISTERED')
  await dialog.getByRole('button', { name: 'Enable eyes' }).click()
  await dialog.getByText('Done:').waitFor()
  await dialog.getByRole('button', { name: 'Close' }).click()
  await page.getByText('ENABLED').waitFor()
})

test('an owner with its lives, a lease from its first event, and names by how they begin', async () => {
  for (const incarnation of ['one', 'two']) {
    const lease = await reserve('default/again', { incarnation })
    await ok('LeaseService/Release', { leaseId: lease.leaseId })
  }
  const page = await open('#/overview/default')
  await page.locator('h1:focus').waitFor()
  await page.getByRole('searchbox').fill('default/ag')
  await page.keyboard.press('Enter')
  const lives = page.getByRole('table', { name: 'Lives' })
  await lives.getByRole('row', { name: 'one' }).waitFor()
  expect(await lives.getByRole('row').count()).toBe(3)
  await page
    .getByRole('table', { name: 'Events' })
    .getByRole('link', { name: /^default\/\d+$/ })
    .first()
    .click()
  await page.getByText('was reserved for pod default/again').waitFor()
  await page.getByText('was released').waitFor()
  await page.getByRole('searchbox').fill('default/')
  await page.keyboard.press('Enter')
  await page.getByRole('link', { name: 'default/second' }).waitFor()
})

test('a service that goes away: the view says so, and shows again when it is back', async () => {
  const away = await serviceOn(service)
  const port = String(new URL(away.url).port)
  const page = await open(VIEWS.pool, { url: away.url, expected: /ERR_CONNECTION_REFUSED|status of/ })
  await page.getByRole('link', { name: '10.0.0.99 QUARANTINED' }).waitFor()
  await away.stop()
  await page.getByRole('button', { name: 'Refresh' }).click()
  await page.getByRole('alert').getByText('The server does not answer').waitFor()
  // What was shown stays.
  await page.getByRole('link', { name: '10.0.0.99 QUARANTINED' }).waitFor()
  const back = await serviceOn(service, { IPLEDGER_PORT: port })
  onTestFinished(() => back.stop())
  await page.getByRole('button', { name: 'Try again' }).click()
  await page.getByRole('alert').waitFor({ state: 'detached' })
})
