/** A call is repeated when the contract says that it is safe: by its `idempotency_level`, or by a `requestId`. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { MethodOptions_IdempotencyLevel as Idempotency } from '@bufbuild/protobuf/wkt'
import { expect, onTestFinished, test } from 'vitest'
import { createClient } from '../../src/client/client.ts'
import { UNARY } from '../api/requests.ts'

const SAFE = UNARY.filter(({ idempotency }) => idempotency !== Idempotency.IDEMPOTENCY_UNKNOWN)

test('of a server that is unavailable everything safe is asked three times, all else once', async () => {
  const times = new Map<string, number>()
  const server = createServer(({ url = '' }, response) => {
    times.set(url, (times.get(url) ?? 0) + 1)
    response.writeHead(503, { 'content-type': 'application/json' })
    response.end('{"code":"unavailable","message":"unavailable"}')
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => void server.close())
  const { port } = server.address() as AddressInfo
  const client = createClient({ url: `http://127.0.0.1:${port}` })
  const calls: Readonly<Record<string, (request: object) => Promise<unknown>>> = Object.assign(
    {},
    ...Object.values(client),
  )
  await Promise.all(
    UNARY.map(({ localName }) => expect(calls[localName]!({})).rejects.toThrow('unavailable')),
  )
  const expected = UNARY.map((method) => [
    `/${method.parent.typeName}/${method.name}`,
    SAFE.includes(method) ? 3 : 1,
  ])
  expect(Object.fromEntries(times)).toEqual(Object.fromEntries(expected))
  expect(SAFE.map(({ name }) => name)).toContain('BeginSnapshot')

  times.clear()
  await expect(client.leases.reserve({ requestId: 'r' })).rejects.toThrow('unavailable')
  expect([...times.values()]).toEqual([3])
})
