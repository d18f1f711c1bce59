/** Where a source that is asked may lead: what the API declares, the file on the server must allow. */
import type * as dns from 'node:dns'
import { expect, test, vi } from 'vitest'
import { createAskedSources } from '../../src/sources/ask.ts'
import { checkAllowed } from '../../src/sources/settings.ts'
import { declaration } from '../support/asked.ts'
import { json, useEndpoint } from '../support/endpoint.ts'

// A name that leads to a link-local address: nobody serves one to a test.
vi.mock('node:dns', async (original) => {
  const real = await original<typeof dns>()
  const rebound = [
    { address: '127.0.0.1', family: 4 },
    { address: '169.254.169.254', family: 4 },
  ]
  const lookup = (host: string, options: dns.LookupAllOptions, answer: (...found: unknown[]) => void) =>
    host === 'rebound.example' ? answer(null, rebound) : real.lookup(host, options, answer)
  return { ...real, lookup }
})

const endpoint = await useEndpoint()
const patience = () => AbortSignal.timeout(60_000)
const http = (url: string) => declaration('http', { listUrl: `${url}/list`, lookUpUrl: `${url}/{uid}` })
const ask = (declared: ReturnType<typeof declaration>, secrets = {}) =>
  createAskedSources(secrets).get('default', declared).list(patience())

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

test('one that would be asked there cannot be registered', () => {
  const settings = { listUrl: 'http://[fe80::1]/list', lookUpUrl: 'http://10.0.0.1/{uid}' }
  expect(checkAllowed({}, 'default', declaration('http', settings))).toMatchObject({
    reason: 'INVALID_FIELD',
    message: expect.stringContaining('fe80::1 is a link-local address, which ipledger never asks'),
  })
})

test.each(['169.254.169.254', '[fe80::1]', '[fd00:ec2::254]', '[::ffff:169.254.169.254]'])(
  'never asked: %s',
  async (host) => {
    await expect(ask(http(`http://${host}:1`))).rejects.toThrow(/link-local/)
  },
)

test('a name that leads to such an address is not connected to', async () => {
  await expect(ask(http('http://rebound.example:1'))).rejects.toThrow(/169\.254\.169\.254 is a link-local/)
})
