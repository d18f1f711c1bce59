/**
 * Sources are asked each in its turn: the head first, by one worker at a time, and whatever comes of it, nothing is
 * missed that was not looked for.
 */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, afterEach, beforeEach, expect, test } from 'vitest'
import { readConfig } from '../../src/config.ts'
import type { JobContext } from '../../src/jobs/job.ts'
import { createPullSources } from '../../src/jobs/pull-sources.ts'
import { startWorker } from '../../src/jobs/worker.ts'
import { openLedger } from '../../src/ledger/open.ts'
import { type AskedSources, createAskedSources } from '../../src/liveness/asked.ts'
import { enableSource, findSource, retireSource } from '../../src/liveness/register.ts'
import type { GivenEntry } from '../../src/liveness/source.ts'
import { createPool as createConnections } from '../../src/postgres/connect.ts'
import { claim, createNetwork, createPool, owner, reserve } from '../support/commands.ts'
import { useTestDatabase } from '../support/database.ts'
import { type Answering, breakOff, hang, json, openEndpoint, useEndpoint } from '../support/endpoint.ts'
import { live, pod, register, settled, sightings, useIntake } from '../support/intake.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'
import { expectVerified } from '../support/verified.ts'
import { waitFor } from '../support/wait-for.ts'

const database = await useTestDatabase()
const intake = useIntake(database.serviceUrl)
const endpoint = await useEndpoint()
const ledger = openLedger({ url: database.serviceUrl, log: { warn: () => {}, error: () => {} } })
const connections = createConnections({ url: database.serviceUrl, applicationName: 'test pull', max: 4 })

const logged: { readonly fields: object; readonly message: string }[] = []
const write = (fields: object, message: string): void => void logged.push({ fields, message })
const log = { warn: write, info: write, debug: write, error: write } as unknown as JobContext['log']

let network: string
let asked: AskedSources
let count = 0

beforeEach(async () => {
  count += 1
  network = `n${count}`
  logged.length = 0
  asked = createAskedSources({ log: { warn: () => {} }, secrets: {} })
  await ok(createNetwork(network))
  await ok(createPool({ name: 'web', cidr: '10.0.0.0/24' }, { network }))
})
afterEach(async () => {
  await asked.close()
  // What this test registered is due in every later run.
  await connections.query(
    `update ipledger.source set state = 'RETIRED', retired_at = now(), retired_by = 'test'`,
  )
})
afterAll(async () => {
  await ledger.close()
  await connections.end()
  await expectVerified(database, { full: true })
})

async function ok(command: Parameters<typeof ledger.submit>[0]) {
  const outcome = await ledger.submit(command)
  if (!outcome.ok) throw new Error(`${outcome.refusal.reason}: ${outcome.refusal.message}`)
  return outcome.answer.leases
}

const HOUR = 3_600_000

function registerAsked(id: string, fields: { readonly url?: string; readonly intervalMs?: number } = {}) {
  const { url = endpoint.url, intervalMs = HOUR } = fields
  const settings = { listUrl: `${url}/list/${id}`, lookUpUrl: `${url}/of/{uid}` }
  return register(intake, network, id, { kind: 'http', settings, intervalMs })
}

function context(fields: Partial<JobContext> = {}): JobContext {
  return {
    database: connections,
    ledger,
    intake,
    asked,
    log,
    signal: new AbortController().signal,
    ...fields,
  }
}

const pullOnce = (fields: Partial<JobContext> = {}) => createPullSources({ slotMs: 0 })(context(fields))

function lists(...entries: readonly GivenEntry[]): Answering {
  return (_, response) => json(response, 200, { epoch: 'e1', complete: true, entries })
}

/** The next turn of all is now. */
async function letTimePass(): Promise<void> {
  await connections.query(
    `update ipledger.turn set taken_at = taken_at - interval '1 hour', next_at = taken_at - interval '1 hour' where network_id = $1`,
    [network],
  )
}

type Turn = {
  readonly source_id: string
  readonly failure: string
  readonly next_at: number
  readonly taken_at: number
}

async function turns(): Promise<readonly Turn[]> {
  const { rows } = await connections.query<Turn>(
    'select source_id, failure, next_at, taken_at from ipledger.turn where network_id = $1 order by source_id',
    [network],
  )
  return rows
}

