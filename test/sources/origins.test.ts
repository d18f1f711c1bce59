/** Where a source that is asked may lead: what the API declares, the file on the server must allow. */
import type * as dns from 'node:dns'
import { describe, expect, test, vi } from 'vitest'
import { PulledSources } from '../../src/sources/pulled-sources.ts'
import { checkAllowed } from '../../src/sources/settings.ts'
import { declaration } from '../support/asked.ts'
import { json, useEndpoint } from '../support/endpoint.ts'

// Names that lead where a source may not: nobody serves one to a test.
vi.mock('node:dns', async (original) => {
  const real = await original<typeof dns>()
  const found = new Map([
    ['inward.example', ['127.0.0.1']],
    ['link-local.example', ['192.0.2.1', '169.254.169.254']],
    ['metadata.example', ['64:ff9b::6464:64c8']],
  ])
  const lookup = (host: string, options: dns.LookupAllOptions, answer: (...found: unknown[]) => void) => {
    const addresses = found.get(host)
    if (addresses === undefined) return real.lookup(host, options, answer)
    answer(
      null,
      addresses.map((address) => ({ address, family: address.includes(':') ? 6 : 4 })),
    )
  }
  return { ...real, lookup }
})

const endpoint = await useEndpoint()
const patience = () => AbortSignal.timeout(60_000)
const http = (url: string) => declaration('http', { listUrl: `${url}/list`, lookUpUrl: `${url}/{uid}` })
const ask = (declared: ReturnType<typeof declaration>, secrets = {}) =>
  new PulledSources(secrets).get('default', declared).list(patience())

test('a secret goes to the origin that the file names, and nowhere else', async () => {
  const shown: unknown[] = []
  endpoint.answer((request, response) => {
    shown.push(request.headers.authorization)
    json(response, 200, { epoch: 'e1', complete: true, entries: [] })
  })
  const secrets = (origin: string) => ({ 'default/source': { origin, token: 't' } })
  await ask(http(endpoint.url), secrets(endpoint.url))
  expect(shown).toEqual(['Bearer t'])
  await expect(ask(http(endpoint.url), secrets('https://orchestrator.example'))).rejects.toThrow(
    /^http:\/\/127\.0\.0\.1:\d+ is not asked: the file .* allows https:\/\/orchestrator\.example only/,
  )
  expect(shown).toEqual(['Bearer t'])
})

test('a unix socket is asked only if the file allows it', async () => {
  const docker = declaration('docker', { network: 'web' })
  await expect(ask(docker)).rejects.toThrow('{"<network>/<source>": {"origin": "unix:/var/run/docker.sock"}}')
  const other = { 'default/source': { origin: 'unix:/run/other.sock' } }
  await expect(ask(docker, other)).rejects.toThrow(/allows unix:\/run\/other\.sock/)
})

const NEVER = [
  '169.254.169.254',
  '2852039166',
  '100.100.100.200',
  '[fe80::1]',
  '[fd00:ec2::254]',
  '[::ffff:169.254.169.254]',
  '[::ffff:100.100.100.200]',
  '[64:ff9b::169.254.0.1]',
  '[64:ff9b::100.100.100.200]',
  // Of the local prefix a network takes as much as it likes (RFC 8215, RFC 6052).
  '[64:ff9b:1::169.254.169.254]',
  '[64:ff9b:1:abcd:a9:fea9:fe00:0]',
  '[64:ff9b:1:aba9:fe:a9fe::]',
  '[64:ff9b:1:a9fe:a9:fe00::]',
  '[64:ff9b:1:6464:64:c800::]',
]
describe.each(NEVER)('never asked, whatever the file allows: %s', (host) => {
  const origin = new URL(`http://${host}:1`).origin
  const secrets = { 'default/source': { origin } }

  test('it cannot be registered', () => {
    for (const file of [{}, secrets])
      expect(checkAllowed(file, 'default', http(origin))).toMatchObject({
        reason: 'INVALID_FIELD',
        metadata: { field: 'settings' },
        message: expect.stringContaining('never asks'),
      })
  })

  test('one that was registered before is not asked', async () => {
    for (const file of [{}, secrets]) await expect(ask(http(origin), file)).rejects.toThrow(/never asks/)
  })
})

test.each(['[64:ff9b::10.0.0.1]', '[64:ff9b:1::10.0.0.1]', '100.100.100.201', '169.253.0.1'])(
  'what only resembles them may be asked: %s',
  (host) => {
    expect(checkAllowed({}, 'default', http(`http://${host}`))).toBeNull()
  },
)

test.each(['127.0.0.1', '127.8.8.8', 'localhost', '[::1]', '[::ffff:127.0.0.1]', '0.0.0.0', '[::]'])(
  'loopback is asked only if the file allows it: %s',
  async (host) => {
    const { origin } = new URL(`http://${host}:1`)
    const why = `${origin} is asked only if the file`
    expect(checkAllowed({}, 'default', http(origin))).toMatchObject({
      reason: 'INVALID_FIELD',
      metadata: { field: 'settings' },
      message: expect.stringContaining(why),
    })
    await expect(ask(http(origin))).rejects.toThrow(host === 'localhost' ? /is asked only if the file/ : why)
    expect(checkAllowed({ 'default/source': { origin } }, 'default', http(origin))).toBeNull()
  },
)

test('a name is looked up when it is connected to, and goes nowhere else than an address may', async () => {
  await expect(ask(http('http://link-local.example:1'))).rejects.toThrow(/169\.254\.169\.254 .* never asks/)
  await expect(ask(http('http://metadata.example:1'))).rejects.toThrow(/64:ff9b::6464:64c8 .* never asks/)
  endpoint.answer((_, response) => json(response, 200, { epoch: 'e1', complete: true, entries: [] }))
  const inward = `http://inward.example:${new URL(endpoint.url).port}`
  await expect(ask(http(inward))).rejects.toThrow(`${inward} is asked only if the file`)
  expect(endpoint.asked).toEqual([])
  await ask(http(inward), { 'default/source': { origin: inward } })
  expect(endpoint.asked).toHaveLength(1)
})
