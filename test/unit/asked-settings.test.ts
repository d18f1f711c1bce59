/** What a declaration of a source that is asked may say, and that no secret is in it. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, describe, expect, test } from 'vitest'
import { StartRefused } from '../../src/config.ts'
import {
  checkSettings,
  checkSight,
  createAskedSources,
  type Declared,
  readSourceSecrets,
} from '../../src/liveness/asked.ts'
import type { SourceKind } from '../../src/liveness/source.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

const URLS = { listUrl: 'https://orchestrator/list', lookUpUrl: 'https://orchestrator/vms/{uid}' }

test.each<[SourceKind, object]>([
  ['push', {}],
  ['docker', { network: 'web' }],
  ['docker', { network: 'web', socketPath: '/run/docker.sock', kind: 'sandbox', labels: ['team=web'] }],
  ['docker', { network: 'web', host: '192.0.2.1', port: 2376, tls: true }],
  ['kubernetes', {}],
  ['kubernetes', { context: 'production' }],
  ['kubernetes', { server: 'https://192.0.2.1:6443' }],
  ['http', URLS],
  ['http', { ...URLS, lookUpUrl: 'http://orchestrator:8080/of?kind={kind}&name={name}' }],
])('%s %j can be used', (kind, settings) => {
  expect(checkSettings(kind, settings as Record<string, unknown>)).toBeNull()
})

test.each<[SourceKind, object, string, RegExp]>([
  ['push', { network: 'web' }, 'settings.network', /has no settings/],
  ['docker', {}, 'settings.network', /./],
  ['docker', { network: '' }, 'settings.network', /empty/],
  ['docker', { network: 'web', socketPath: 'docker.sock' }, 'settings.socketPath', /absolute/],
  ['docker', { network: 'web', socketPath: '/s', host: 'h', port: 1 }, 'settings.socketPath', /one engine/],
  ['docker', { network: 'web', host: 'h' }, 'settings.port', /both/],
  ['docker', { network: 'web', host: 'http://h', port: 1 }, 'settings.host', /host name/],
  ['docker', { network: 'web', tls: true }, 'settings.tls', /host and port/],
  ['docker', { network: 'web', kind: 'Container' }, 'settings.kind', /a-z/],
  ['docker', { network: 'web', labels: 'team' }, 'settings.labels', /./],
  ['docker', { network: 'web', sockerPath: '/s' }, 'settings.sockerPath', /it has socketPath/],
  ['kubernetes', { context: 'c', server: 'https://s' }, 'settings.context', /not be given with server/],
  ['kubernetes', { server: 'http://192.0.2.1:6443' }, 'settings.server', /https/],
  ['kubernetes', { server: 'https://user:password@s' }, 'settings.server', /without user/],
  ['http', { listUrl: URLS.listUrl }, 'settings.lookUpUrl', /./],
  ['http', { ...URLS, listUrl: 'ftp://orchestrator/list' }, 'settings.listUrl', /http or https/],
  ['http', { ...URLS, lookUpUrl: 'https://orchestrator/vms' }, 'settings.lookUpUrl', /\{uid\} or \{name\}/],
  ['http', { ...URLS, lookUpUrl: 'https://orchestrator/{id}/{uid}' }, 'settings.lookUpUrl', /braces/],
  ['http', { ...URLS, lookUpUrl: 'https://{uid}.orchestrator/' }, 'settings.lookUpUrl', /host/],
])('%s %j is refused', (kind, settings, field, why) => {
  const refusal = checkSettings(kind, settings as Record<string, unknown>)
  expect(refusal).toMatchObject({ reason: 'INVALID_FIELD', metadata: { field } })
  expect(refusal!.message).toMatch(why)
})

test.each<[SourceKind, object, string]>([
  ['http', { ...URLS, token: 'hunter2' }, 'token'],
  ['http', { ...URLS, password: 'hunter2' }, 'password'],
  ['docker', { network: 'web', key: 'hunter2' }, 'key'],
  ['kubernetes', { kubeconfig: 'hunter2' }, 'kubeconfig'],
])('a secret is no setting of %s', (kind, settings, field) => {
  const refusal = checkSettings(kind, settings as Record<string, unknown>)
  expect(refusal).toMatchObject({ reason: 'INVALID_FIELD', metadata: { field: `settings.${field}` } })
  expect(refusal!.message).toContain('IPLEDGER_SOURCE_SECRETS')
  expect(JSON.stringify(refusal)).not.toContain('hunter2')
})

test('no engine proves by being new that the containers of the old one ended, and no cluster is a node', () => {
  expect(checkSight('docker', { node: 'n1', bootEndsAll: true })).toMatchObject({
    metadata: { field: 'sight.bootEndsAll' },
  })
  expect(checkSight('docker', { node: 'n1', bootEndsAll: false })).toBeNull()
  expect(checkSight('kubernetes', { node: 'n1', bootEndsAll: false })).toMatchObject({
    metadata: { field: 'sight.node' },
  })
  expect(checkSight('kubernetes', { node: '', bootEndsAll: false })).toBeNull()
  expect(checkSight('push', { node: 'n1', bootEndsAll: true })).toBeNull()
})

describe('the file of secrets', () => {
  const written = (text: string): string => {
    const file = join(temporaryDirectory(), 'secrets.json')
    writeFileSync(file, text)
    return file
  }

  test('is by network and source', () => {
    const file = written('{"default/orchestrator/eu": {"token": "t", "ca": "c"}}')
    expect(readSourceSecrets(file)).toEqual({ 'default/orchestrator/eu': { token: 't', ca: 'c' } })
    expect(readSourceSecrets(undefined)).toEqual({})
  })

  test.each([
    '{"orchestrator": {"token": "hunter2"}}',
    '{"default/orchestrator": {"tokn": "hunter2"}}',
    '{"default/orchestrator": {"token": 7}}',
    '{"default/orchestrator": "hunter2"}',
    'hunter2',
    '["hunter2"]',
  ])('that cannot be used ends the start, and is not repeated', (text) => {
    const read = () => readSourceSecrets(written(text))
    expect(read).toThrow(StartRefused)
    expect(read).toThrow(/IPLEDGER_SOURCE_SECRETS/)
    expect(read).not.toThrow(/hunter2/)
  })

  test('that is not there ends the start', () => {
    expect(() => readSourceSecrets('/nowhere/secrets.json')).toThrow(/ENOENT/)
  })
})

describe('a source that is asked', () => {
  const sources = createAskedSources({ log: { warn: () => {} }, secrets: {} })
  afterEach(() => sources.close())
  const declared: Declared = { network: 'default', id: 'a', kind: 'http', node: '', settings: URLS }

  test('is opened once for as long as its declaration stays', () => {
    const one = sources.get(declared)
    expect(sources.get({ ...declared })).toBe(one)
    expect(sources.get({ ...declared, network: 'other' })).not.toBe(one)
    expect(sources.get({ ...declared, settings: { ...URLS, listUrl: 'https://elsewhere/' } })).not.toBe(one)
  })

  test('that cannot be opened says so when it is used, and not before', async () => {
    const signal = AbortSignal.timeout(1_000)
    const agent = sources.get({ ...declared, kind: 'push', settings: {} })
    await expect(agent.list(signal)).rejects.toThrow(/reports by itself/)
    const question = {
      owner: { kind: 'vm', name: 'a', uid: 'a', uidNamed: false, incarnation: '', interface: 'eth0' },
      ...{ address: '10.0.0.1', node: '', epoch: '' },
    }
    expect(await agent.lookUp(question, signal)).toMatchObject({ answer: 'error' })
  })
})