test('what a source lists is sighted at once, and its next turn comes with its interval', async () => {
  await registerAsked('a')
  endpoint.answer(lists(pod('10.0.0.5'), pod('10.0.0.6')))
  expect(await pullOnce()).toMatchObject({ pulled: 1, failed: 0 })
  expect(await live(intake, network, 'a')).toEqual(['10.0.0.5', '10.0.0.6'])
  const [turn] = await turns()
  expect(turn).toMatchObject({ source_id: 'a', failure: '' })
  expect(turn!.next_at - turn!.taken_at).toBe(HOUR)

  expect(await pullOnce()).toMatchObject({ pulled: 0, failed: 0 })
  expect(endpoint.asked).toHaveLength(1)
  await letTimePass()
  expect(await pullOnce()).toMatchObject({ pulled: 1 })
})

test('the head is read before the source is asked', async () => {
  await registerAsked('a')
  await enableSource(intake.database, { network, id: 'a', by: 'test' })
  let token = 0
  // Reserved while the source was listing: its list says nothing about it.
  endpoint.answer((request, response) => {
    void ok(
      reserve({ network, owner: owner({ name: 'default/late' }), claims: [claim({ pool: 'web' })] }),
    ).then(([lease]) => {
      token = lease!.fencingToken
      lists()(request, response)
    })
  })
  await pullOnce()
  const source = (await findSource(intake.database, network, 'a'))!
  expect(token).toBeGreaterThan(0)
  expect(source.standing.complete!.head).toBe(token - 1)
})

test('what an enabled source finds goes to the ledger at once', async () => {
  await registerAsked('a')
  await enableSource(intake.database, { network, id: 'a', by: 'test' })
  const [lease] = await ok(
    reserve({
      network,
      owner: owner({ name: 'default/web-0', uid: 'u1' }),
      claims: [claim({ pool: 'web' })],
    }),
  )
  endpoint.answer(lists(pod(lease!.address, { name: 'default/web-0', uid: 'u1' })))
  expect(await pullOnce()).toMatchObject({ pulled: 1, sighted: 1 })
  const { rows } = await connections.query(
    'select state from ipledger.lease where network_id = $1 and address = $2::inet',
    [network, lease!.address],
  )
  expect(rows).toEqual([{ state: 'ACTIVE' }])
})

test('by two workers at once each source is asked once', async () => {
  for (const id of ['a', 'b', 'c']) await registerAsked(id)
  endpoint.answer(lists(pod('10.0.0.5')))
  const [one, other] = await Promise.all([pullOnce(), pullOnce()])
  expect(one.pulled! + other.pulled!).toBe(3)
  expect(endpoint.asked.map(({ path }) => path).sort()).toEqual(['/list/a', '/list/b', '/list/c'])
})

test('the turn of a killed worker is over by itself', async () => {
  await registerAsked('a')
  await connections.query(
    `insert into ipledger.turn (network_id, source_id, taken_at, taken_by, next_at, failure)
     values ($1, 'a', now(), 'killed', now() + interval '2 minutes', '')`,
    [network],
  )
  endpoint.answer(lists(pod('10.0.0.5')))
  expect(await pullOnce()).toMatchObject({ pulled: 0, failed: 0 })
  expect(endpoint.asked).toEqual([])
  await letTimePass()
  expect(await pullOnce()).toMatchObject({ pulled: 1 })
})

test('a worker that was stopped in its turn comes too late to end anything', async () => {
  await registerAsked('a', { intervalMs: 1_000 })
  await enableSource(intake.database, { network, id: 'a', by: 'test' })
  const held: (() => void)[] = []
  const hold: Answering = (request, response) => void held.push(() => lists()(request, response))
  // The first is answered, with nothing, only when others were.
  endpoint.answer(hold)
  const stopped = pullOnce()
  await waitFor(() => held.length === 1, { what: 'the first worker to ask' })
  endpoint.answer(lists(pod('10.0.0.5')))
  for (let look = 0; look < 4; look += 1) {
    await letTimePass()
    expect(await pullOnce()).toMatchObject({ pulled: 1 })
  }
  endpoint.answer(hold)
  await letTimePass()
  const another = pullOnce()
  await waitFor(() => held.length === 2, { what: 'another worker to ask' })
  const before = await turns()
  held[0]!()
  expect(await stopped).toMatchObject({ pulled: 1 })
  expect(await live(intake, network, 'a')).toEqual(['10.0.0.5'])
  const { standing } = (await findSource(intake.database, network, 'a'))!
  expect(standing.partialBecause).toEqual(['OUT_OF_SEQUENCE'])
  // The turn is another's now, and not for it to end.
  expect(await turns()).toEqual(before)
  held[1]!()
  await another
})

