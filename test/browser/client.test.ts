/** `ipledger-client` in a browser: bundled as its package says for browsers, on a page that one proxy serves beside the service. */
import { createServer, request } from 'node:http'
import type { AddressInfo } from 'node:net'
import { fileURLToPath } from 'node:url'
import { rolldown } from 'rolldown'
import { afterAll, expect, test } from 'vitest'
import { ROOT } from '../support/root.ts'
import { useService } from '../support/service.ts'
import { openBrowser } from './chromium.ts'

const service = await useService()
await service.call.ok('PoolService/CreatePool', { name: 'web', cidr: '10.0.0.0/24', gateway: '10.0.0.1' })

const input = fileURLToPath(new URL('src/client/browser.ts', ROOT))
const bundle = await rolldown({ input, platform: 'browser', logLevel: 'warn' })
const { output } = await bundle.generate({ format: 'esm', minify: true })

const proxy = createServer((asked, answer) => {
  if (asked.url === '/client.js') answer.setHeader('content-type', 'text/javascript').end(output[0].code)
  else if (asked.method === 'GET') answer.setHeader('content-type', 'text/html').end('<!doctype html>')
  else {
    const { method, headers } = asked
    const passed = request(new URL(asked.url!, service.url), { method, headers }, (got) => {
      answer.writeHead(got.statusCode!, got.headers)
      got.pipe(answer)
    })
    // The page has ended a watch.
    answer.once('close', () => passed.destroy())
    passed.on('error', () => answer.destroy())
    asked.pipe(passed)
  }
})
await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve))
afterAll(() => void proxy.closeAllConnections())
afterAll(() => void proxy.close())
const browser = await openBrowser()
afterAll(() => browser.close())

test('a page reserves, follows and releases; a refusal has its reason', async () => {
  const page = await browser.newPage()
  await page.goto(`http://127.0.0.1:${(proxy.address() as AddressInfo).port}/`)
  // A text: the page's modules are not this program's.
  const seen = await page.evaluate(`(async () => {
    const { createClient, watchLeases, CallFailed } = await import('/client.js')
    const client = createClient()
    const owner = { kind: 'tab', name: 'one' }
    const { leases } = await client.leases.reserve({ owner, claims: [{ pool: 'web' }], requestId: 'one' })
    const followed = []
    for await (const { changes } of watchLeases(client, { after: 0n, ownerName: 'one' })) {
      followed.push(...changes.map(({ type }) => type))
      if (followed.length > 0) break
    }
    await client.leases.release({ leaseId: leases[0].leaseId, removal: 1 })
    const refused = await client.leases.reserve({ owner, claims: [{ pool: 'none' }] }).catch((error) => error)
    return { address: leases[0].address, followed, isTyped: refused instanceof CallFailed, reason: refused.reason }
  })()`)
  expect(seen).toEqual({
    address: '10.0.0.2',
    followed: ['lease.reserved'],
    isTyped: true,
    reason: 'POOL_NOT_FOUND',
  })
})
