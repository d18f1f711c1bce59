/** Sources that are asked over TLS: it is the authority that the secrets name, and no other. */
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import type { Details, SourceKind } from '../../src/core/event.ts'
import { declaration, useSource } from '../support/asked.ts'
import { json } from '../support/endpoint.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

const ANSWERS: Readonly<Record<string, object>> = {
  '/list': { epoch: 'e1', complete: true, entries: [] },
  '/info': { ID: 'e1' },
  '/networks/web': { Id: 'w', Name: 'web' },
  '/containers/json': [],
  '/api/v1/namespaces/kube-system': { metadata: { uid: 'e1' } },
  '/api/v1/pods': { kind: 'PodList', metadata: { resourceVersion: '1' }, items: [] },
}

/** Certificates of its own. */
function certificate(): { readonly key: string; readonly cert: string } {
  const directory = temporaryDirectory()
  const [key, cert] = [join(directory, 'key.pem'), join(directory, 'cert.pem')]
  const request = 'req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=test'
  const options = ['-addext', 'subjectAltName=IP:127.0.0.1', '-keyout', key, '-out', cert]
  execFileSync('openssl', [...request.split(' '), ...options], { stdio: 'ignore' })
  return { key: readFileSync(key, 'utf8'), cert: readFileSync(cert, 'utf8') }
}

test.each<[SourceKind, (port: number) => Details]>([
  [
    'http',
    (port) => ({ listUrl: `https://127.0.0.1:${port}/list`, lookUpUrl: `https://127.0.0.1:${port}/{uid}` }),
  ],
  ['docker', (port) => ({ host: '127.0.0.1', port, tls: true, network: 'web' })],
  ['kubernetes', (port) => ({ server: `https://127.0.0.1:${port}` })],
])('%s', async (kind, settings) => {
  const { key, cert } = certificate()
  const own = certificate()
  const shown: unknown[] = []
  const server = createServer({ key, cert, ca: own.cert, requestCert: true }, (request, response) => {
    const { socket, headers } = request
    shown.push([(socket as import('node:tls').TLSSocket).authorized, headers.authorization])
    json(response, 200, ANSWERS[new URL(request.url!, 'https://h').pathname] ?? {})
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => {
    server.close()
    server.closeAllConnections()
  })
  const declared = declaration(kind, settings((server.address() as AddressInfo).port))
  const token = kind === 'docker' ? {} : { token: 't' }
  const patience = () => AbortSignal.timeout(60_000)
  const known = useSource(declared, { ca: cert, ...own, ...token })
  expect(await known.list(patience())).toMatchObject({ epoch: 'e1', complete: true })
  expect(shown).toEqual(shown.map(() => [true, kind === 'docker' ? undefined : 'Bearer t']))
  const before = shown.length
  await expect(useSource(declared, token).list(patience())).rejects.toThrow(/self-signed/)
  await expect(useSource(declared, { ca: own.cert, ...token }).list(patience())).rejects.toThrow(
    /self-signed/,
  )
  expect(shown).toHaveLength(before)
})