test.each<[string, Answering, RegExp]>([
  ['is down', (_, response) => void response.destroy(), /socket hang up/],
  ['answers with an error', (_, response) => json(response, 503, {}), /503/],
  ['answers junk', (_, response) => void response.end('junk'), /cannot be read/],
  [
    'breaks off',
    (_, response) => breakOff(response, { epoch: 'e1', complete: true, entries: [] }),
    /aborted/,
  ],
])('a source that %s has said nothing', async (_, answering, why) => {
  await registerAsked('a')
  endpoint.answer(lists(pod('10.0.0.5')))
  await pullOnce()
  const before = (await findSource(intake.database, network, 'a'))!.standing
  for (let look = 0; look < 3; look += 1) {
    await letTimePass()
    endpoint.answer(answering)
    expect(await pullOnce()).toMatchObject({ pulled: 0, failed: 1 })
  }
  expect(await live(intake, network, 'a')).toEqual(['10.0.0.5'])
  expect((await findSource(intake.database, network, 'a'))!.standing).toEqual(before)
  expect((await turns())[0]!.failure).toMatch(why)
})

test('a failure is told once by a worker, and that it is over', async () => {
  await registerAsked('a')
  const pull = createPullSources({ slotMs: 0 })
  endpoint.answer((_, response) => json(response, 503, {}))
  for (let look = 0; look < 3; look += 1) {
    await pull(context())
    await letTimePass()
  }
  endpoint.answer(lists())
  await pull(context())
  expect(logged).toEqual([
    {
      fields: { network, source: 'a', why: 'it answers 503' },
      message: 'a source did not list all that is there',
    },
    { fields: { network, source: 'a' }, message: 'a source answers again' },
  ])
})

test('an incomplete list only protects', async () => {
  await registerAsked('a')
  endpoint.answer(lists(pod('10.0.0.5')))
  await pullOnce()
  endpoint.answer((_, response) =>
    json(response, 200, { epoch: 'e1', complete: false, entries: [pod('10.0.0.6')] }),
  )
  await letTimePass()
  await pullOnce()
  expect(await live(intake, network, 'a')).toEqual(['10.0.0.5', '10.0.0.6'])
  const { partialBecause, counted } = (await findSource(intake.database, network, 'a'))!.standing
  expect({ partialBecause, counted }).toEqual({ partialBecause: ['DECLARED'], counted: 0 })
  expect((await turns())[0]!.failure).toBe('it says so itself')
})

test('one that hangs holds up no other, and a stopped worker leaves its turn to the next', async () => {
  await registerAsked('a', { intervalMs: 1_000 })
  const hanging = await openEndpoint()
  hanging.answer(hang)
  await registerAsked('b', { url: hanging.url })
  endpoint.answer(lists(pod('10.0.0.5')))
  const stopping = new AbortController()
  const running = createPullSources({ slotMs: HOUR })(context({ signal: stopping.signal }))
  await waitFor(() => endpoint.asked.length >= 3, { what: 'the other source to be asked three times' })
  expect(hanging.asked).toHaveLength(1)
  stopping.abort()
  expect(await running).toMatchObject({ failed: 0 })
  const left = (await turns()).find(({ source_id }) => source_id === 'b')!
  expect(left.next_at).toBe(left.taken_at)
  await hanging.close()
})

test('eight are asked at a time, and then the others', async () => {
  for (let one = 0; one < 20; one += 1) await registerAsked(`s${one}`)
  const held: (() => void)[] = []
  endpoint.answer((request, response) => void held.push(() => lists()(request, response)))
  const pulling = pullOnce()
  await waitFor(() => held.length === 8, { what: 'eight to be asked' })
  // Time enough to ask a ninth.
  for (let query = 0; query < 50; query += 1) await turns()
  expect(endpoint.asked).toHaveLength(8)
  endpoint.answer(lists())
  for (const answer of held) answer()
  expect(await pulling).toMatchObject({ pulled: 20 })
})

