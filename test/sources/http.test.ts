/** Sources of kind http, against a real HTTP server: what is listed, what is gone, and all that is neither. */
import { describe, expect, test } from 'vitest'
import { type LookUp, MOST_ENTRIES, type Question } from '../../src/sources/source.ts'
import { declaration, owner, useSource } from '../support/asked.ts'
import { type Answering, type Asked, breakOff, json, says, useEndpoint } from '../support/endpoint.ts'

const endpoint = await useEndpoint()
const elsewhere = await useEndpoint()

const settings = {
  listUrl: `${endpoint.url}/list`,
  lookUpUrl: `${endpoint.url}/workloads/{kind}/{uid}?name={name}`,
}
const source = useSource(declaration('http', settings), { token: 'bearer-of-the-orchestrator' })

const WEB = { address: '10.0.0.5', kind: 'vm', name: 'web', uid: 'u1', state: 'running' }
const DB = { address: '10.0.0.6', kind: 'vm', name: 'db', uid: 'u2' }

const patience = () => AbortSignal.timeout(60_000)
const list = () => source.list(patience())

/** Pages by their number in `page`; each names the next. */
function pages(all: readonly object[]): Answering {
  return ({ query }, response) => {
    const at = Number(query.page ?? 0)
    json(response, 200, {
      epoch: 'e1',
      complete: true,
      entries: [],
      ...(at + 1 < all.length && { next: `?page=${at + 1}` }),
      ...all[at],
    })
  }
}

