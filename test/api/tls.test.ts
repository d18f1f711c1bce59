/** TLS on both ports: certificates that stand for tokens, files that change, and what is refused. */
import { execFileSync } from 'node:child_process'
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:https'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect } from 'node:tls'
import { createClient as createConnectClient } from '@connectrpc/connect'
import { createGrpcTransport } from '@connectrpc/connect-node'
import { pino } from 'pino'
import { afterAll, expect, onTestFinished, test } from 'vitest'
import { keepTls, readTls } from '../../src/api/http/tls.ts'
import { createToken } from '../../src/api/tokens.ts'
import { CallFailed, createClient } from '../../src/client/client.ts'
import { StartRefused } from '../../src/config.ts'
import { LeaseService } from '../../src/gen/ipledger/v1/lease_pb.ts'
import { ipledger } from '../e2e/commands.ts'
import { serviceOn, useService } from '../support/service.ts'
import { waitFor } from '../support/wait-for.ts'

const directory = mkdtempSync(join(tmpdir(), 'ipledger-tls-'))
afterAll(() => rmSync(directory, { recursive: true }))
const path = (name: string) => `${directory}/${name}`
const openssl = (...args: readonly string[]) =>
  execFileSync('openssl', args, { stdio: ['ignore', 'pipe', 'ignore'] })
const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'] as const

function makeCa(name: string): void {
  const files = ['-keyout', path(`${name}.key`), '-out', path(`${name}.crt`)]
  openssl('req', '-x509', ...key, '-days', '2', '-subj', `/CN=${name}`, ...files)
}
function makeCertificate(name: string, ca: string, subject: string): void {
  openssl('req', ...key, '-subj', subject, '-keyout', path(`${name}.key`), '-out', path(`${name}.csr`))
  writeFileSync(path('san'), 'subjectAltName=IP:127.0.0.1')
  const by = [
    '-CA',
    path(`${ca}.crt`),
    '-CAkey',
    path(`${ca}.key`),
    '-CAcreateserial',
    '-extfile',
    path('san'),
  ]
  openssl('x509', '-req', '-in', path(`${name}.csr`), '-days', '2', ...by, '-out', path(`${name}.crt`))
}
const text = (file: string) => readFileSync(path(file), 'utf8')
const certificate = (name: string) => ({ cert: text(`${name}.crt`), key: text(`${name}.key`) })

makeCa('ours')
makeCa('theirs')
makeCertificate('server', 'ours', '/CN=ipledger')
makeCertificate('next', 'ours', '/CN=ipledger')
makeCertificate('agent', 'ours', '/CN=node-1/O=agents')
makeCertificate('stranger', 'ours', '/CN=node-9')
makeCertificate('forged', 'theirs', '/CN=node-1/O=agents')

const file = path('tokens')
createToken({ file, name: 'node-1', role: 'agent', node: 'n1', subject: 'CN=node-1,O=agents' })
const token = createToken({ file, name: 'admin', role: 'admin' })
for (const one of ['crt', 'key']) copyFileSync(path(`server.${one}`), path(`served.${one}`))
const TLS = {
  IPLEDGER_TOKENS: file,
  IPLEDGER_TLS_CERT: path('served.crt'),
  IPLEDGER_TLS_KEY: path('served.key'),
  IPLEDGER_TLS_CLIENT_CA: path('ours.crt'),
}
const plain = await useService()
const service = await serviceOn(plain, TLS)
afterAll(() => service.stop())
const [url, grpcUrl] = [service.url, service.grpcUrl].map((one) => one.replace('http:', 'https:')) as [
  string,
  string,
]
const ca = text('ours.crt')
const as = (name: string | null, more: object = {}) =>
  createClient({ url, tls: { ca, ...(name !== null && certificate(name)) }, ...more })
const reserve = (client: ReturnType<typeof as>, node: string) =>
  client.leases.reserve({ owner: { kind: 'pod', name: `on-${node}`, node } })
const refusal = (call: Promise<unknown>) =>
  call.then(
    () => null,
    (error: unknown) => (error instanceof CallFailed ? error.reason : String(error)),
  )
await as(null, { token }).pools.createPool({ name: 'web', cidr: '10.0.0.0/24' })

test('a certificate stands for the token of its subject, with its role and node', async () => {
  const { leases } = await reserve(as('agent'), 'n1')
  expect(leases[0]).toMatchObject({ address: '10.0.0.1' })
  expect(await refusal(reserve(as('agent'), 'n2'))).toBe('PERMISSION_DENIED')
  const { events } = await as(null, { token }).audit.listEvents({ address: '10.0.0.1' })
  expect(events[0]!.actor).toBe('node-1')
})