test('those that did not answer the last time leave half of the places to the others', async () => {
  const hanging = await openEndpoint()
  hanging.answer(hang)
  for (let one = 0; one < 12; one += 1) {
    await registerAsked(`s${one}`, { url: hanging.url })
    await connections.query(
      `insert into ipledger.turn values ($1, $2, now() - interval '3 minutes', 'test', now() - interval '2 minutes', 'no answer')`,
      [network, `s${one}`],
    )
  }
  await registerAsked('well', { intervalMs: 1_000 })
  await connections.query(
    `insert into ipledger.turn values ($1, 'well', now() - interval '1 minute', 'test', now(), '')`,
    [network],
  )
  endpoint.answer(lists(pod('10.0.0.5')))
  const stopping = new AbortController()
  const running = createPullSources({ slotMs: HOUR })(context({ signal: stopping.signal }))
  await waitFor(() => endpoint.asked.length >= 2, { what: 'the one that answers to be asked twice' })
  expect(hanging.asked).toHaveLength(4)
  stopping.abort()
  await running
  await hanging.close()
})

test('what a source says of its failure is kept, whatever it says, and stops no other', async () => {
  await registerAsked('a')
  await registerAsked('b')
  endpoint.answer((request, response) =>
    request.path === '/list/a' ? json(response, 500, {}) : lists(pod('10.0.0.5'))(request, response),
  )
  const list = () => Promise.reject(new Error('cut\u0000off'))
  const broken: AskedSources = {
    ...asked,
    get: (source) => (source.id === 'a' ? { ...asked.get(source), list } : asked.get(source)),
  }
  expect(await pullOnce({ asked: broken })).toMatchObject({ pulled: 1, failed: 1 })
  expect((await turns()).map(({ failure }) => failure)).toEqual(['cut off', ''])
})

test('a worker asks right after its start, with the secrets of its file', async () => {
  await registerAsked('a')
  endpoint.answer(lists(pod('10.0.0.5')))
  const file = join(temporaryDirectory(), 'secrets.json')
  writeFileSync(file, JSON.stringify({ [`${network}/a`]: { token: 'bearer-of-the-file' } }))
  const config = { ...readConfig({ IPLEDGER_SOURCE_SECRETS: file }), logLevel: 'silent' as const }
  const { jobsUrl, serviceUrl } = database
  const worker = await startWorker({ jobsUrl, serviceUrl, config, log })
  try {
    await waitFor(async () => (await live(intake, network, 'a')).length > 0, {
      what: 'the source to be asked',
    })
    expect(endpoint.asked[0]!.headers.authorization).toBe('Bearer bearer-of-the-file')
  } finally {
    await worker.stop()
  }
})

test('one that is retired is asked no more, and one that reports by itself is never asked', async () => {
  await registerAsked('a')
  await register(intake, network, 'agent')
  settled(await retireSource(intake.database, { network, id: 'a', by: 'test' }))
  endpoint.answer(lists())
  expect(await pullOnce()).toMatchObject({ pulled: 0, failed: 0 })
  expect(endpoint.asked).toEqual([])
})

test('what is elsewhere is another source', async () => {
  await registerAsked('a')
  endpoint.answer(lists(pod('10.0.0.5')))
  await pullOnce()
  const elsewhere = await openEndpoint()
  elsewhere.answer(lists(pod('10.0.0.6')))
  await expect(registerAsked('a', { url: elsewhere.url })).rejects.toThrow('ILLEGAL_STATE')
  settled(await retireSource(intake.database, { network, id: 'a', by: 'test' }))
  await registerAsked('b', { url: elsewhere.url })
  await letTimePass()
  await pullOnce()
  expect(elsewhere.asked).toHaveLength(1)
  expect(await live(intake, network, 'a')).toEqual([])
  expect(await live(intake, network, 'b')).toEqual(['10.0.0.6'])
  await elsewhere.close()
})

test('a source whose kind cannot be opened is silent, and says why', async () => {
  await register(intake, network, 'cluster', {
    kind: 'kubernetes',
    settings: { context: 'none' },
    intervalMs: HOUR,
  })
  expect(await pullOnce()).toMatchObject({ failed: 1 })
  expect(await sightings(intake, network, 'cluster')).toEqual([])
  expect((await turns())[0]!.failure).not.toBe('')
})