describe('list', () => {
  test('is complete when all pages are there, and each was asked for with the token', async () => {
    endpoint.answer(pages([{ entries: [WEB] }, { entries: [DB] }, {}]))
    expect(await list()).toEqual({ epoch: 'e1', complete: true, because: '', entries: [WEB, DB] })
    expect(endpoint.asked.map(({ query }) => query.page)).toEqual([undefined, '1', '2'])
    for (const { headers } of endpoint.asked) {
      expect(headers.authorization).toBe('Bearer bearer-of-the-orchestrator')
    }
  })

  test('says that it is partial', async () => {
    endpoint.answer(pages([{ entries: [WEB], complete: false }, { entries: [DB] }]))
    expect(await list()).toMatchObject({ complete: false, entries: [WEB, DB] })
  })

  test.each<[string, readonly object[], RegExp]>([
    ['a page of another epoch', [{ entries: [WEB] }, { epoch: 'e2', entries: [DB] }], /is of e2/],
    ['a page that leads back', [{ entries: [WEB] }, { next: '?page=1' }], /read already/],
    ['a page that leads to the first', [{ entries: [WEB], next: `${endpoint.url}/list` }], /read already/],
    ['a page that is none', [{ entries: [WEB] }, { entries: 'none' }], /cannot be read/],
    [
      'a page without a word on completeness',
      [{ entries: [WEB] }, { complete: undefined }],
      /cannot be read/,
    ],
    ['an entry without an address', [{ entries: [WEB, { kind: 'vm', uid: 'u3' }] }], /1 cannot be read/],
    ['a next page that is no URL', [{ entries: [WEB], next: 'http://[' }], /another origin/],
  ])('with %s it is partial, and what was read stays', async (_, all, why) => {
    endpoint.answer(pages(all))
    const listing = await list()
    expect(listing).toMatchObject({ epoch: 'e1', complete: false })
    expect(listing.because).toMatch(why)
    expect(listing.entries).toContainEqual(WEB)
  })

  test('an entry that cannot be read still says that its address is in use', async () => {
    endpoint.answer(pages([{ entries: [{ ...WEB, uid: 7 }] }]))
    expect(await list()).toMatchObject({ complete: false, entries: [{ address: '10.0.0.5' }] })
  })

  test('a next page of another origin is not read, and not told the token', async () => {
    elsewhere.answer(says({ epoch: 'e1', complete: true, entries: [] }))
    endpoint.answer(pages([{ entries: [WEB], next: `${elsewhere.url}/list` }]))
    expect(await list()).toMatchObject({ complete: false, entries: [WEB] })
    expect(elsewhere.asked).toEqual([])
  })

  test.each<[string, Answering]>([
    ['not found', says({ epoch: 'e1', complete: true, entries: [] }, 404)],
    ['an answer without an epoch', says({ complete: true, entries: [] })],
    [
      'an answer that is not UTF-8',
      (_, response) =>
        void response.end(Buffer.from('{"epoch":"\xe9","complete":true,"entries":[]}', 'latin1')),
    ],
    ['an epoch of 300 bytes', pages([{ epoch: 'e'.repeat(300) }])],
    ['an epoch with control characters', pages([{ epoch: 'e\n1' }])],
  ])('%s is no list at all', async (_, answering) => {
    endpoint.answer(answering)
    await expect(list()).rejects.toThrow()
  })

  test('one that is longer than can be taken is partial, and protects with what can', async () => {
    const address = (n: number) => `10.${n >> 16}.${(n >> 8) & 255}.${n & 255}`
    const entries = Array.from({ length: MOST_ENTRIES + 1 }, (_, n) => ({ address: address(n) }))
    endpoint.answer(says({ epoch: 'e1', complete: true, entries }))
    const listing = await list()
    const because = `it lists more than ${MOST_ENTRIES} entries`
    expect(listing).toMatchObject({ complete: false, because })
    expect(listing.entries).toHaveLength(MOST_ENTRIES)
  }, 30_000)

  test('one without an end is partial, and is not asked for for ever', async () => {
    const endless =
      (entries: readonly object[]): Answering =>
      (asked, response) =>
        json(response, 200, {
          epoch: 'e1',
          complete: true,
          entries,
          next: `?page=${Number(asked.query.page ?? 0) + 1}`,
        })
    endpoint.answer(endless(Array.from({ length: MOST_ENTRIES / 2 }, () => DB)))
    expect(await list()).toMatchObject({ complete: false })
    expect(endpoint.asked).toHaveLength(3)
    endpoint.answer(endless([]))
    expect(await list()).toMatchObject({ because: 'page 1001: there are more than 1000 pages' })
  }, 30_000)

  test('a redirect is not followed', async () => {
    elsewhere.answer(pages([{ entries: [WEB] }]))
    endpoint.answer((_, response) => void response.writeHead(302, { location: elsewhere.url }).end())
    await expect(list()).rejects.toThrow('it answers 302')
    expect(elsewhere.asked).toEqual([])
  })

  test('one that breaks off after the first page is partial', async () => {
    endpoint.answer((asked, response) => {
      if (asked.query.page === undefined) return pages([{ entries: [WEB] }, {}])(asked, response)
      breakOff(response, { epoch: 'e1', complete: true, entries: [DB] })
    })
    expect(await list()).toMatchObject({ complete: false, entries: [WEB] })
  })
})

const question = (fields: Partial<Question['owner']> = {}): Question => ({
  owner: owner({ kind: 'vm', name: 'web', uid: 'u1', ...fields }),
  address: '10.0.0.5',
  node: 'n1',
  epoch: 'e1',
})