test('over gRPC, too', async () => {
  const nodeOptions = { ca, ...certificate('agent') }
  const leases = createConnectClient(LeaseService, createGrpcTransport({ baseUrl: grpcUrl, nodeOptions }))
  expect((await leases.listLeases({})).leases.map(({ owner }) => owner!.node)).toEqual(['n1'])
})

test.each([
  ['of a subject that nobody named', 'stranger'],
  ['that another authority signed', 'forged'],
  ['that is not there', null],
])('a certificate %s is none', async (_, name) => {
  expect(await refusal(reserve(as(name), 'n1'))).toBe('UNAUTHENTICATED')
  // Whoever shows a token is that, whatever the certificate.
  expect(await refusal(as(name, { token }).leases.listLeases({}))).toBeNull()
})

test('a subject that nobody named is said', async () => {
  await expect(as('stranger').leases.listLeases({})).rejects.toThrow(
    'no token is for certificates of CN=node-9;',
  )
})

test('a server of a CA that is not known is told nothing, and the sentence says why', async () => {
  const { code, stderr } = await ipledger({ url }, ['lease', 'list'])
  expect(code).toBe(3)
  expect(stderr).toContain('is not accepted (')
  const env = { IPLEDGER_CA: path('ours.crt'), IPLEDGER_TOKEN: token }
  expect((await ipledger({ url }, ['lease', 'list'], env)).code).toBe(0)
  const otherName = await ipledger({ url: url.replace('127.0.0.1', 'localhost') }, ['lease', 'list'], env)
  expect(otherName.stderr).toMatch(
    /^ipledger: the certificate that https:\/\/localhost:\d+ shows is for another host /,
  )
  expect(otherName.code).toBe(3)
  const withoutTls = await ipledger({ url: url.replace('https:', 'http:') }, ['lease', 'list'], env)
  expect(withoutTls.stderr).toMatch(/^ipledger: http:\/\/127\S+: this port speaks TLS\. Write https:\/\//)
})

test('without TLS nothing is answered', async () => {
  await expect(fetch(`${service.url}/healthz`)).rejects.toThrow('fetch failed')
})

test('a certificate that is replaced is served to new connections', async () => {
  const { port } = new URL(url)
  const served = () =>
    new Promise<string>((resolve, reject) => {
      const socket = connect({ host: '127.0.0.1', port: Number(port), ca }, () => {
        resolve(socket.getPeerX509Certificate()!.serialNumber)
        socket.end()
      }).once('error', reject)
    })
  const first = await served()
  for (const one of ['crt', 'key']) copyFileSync(path(`next.${one}`), path(`served.${one}`))
  await waitFor(async () => (await served()) !== first)
})

test('files that cannot be used leave what was', async () => {
  const files = { cert: path('served.crt'), key: path('served.key') }
  const server = createServer(readTls(files))
  const replaced: object[] = []
  server.setSecureContext = (one) => void replaced.push(one)
  const lines: string[] = []
  const log = pino({ level: 'info' }, { write: (line: string) => lines.push(JSON.parse(line).msg) })
  onTestFinished(keepTls(files, [server], log))
  const good = text('served.crt')
  writeFileSync(files.cert, 'no certificate')
  await waitFor(() => lines.includes('TLS files cannot be used; those read before stay in force'))
  expect(replaced).toEqual([])
  writeFileSync(files.cert, good)
  await waitFor(() => replaced.length === 1)
})

test.each([
  [
    { IPLEDGER_TLS_CERT: path('nowhere') },
    /^TLS cannot be served \(ENOENT.*nowhere, .*served\.key, .*ours\.crt, or the IPLEDGER_TLS_…/,
  ],
  [
    { IPLEDGER_TLS_KEY: path('agent.key'), IPLEDGER_TLS_CERT: path('server.crt') },
    /^TLS cannot be served \(.*key values mismatch/,
  ],
  [
    { IPLEDGER_TLS_KEY: '' },
    /^TLS takes both IPLEDGER_TLS_CERT and IPLEDGER_TLS_KEY: set both, or neither\.$/,
  ],
])('%o ends the start in a sentence', async (wrong, sentence) => {
  const start = serviceOn(plain, { ...TLS, ...wrong })
  await expect(start).rejects.toThrow(StartRefused)
  await expect(start).rejects.toThrow(sentence)
})
