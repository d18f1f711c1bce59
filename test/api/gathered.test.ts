/** Reports of sets that stay, which wait a moment for others: who goes away meanwhile, and what ends meanwhile. */
import { ConnectError } from '@connectrpc/connect'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { LivenessService } from '../../src/gen/ipledger/v1/liveness_pb.ts'
import { FEWEST, GATHERED_MS } from '../../src/liveness/gather.ts'
import { findSource } from '../../src/liveness/register.ts'
import { createPool } from '../../src/postgres/connect.ts'
import { createNetwork } from '../support/commands.ts'
import { startProxy } from '../support/proxy.ts'
import { waitFor } from '../support/wait-for.ts'
import { clientOf, type Protocol, post, serverOn, told, urls, useServer } from './running.ts'

const running = await useServer()

/** Longest that the intake keeps a connection (postgres/on-connection.ts). */
const WORK_WITHIN_MS = 60_000

/** What would be sent now, if the test did not say when. */
let held: (() => void) | null = null
let patience: number
function send(): void {
  const flush = held
  held = null
  flush?.()
}

/** Whatever comes to wait until then is sent. */
async function sending<T>(answers: Promise<T>): Promise<T> {
  let settled = false
  const end = () => {
    settled = true
  }
  answers.then(end, end)
  await waitFor(() => {
    send()
    return settled
  })
  return answers
}

beforeEach(() => {
  held = null
  patience = WORK_WITHIN_MS
  const real = globalThis.setTimeout
  vi.spyOn(globalThis, 'setTimeout').mockImplementation(((run: () => void, ms = 0, ...rest: unknown[]) => {
    if (ms !== GATHERED_MS) return real(run, ms === WORK_WITHIN_MS ? patience : ms, ...(rest as []))
    held = run
    return real(() => undefined)
  }) as typeof setTimeout)
})
afterEach(() => {
  vi.useRealTimers()
  vi.restoreAllMocks()
})

let networks = 0
/** Sources of a network of their own that have listed an address each, and a server that gathers what they say next. */
async function gathering(fields: Partial<Parameters<typeof serverOn>[0]> = {}) {
  networks += 1
  const network = `gathered-${networks}`
  await running.ledger.accept(createNetwork(network))
  const server = await serverOn({ ...running, ...fields })
  const call = (method: string, body: object, headers: Readonly<Record<string, string>> = {}) =>
    post(urls(server), `LivenessService/${method}`, { network, ...body }, headers)
  const next = new Map<string, { readonly token: string; readonly unchanged: string }>()
  for (let number = 0; number < FEWEST; number += 1) {
    const source = `source-${number}`
    await call('RegisterSource', { id: source, sight: { ownerKinds: ['pod'] } })
    const { token } = (await call('BeginSnapshot', { source })).body
    const entries = [{ address: `10.0.0.${number + 1}`, kind: 'pod', name: source }]
    const { body } = await call('ReportSnapshot', { source, token, epoch: 'e1', complete: true, entries })
    next.set(source, { token: body.nextToken, unchanged: body.digest })
  }
  async function say(source: string, headers: Readonly<Record<string, string>> = {}) {
    const answer = await call('ReportSnapshot', said(source), headers)
    const { nextToken: token, digest } = answer.body
    if (answer.status === 200) next.set(source, { token, unchanged: digest })
    return answer
  }
  function said(source: string) {
    return { source, epoch: 'e1', complete: true, ...next.get(source) }
  }
  // From now on time stands still, and for the gathering it is the moment after one with as many callers as it takes.
  vi.useFakeTimers({ toFake: ['performance'] })
  const early = await Promise.all([...next.keys()].map((source) => say(source)))
  expect(early.map(({ status }) => status)).toEqual(early.map(() => 200))
  vi.advanceTimersByTime(GATHERED_MS)
  return {
    network,
    server,
    said,
    say,
    /** The answer to come, once it is known that the report waits. */
    async waits(source: string, headers: Readonly<Record<string, string>> = {}) {
      let waits = true
      const answer = say(source, headers).finally(() => {
        waits = false
      })
      await waitFor(() => held !== null || !waits)
      expect(waits, 'it waits for others').toBe(true)
      return { answer }
    },
    sequenceOf: async (source: string) =>
      (await findSource(running.intake.database, network, source))!.standing.lastSequence,
  }
}

