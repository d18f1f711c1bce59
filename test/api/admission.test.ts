/** How many calls a process works on at a time, and what becomes of the others: they are not read. */

import { execFileSync } from 'node:child_process'
import { channel, subscribe, unsubscribe } from 'node:diagnostics_channel'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import * as http from 'node:http'
import * as http2 from 'node:http2'
import { connect } from 'node:net'
import { join } from 'node:path'
import { create, toBinary } from '@bufbuild/protobuf'
import { describe, expect, onTestFinished, test } from 'vitest'
import type { TlsFiles } from '../../src/api/http/tls.ts'
import { ReserveRequestSchema } from '../../src/gen/ipledger/v1/lease_pb.ts'
import type { Ledger } from '../../src/ledger/ledger.ts'
import { useService } from '../support/service.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'
import { waitFor } from '../support/wait-for.ts'
import { newNetwork, serverOn, urls } from './running.ts'

const running = await useService()
const RESERVE = '/ipledger.v1.LeaseService/Reserve'

/** A server that works on 8 calls at a time. `most`: of its ledger's commands at once. */
async function server(
  submit: Ledger['submit'] = (...args) => running.ledger.submit(...args),
  tls?: TlsFiles,
) {
  const counts = { now: 0, most: 0 }
  const { ledger: real } = running
  const ledger: Ledger = {
    image: (network, options) => real.image(network, options),
    now: () => real.now(),
    close: () => real.close(),
    submit: async (...args) => {
      counts.now += 1
      counts.most = Math.max(counts.most, counts.now)
      return submit(...args).finally(() => {
        counts.now -= 1
      })
    },
  }
  const started = await serverOn({ ...running, ledger, callsInFlight: 8, deadlineMs: 60_000, tls })
  onTestFinished(() => started.close())
  return { ...urls(started), counts }
}

/** A certificate that is its own CA. */
function selfSigned(): TlsFiles {
  const directory = temporaryDirectory()
  const [cert, key] = [join(directory, 'crt'), join(directory, 'key')]
  const subject = ['-subj', '/CN=ipledger', '-addext', 'subjectAltName=IP:127.0.0.1', '-days', '2']
  const made = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes']
  execFileSync('openssl', ['req', '-x509', ...made, ...subject, '-keyout', key, '-out', cert], {
    stdio: 'ignore',
  })
  return { cert, key }
}

function openSession(url: string, tls?: TlsFiles): http2.ClientHttp2Session {
  const session =
    tls === undefined
      ? http2.connect(url)
      : http2.connect(url.replace('http:', 'https:'), { ca: readFileSync(tls.cert) })
  session.on('error', () => {})
  onTestFinished(() => session.destroy())
  return session
}

/** Answers the status of gRPC, and what it says. */
async function reserve(session: http2.ClientHttp2Session, network: string, name: string): Promise<string> {
  const message = toBinary(
    ReserveRequestSchema,
    create(ReserveRequestSchema, { network, owner: { kind: 'pod', name } }),
  )
  const prefix = Buffer.alloc(5)
  prefix.writeUInt32BE(message.length, 1)
  const request = session.request({
    ':method': 'POST',
    ':path': RESERVE,
    'content-type': 'application/grpc+proto',
    te: 'trailers',
  })
  let told = 'none'
  const see = (headers: http2.IncomingHttpHeaders) => {
    const { 'grpc-status': status, 'grpc-message': why = '' } = headers
    if (status !== undefined) told = `${status} ${why}`
  }
  request
    .on('response', see)
    .on('trailers', see)
    .on('error', () => {})
  request.resume().end(Buffer.concat([prefix, message]))
  await once(request, 'close')
  return told
}

const bigNetwork = () => newNetwork(running, { cidr: '10.0.0.0/16' })

