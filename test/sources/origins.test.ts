/** Where a source that is asked may lead: what the API declares, the file on the server must allow. */
import { lookup } from 'node:dns'
import { expect, test } from 'vitest'
import { createAskedSources } from '../../src/sources/ask.ts'
import { lookUpHost } from '../../src/sources/get-json.ts'
import { declaration } from '../support/asked.ts'
import { json, useEndpoint } from '../support/endpoint.ts'

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
    /lead to http:\/\/127\.0\.0\.1:\d+, and the file .* allows https:\/\/orchestrator\.example/,
  )
  expect(shown).toEqual(['Bearer t'])
})

test('a unix socket is asked only if the file allows it', async () => {
  const docker = declaration('docker', { network: 'web' })
  await expect(ask(docker)).rejects.toThrow('{"<network>/<source>": {"origin": "unix:/var/run/docker.sock"}}')
  const other = { 'default/source': { origin: 'unix:/run/other.sock' } }
  await expect(ask(docker, other)).rejects.toThrow(/allows unix:\/run\/other\.sock/)
})

test.each(['169.254.169.254', '[fe80::1]', '[fd00:ec2::254]', '[::ffff:169.254.169.254]'])(
  'never asked: %s',
  async (host) => {
    await expect(ask(http(`http://${host}:1`))).rejects.toThrow(/link-local/)
  },
)

test.each([true, false])(
  'a name that leads to such an address is not connected to (all: %s)',
  async (all) => {
    const found = (host: string, by: typeof lookUpHost) =>
      new Promise((resolve) => by(host, { all }, (error, address) => resolve(error?.message ?? address)))
    expect(await found('169.254.1.1', lookUpHost)).toMatch(/link-local/)
    expect(await found('127.0.0.1', lookUpHost)).toEqual(await found('127.0.0.1', lookup as never))
  },
)