describe('look-up', () => {
  const ask = (asked = question()): Promise<LookUp> => source.lookUp(asked, patience())
  const ENDED = { answer: 'terminal', uid: 'u1', since: '2026-01-31T12:00:00Z' }

  test('asks for this very workload', async () => {
    endpoint.answer(says({ answer: 'live', uid: 'a/b?c', detail: 'paused' }))
    const found = await ask(question({ uid: 'a/b?c', name: 'tenant/web&1' }))
    expect(found).toEqual({ answer: 'live', detail: 'paused' })
    const [{ path, query }] = endpoint.asked as [Asked]
    expect([path, query]).toEqual(['/workloads/vm/a%2Fb%3Fc', { name: 'tenant/web&1' }])
  })

  test.each<[string, number, object, LookUp['answer']]>([
    ['gone', 200, { answer: 'gone', uid: 'u1' }, 'gone'],
    ['gone with 404, the other shape of it', 404, { answer: 'gone', uid: 'u1' }, 'gone'],
    ['a 404 without a word', 404, {}, 'error'],
    ['a 404 of something else', 404, { error: 'no route' }, 'error'],
    ['gone of another', 200, { answer: 'gone', uid: 'u2' }, 'unknown'],
    ['gone of nobody', 404, { answer: 'gone' }, 'unknown'],
    ['gone of the name, where a uid was asked for', 200, { answer: 'gone', name: 'web' }, 'unknown'],
    ['terminal without since when', 200, { answer: 'terminal', uid: 'u1' }, 'unknown'],
    ['terminal of another', 200, { ...ENDED, uid: 'u2' }, 'unknown'],
    ['terminal since no time that was set (Go)', 200, { ...ENDED, since: '0001-01-01T00:00:00Z' }, 'unknown'],
    ['terminal since 1970', 200, { ...ENDED, since: '1970-01-01T01:00:00+01:00' }, 'unknown'],
    ['terminal, with 404', 404, ENDED, 'unknown'],
    ['gone, in the epoch of the list', 200, { answer: 'gone', uid: 'u1', epoch: 'e1' }, 'gone'],
    ['gone, in another epoch', 404, { answer: 'gone', uid: 'u1', epoch: 'e2' }, 'unknown'],
    ['terminal, in another epoch', 200, { ...ENDED, epoch: 'e2' }, 'unknown'],
    ['terminal since no time', 200, { ...ENDED, since: 'yesterday' }, 'error'],
    ['live', 404, { answer: 'live', uid: 'u1' }, 'live'],
    ['a word nobody knows', 200, { answer: 'deleted', uid: 'u1' }, 'unknown'],
    ['unknown', 200, { answer: 'unknown', uid: 'u1' }, 'unknown'],
    ['an empty object', 200, {}, 'error'],
    ['gone with 500', 500, { answer: 'gone', uid: 'u1' }, 'error'],
    ['gone with 403', 403, { answer: 'gone', uid: 'u1' }, 'error'],
    ['gone with 410', 410, { answer: 'gone', uid: 'u1' }, 'error'],
  ])('%s', async (_, status, body, expected) => {
    endpoint.answer(says(body, status))
    expect(await ask()).toMatchObject({ answer: expected })
  })

  test('terminal says since when', async () => {
    endpoint.answer(says(ENDED))
    expect(await ask()).toEqual({ answer: 'terminal', since: Date.parse(ENDED.since), detail: '' })
  })

  test('of an owner that gave one of uid and name goes by the name', async () => {
    const nameless = question({ uid: 'web' })
    endpoint.answer(says({ answer: 'gone', name: 'web' }))
    expect(await ask(nameless)).toMatchObject({ answer: 'gone' })
    endpoint.answer(says({ answer: 'gone', uid: 'web' }))
    expect(await ask(nameless)).toMatchObject({ answer: 'unknown' })
  })

  test.each<[string, Answering]>([
    ['a redirect', (_, response) => void response.writeHead(301, { location: elsewhere.url }).end()],
    ['an endless answer', says({ answer: 'gone', uid: 'u1', x: 'x'.repeat(100_000) })],
  ])('%s is an error', async (_, answering) => {
    elsewhere.answer(says({ answer: 'gone', uid: 'u1' }))
    endpoint.answer(answering)
    expect(await source.lookUp(question(), AbortSignal.timeout(200))).toMatchObject({ answer: 'error' })
    expect(elsewhere.asked).toEqual([])
  })

  test.each(['..', '.'])('of a uid or name that is a step in a path (%s) nothing is asked', async (step) => {
    endpoint.answer(says({ answer: 'gone', uid: 'u1', name: step }))
    expect(await ask(question({ uid: step }))).toMatchObject({ answer: 'unknown' })
    expect(await ask(question({ name: step }))).toMatchObject({ answer: 'unknown' })
    expect(endpoint.asked).toEqual([])
  })
})