test('each source is answered for itself', async () => {
  const { server, say, waits, sequenceOf } = await gathering()
  const { answer: first } = await waits('source-0')
  const others = ['source-1', 'source-2'].map((source) => say(source))
  expect(await sending(Promise.all([first, ...others]))).toMatchObject([
    { status: 200, body: { complete: true, sequence: '3' } },
    { status: 200, body: { complete: true, sequence: '3' } },
    { status: 200, body: { complete: true, sequence: '3' } },
  ])
  expect(await sequenceOf('source-3')).toBe(2)
  await server.close()
})

test('a report whose deadline passed while it waited is not taken', async () => {
  const { server, waits, sequenceOf } = await gathering()
  const { answer } = await waits('source-1', { 'connect-timeout-ms': '100' })
  vi.advanceTimersByTime(100)
  send()
  expect(told(await answer)).toMatchObject({ code: 'unavailable', reason: 'OVERLOADED' })
  expect(await sequenceOf('source-1')).toBe(2)
  await server.close()
})

test.each(['connect json', 'grpc'] satisfies Protocol[])(
  '%s: nor is one whose caller went away',
  async (protocol) => {
    const { server, network, said, waits, sequenceOf } = await gathering()
    const client = clientOf(LivenessService, urls(server), protocol)
    const gone = new AbortController()
    const left = client
      .reportSnapshot({ network, ...said('source-1') }, { signal: gone.signal })
      .catch((error: unknown) => error)
    await waitFor(() => held !== null)
    gone.abort()
    expect(await left).toBeInstanceOf(ConnectError)
    // The server has heard of it by the time it has answered somebody who came later.
    for (let turn = 0; turn < 2; turn += 1) await client.listSources({ network })
    send()
    // Whoever comes later is behind it.
    const { answer } = await waits('source-2')
    send()
    expect(await answer).toMatchObject({ status: 200, body: { sequence: '3' } })
    expect(await sequenceOf('source-1')).toBe(2)
    await server.close()
  },
)

test('stopping answers what waits for others', async () => {
  const { server, waits, sequenceOf } = await gathering()
  const { answer } = await waits('source-0')
  const closed = server.close()
  expect(await Promise.race([closed.then(() => 'closed'), Promise.resolve('open')])).toBe('open')
  send()
  expect(await answer).toMatchObject({ status: 200, body: { sequence: '3' } })
  await closed
  expect(held).toBeNull()
  expect(await sequenceOf('source-0')).toBe(3)
})

test('where the connections are closed already, whoever waits is told that nothing was done', async () => {
  const pool = createPool({ url: running.database.serviceUrl, applicationName: 'test gathered', max: 2 })
  const intake = { ...running.intake, database: pool }
  const { server, waits, sequenceOf } = await gathering({ intake })
  const { answer } = await waits('source-0')
  await pool.end()
  send()
  expect(told(await answer)).toMatchObject({ code: 'unavailable', reason: 'DATABASE_UNAVAILABLE' })
  expect(await sequenceOf('source-0')).toBe(2)
  await server.close()
})

test('a database that goes silent in the middle: each that waits is told so, and nothing stays', async () => {
  const proxy = await startProxy(running.database.serviceUrl)
  const pool = createPool({ url: proxy.url, applicationName: 'test silent', max: 2 })
  const intake = { ...running.intake, database: pool }
  const { server, say, sequenceOf } = await gathering({ intake })
  proxy.silent(true)
  patience = 100
  const answers = ['source-0', 'source-1'].map((source) => say(source))
  for (const answer of await sending(Promise.all(answers))) {
    expect(answer.status).toBe(503)
    expect(told(answer)).toMatchObject({
      code: 'unavailable',
      reason: expect.stringMatching(/^(OUTCOME_UNKNOWN|DATABASE_UNAVAILABLE)$/),
      retryAfter: expect.any(String),
    })
  }
  expect(pool.waitingCount).toBe(0)
  proxy.silent(false)
  proxy.down(true)
  proxy.down(false)
  await waitFor(() => pool.totalCount === 0)
  expect(await sending(say('source-0'))).toMatchObject({ status: 200, body: { sequence: '3' } })
  expect(await sequenceOf('source-0')).toBe(3)
  await server.close()
  await pool.end()
  await proxy.close()
})
