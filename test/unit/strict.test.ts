/** Pools that hand out only while the world is seen (DESIGN §4 "Strictness"; M-14). */
import { describe, expect, test } from 'vitest'
import {
  beginEra,
  claim,
  elapsed,
  entry,
  type Fact,
  fenced,
  type Given,
  given,
  lists,
  MINUTE,
  on,
  pool,
  reserve,
  SECOND,
  source,
  web,
} from '../support/given.ts'

const INTERVAL = 30 * SECOND
const strict = (...facts: readonly Fact[]) =>
  given(pool('a', '10.0.0.0/28', { liveness: 'STRICT' }), ...facts)
const asking = (node: string) =>
  reserve({ owner: web(1), placement: on(node), claims: [claim({ pool: 'a' })] })
const refusedFor = (books: Given, node: string) =>
  books.refuse(asking(node), 'LIVENESS_STALE').metadata.sources

describe('a STRICT pool', () => {
  test('without a source hands out nothing', () => {
    expect(strict().refuse(asking('n1'), 'LIVENESS_STALE').message).toContain('no source has reported')
  })

  test('hands out while the sources of the asking node are fresh', () => {
    const books = strict(source('agent', { node: 'n1', intervalMs: INTERVAL }), lists('agent'))
    books.wait(3 * INTERVAL)
    books.when(asking('n1')).then('lease.reserved 10.0.0.1')
  })

  test('not when the asking node’s has been silent', () => {
    const books = strict(source('agent', { node: 'n1', intervalMs: INTERVAL }), lists('agent'))
    books.wait(3 * INTERVAL + 1)
    expect(refusedFor(books, 'n1')).toBe('agent')
  })

  test('not when a source of the whole network has been silent', () => {
    const books = strict(
      source('docker', { intervalMs: INTERVAL }),
      lists('docker'),
      elapsed(3 * INTERVAL + 1),
      source('agent', { node: 'n1' }),
      lists('agent'),
    )
    expect(refusedFor(books, 'n1')).toBe('docker')
  })

  test('is not stopped by the silence of another node', () => {
    const books = strict(
      source('other', { node: 'n2', intervalMs: INTERVAL }),
      lists('other'),
      elapsed(MINUTE * 10),
      source('agent', { node: 'n1' }),
      lists('agent'),
    )
    books.when(asking('n1')).then('lease.reserved 10.0.0.1')
  })

  test('is stopped by another node that has never reported', () => {
    const books = strict(source('other', { node: 'n2' }), source('agent', { node: 'n1' }), lists('agent'))
    expect(refusedFor(books, 'n1')).toBe('other')
  })

  test('is stopped by a source that warms up: the first list of a start is empty (7.1, cilium#9888)', () => {
    const books = strict(
      source('other', { node: 'n2', warm: false }),
      lists('other'),
      source('agent', { node: 'n1' }),
      lists('agent'),
    )
    expect(refusedFor(books, 'n1')).toBe('other')
    books.ledger.world.sources.set('other', { ...books.ledger.world.sources.get('other')!, warm: true })
    books.when(asking('n1')).then('lease.reserved 10.0.0.1')
  })

  test('hands out nothing to a node that nobody sees, nor to a caller that names none', () => {
    const books = strict(source('agent', { node: 'n1' }), lists('agent'))
    expect(refusedFor(books, 'n2')).toBe('')
    expect(refusedFor(books, '')).toBe('')
    source('docker')(books.ledger)
    lists('docker')(books.ledger)
    books.when(asking('')).then('lease.reserved 10.0.0.1')
  })

  test('counts no source that is in dry run', () => {
    const books = strict(source('agent', { node: 'n1', state: 'REGISTERED' }), lists('agent'))
    expect(refusedFor(books, 'n1')).toBe('')
  })

  test('waits for no boot that was fenced, and for the next one', () => {
    const books = strict(
      source('other', { node: 'n2' }),
      fenced('n2', 'b1'),
      source('agent', { node: 'n1' }),
      lists('agent'),
    )
    books.when(asking('n1')).then('lease.reserved 10.0.0.1')
    source('other', { node: 'n2', epoch: 'b2' })(books.ledger)
    expect(
      books.refuse(
        reserve({ owner: web(2), placement: on('n1'), claims: [claim({ pool: 'a' })] }),
        'LIVENESS_STALE',
      ).metadata.sources,
    ).toBe('other')
  })

  test('waits for reports of this era', () => {
    const books = strict(source('agent', { node: 'n1' }), lists('agent'))
    books.accept(beginEra(1, { recovering: false }))
    expect(refusedFor(books, 'n1')).toBe('agent')
    lists('agent')(books.ledger)
    books.when(asking('n1')).then('lease.reserved 10.0.0.1')
  })

  test('passes over what is seen live, like any', () => {
    const books = strict(source('agent', { node: 'n1' }), lists('agent', entry('10.0.0.1', null)))
    books.when(asking('n1')).then('lease.reserved 10.0.0.2')
  })

  test('an AVAILABLE one goes by the books', () => {
    const books = given(pool('a', '10.0.0.0/28'), source('agent', { node: 'n1' }))
    books.when(asking('n1')).then('lease.reserved 10.0.0.1')
  })
})