describe('more calls at once than are worked on', () => {
  test.each([
    ['HTTP/2', () => undefined],
    ['HTTP/2 with TLS', selfSigned],
  ])('over %s are answered all the same, are not read before, and jobs go on', async (_, certificate) => {
    const network = await bigNetwork()
    const tls = certificate()
    const { grpcUrl, counts } = await server(undefined, tls)
    const open = { now: 0, most: 0 }
    const seen = (message: unknown) => {
      const { stream } = message as { readonly stream: http2.ServerHttp2Stream }
      open.now += 1
      open.most = Math.max(open.most, open.now)
      stream.once('close', () => {
        open.now -= 1
      })
    }
    subscribe('http2.server.stream.created', seen)
    onTestFinished(() => void unsubscribe('http2.server.stream.created', seen))
    const sessions = Array.from({ length: 20 }, () => openSession(grpcUrl, tls))
    await Promise.all(sessions.map((session) => once(session, 'remoteSettings')))
    const calls = Array.from({ length: 4_000 }, (_, n) => reserve(sessions[n % 20]!, network, `p${n}`))
    const judged = running.run('judge', network)
    const [told, done] = await Promise.all([Promise.all(calls), judged])
    expect(new Set(told)).toEqual(new Set(['0 ']))
    expect(done).toEqual({ reaped: 0, asked: 0 })
    // Of one turn; of those that may wait, and of connections that were read in the same turn.
    expect(counts.most).toBeLessThanOrEqual(8 + 64)
    expect(open.most).toBeLessThanOrEqual(8 + 2 * 256)
    expect(channel('http2.server.stream.created').hasSubscribers).toBe(true)
    expect(open.most).toBeGreaterThan(0)
  })

  test('over HTTP/1.1 likewise, also of one connection that does not wait for answers', async () => {
    const network = await bigNetwork()
    const { url, counts } = await server()
    const { port } = new URL(url)
    const agent = new http.Agent({ keepAlive: true, maxSockets: 200 })
    onTestFinished(() => agent.destroy())
    const one = async (name: string) => {
      const body = JSON.stringify({ network, owner: { kind: 'pod', name } })
      const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) }
      const request = http.request({ port, path: RESERVE, method: 'POST', agent, headers })
      request.end(body)
      const [response] = (await once(request, 'response')) as [http.IncomingMessage]
      await once(response.resume(), 'end')
      return response.statusCode
    }
    const calls = Array.from({ length: 1_000 }, (_, n) => one(`p${n}`))
    expect(new Set(await Promise.all(calls))).toEqual(new Set([200]))
    expect(counts.most).toBeLessThanOrEqual(8 + 64)

    const socket = connect(Number(port), '127.0.0.1')
    onTestFinished(() => void socket.destroy())
    for (let n = 0; n < 1_000; n += 1) {
      const body = JSON.stringify({ network, owner: { kind: 'pod', name: `q${n}` } })
      socket.write(
        `POST ${RESERVE} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
      )
    }
    let text = ''
    socket.setEncoding('latin1').on('data', (chunk: string) => {
      text += chunk
    })
    await waitFor(() => text.split('HTTP/1.1 200 ').length === 1_001)
    expect(counts.most).toBeLessThanOrEqual(8 + 64)
  })

  test('are refused while none comes to an end, and probes are answered', async () => {
    const network = await bigNetwork()
    const release = Promise.withResolvers<void>()
    const { url, grpcUrl, counts } = await server(async (...args) => {
      await release.promise
      return running.ledger.submit(...args)
    })
    const session = openSession(grpcUrl)
    const kept = Array.from({ length: 8 }, (_, n) => reserve(session, network, `kept${n}`))
    await waitFor(() => counts.now === 8)
    const more = await Promise.all(Array.from({ length: 600 }, (_, n) => reserve(session, network, `p${n}`)))
    for (const told of more) expect(told).toMatch(/^14 the server works on 8 calls, and none of them/)
    const health = session.request({
      ':method': 'POST',
      ':path': '/grpc.health.v1.Health/Check',
      'content-type': 'application/grpc+proto',
      te: 'trailers',
    })
    health.resume().end(Buffer.alloc(5))
    const [trailers] = await once(health, 'trailers')
    expect(trailers['grpc-status']).toBe('0')
    expect((await fetch(`${url}/readyz`)).status).toBe(200)
    release.resolve()
    expect(new Set(await Promise.all(kept))).toEqual(new Set(['0 ']))
    expect(await reserve(session, network, 'after')).toBe('0 ')
  })
})
