/** What a declaration of a source that is asked may say, and that no secret is in it. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import type { Details, SourceDeclaration, SourceKind } from '../../src/core/event.ts'
import {
  checkAllowed,
  checkDeclaration,
  readSettings,
  readSourceSecrets,
} from '../../src/sources/settings.ts'
import { declaration } from '../support/asked.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

const URLS = { listUrl: 'https://orchestrator/list', lookUpUrl: 'https://orchestrator/vms/{uid}' }

test.each<[SourceKind, Details]>([
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
  expect(readSettings(kind, settings)).toMatchObject(settings)
})

test.each<[SourceKind, Details, string, RegExp]>([
  ['push', { network: 'web' }, 'settings.network', /has no settings/],
  ['docker', {}, 'settings.network', /required/],
  ['docker', { network: '' }, 'settings.network', /empty/],
  ['docker', { network: 'web', socketPath: 'docker.sock' }, 'settings.socketPath', /absolute/],
  ['docker', { network: 'web', socketPath: '/s', host: 'h', port: 1 }, 'settings.socketPath', /one engine/],
  ['docker', { network: 'web', host: 'h' }, 'settings.port', /both/],
  ['docker', { network: 'web', host: 'http://h', port: 1 }, 'settings.host', /host name/],
  ['docker', { network: 'web', host: '1.2.3.999', port: 1 }, 'settings.host', /host name/],
  ['docker', { network: 'web', tls: true }, 'settings.tls', /host and port/],
  ['docker', { network: 'web', kind: 'Container' }, 'settings.kind', /a-z/],
  ['docker', { network: 'web', labels: 'team' }, 'settings.labels', /./],
  ['docker', { network: 'web', kind: 'endpoint', labels: ['team=web'] }, 'settings.labels', /none/],
  ['docker', { network: 'web', sockerPath: '/s' }, 'settings.sockerPath', /it has socketPath/],
  ['kubernetes', { context: 'c', server: 'https://s' }, 'settings.context', /not be given with server/],
  ['kubernetes', { server: 'http://192.0.2.1:6443' }, 'settings.server', /https/],
  ['kubernetes', { server: 'https://user:password@s' }, 'settings.server', /without user/],
  ['http', { listUrl: URLS.listUrl }, 'settings.lookUpUrl', /required/],
  ['http', { ...URLS, listUrl: 7 }, 'settings.listUrl', /must be text/],
  ['http', { ...URLS, listUrl: 'ftp://orchestrator/list' }, 'settings.listUrl', /http or https/],
  ['http', { ...URLS, listUrl: 'https://orchestrator/list#all' }, 'settings.listUrl', /fragment/],
  ['http', { ...URLS, lookUpUrl: 'ftp://orchestrator/{uid}' }, 'settings.lookUpUrl', /http or https/],
  ['http', { ...URLS, lookUpUrl: 'https://orchestrator/vms' }, 'settings.lookUpUrl', /\{uid\} or \{name\}/],
  ['http', { ...URLS, lookUpUrl: 'https://orchestrator/{id}/{uid}' }, 'settings.lookUpUrl', /braces/],
  ['http', { ...URLS, lookUpUrl: 'https://{uid}.orchestrator/' }, 'settings.lookUpUrl', /host/],
])('%s %j is refused', (kind, settings, field, why) => {
  const refusal = checkDeclaration(declaration(kind, settings))
  expect(refusal).toMatchObject({ reason: 'INVALID_FIELD', metadata: { field } })
  expect(refusal?.message).toMatch(why)
})

test.each<[SourceKind, Details, string]>([
  ['http', { ...URLS, token: 'hunter2' }, 'token'],
  ['http', { ...URLS, password: 'hunter2' }, 'password'],
  ['docker', { network: 'web', key: 'hunter2' }, 'key'],
  ['kubernetes', { kubeconfig: 'hunter2' }, 'kubeconfig'],
])('a secret is no setting of %s', (kind, settings, field) => {
  const refusal = checkDeclaration(declaration(kind, settings))
  expect(refusal).toMatchObject({ reason: 'INVALID_FIELD', metadata: { field: `settings.${field}` } })
  expect(refusal?.message).toContain('IPLEDGER_SOURCE_SECRETS')
  expect(JSON.stringify(refusal)).not.toContain('hunter2')
})

test('what is left out has its default', () => {
  expect(readSettings('docker', { network: 'web' })).toEqual({
    network: 'web',
    kind: 'container',
    labels: [],
  })
})

test.each<[SourceKind, Details, Partial<SourceDeclaration>, string | null]>([
  ['docker', { network: 'web' }, { node: 'n1' }, null],
  ['docker', { network: 'web' }, { ownerKinds: ['container', 'vm'] }, 'sight.ownerKinds'],
  ['docker', { network: 'web', kind: 'sandbox' }, { ownerKinds: ['sandbox'] }, null],
  ['docker', { network: 'web', kind: 'sandbox' }, { ownerKinds: ['container'] }, 'sight.ownerKinds'],
  ['docker', { network: 'web', kind: 'endpoint' }, { ownerKinds: ['endpoint'] }, 'sight.node'],
  ['docker', { network: 'web', kind: 'endpoint' }, { node: 'n1', ownerKinds: ['endpoint'] }, null],
  ['kubernetes', {}, {}, null],
  ['kubernetes', {}, { node: 'n1' }, 'sight.node'],
  ['kubernetes', {}, { ownerKinds: ['vm'] }, 'sight.ownerKinds'],
  ['http', URLS, { node: 'n1', ownerKinds: ['vm', 'pod'] }, null],
  ['push', {}, { node: 'n1', ownerKinds: ['vm', 'pod'] }, null],
])('of what its kind cannot see a source says nothing: %s %j %j', (kind, settings, fields, field) => {
  const refusal = checkDeclaration(declaration(kind, settings, fields))
  expect(refusal?.metadata.field ?? null).toBe(field)
})

test.each<[SourceKind, Details, string | undefined, RegExp | null]>([
  ['docker', { network: 'web' }, undefined, /^settings: unix:\/var\/run\/docker.sock is asked only if/],
  ['docker', { network: 'web', socketPath: '/run/d.sock' }, 'unix:/run/d.sock', null],
  ['docker', { network: 'web', socketPath: '/run/d.sock' }, 'unix:/run/e.sock', /allows unix:\/run\/e.sock/],
  ['docker', { network: 'web', host: '::1', port: 1, tls: true }, 'https://[::1]:1', null],
  ['kubernetes', { server: 'https://s' }, 'https://o', /https:\/\/s is not asked/],
  ['kubernetes', {}, 'https://o', null],
  ['http', URLS, undefined, null],
  ['http', URLS, 'https://orchestrator', null],
  [
    'http',
    { ...URLS, lookUpUrl: 'https://other/{uid}' },
    'https://orchestrator',
    /https:\/\/other is not asked/,
  ],
  ['push', {}, 'https://o', null],
])('the file has a word in where a source leads: %s %j %s', (kind, settings, origin, why) => {
  const allowed = origin === undefined ? {} : { 'default/source': { origin } }
  const refusal = checkAllowed(allowed, 'default', declaration(kind, settings))
  if (why === null) expect(refusal).toBeNull()
  else expect(refusal?.message).toMatch(why)
})

describe('the file of secrets', () => {
  const written = (text: string): string => {
    const file = join(temporaryDirectory(), 'secrets.json')
    writeFileSync(file, text)
    return file
  }

  test('is by network and source', () => {
    const file = written(
      '{"default/orchestrator/eu": {"origin": "https://O.example:443/", "token": "t", "ca": "c"}, "default/d": {"origin": "unix:/run/d.sock"}}',
    )
    expect(readSourceSecrets(file)).toEqual({
      'default/orchestrator/eu': { origin: 'https://o.example', token: 't', ca: 'c' },
      'default/d': { origin: 'unix:/run/d.sock' },
    })
    expect(readSourceSecrets(undefined)).toEqual({})
  })

  test.each([
    '{"orchestrator": {"origin": "https://o", "token": "hunter2"}}',
    '{"default/orchestrator": {"token": "hunter2"}}',
    '{"default/orchestrator": {"origin": "https://o/hunter2"}}',
    '{"default/orchestrator": {"origin": "unix:hunter2"}}',
    '{"default/orchestrator": {"origin": "https://o", "tokn": "hunter2"}}',
    '{"default/orchestrator": {"origin": "https://o", "token": 7}}',
    '{"default/orchestrator": "hunter2"}',
    'hunter2',
    '["hunter2"]',
  ])('that cannot be used ends the start, and is not repeated', (text) => {
    const read = () => readSourceSecrets(written(text))
    expect(read).toThrow(/IPLEDGER_SOURCE_SECRETS/)
    expect(read).not.toThrow(/hunter2/)
  })

  test('that is not JSON ends the start', () => {
    expect(() => readSourceSecrets(written('{'))).toThrow(/not JSON/)
  })

  test('that is not there ends the start', () => {
    expect(() => readSourceSecrets('/nowhere/secrets.json')).toThrow(/ENOENT/)
  })
})
