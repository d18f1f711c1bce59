/** What is written of an event is read again. `test/db/event-text.test.ts` shows that SQL writes the same. */
import { createHash } from 'node:crypto'
import { expect, test } from 'vitest'
import { digestOf, eventOf, recordOfText, SEPARATOR, textOf } from '../../src/ledger/event-text.ts'
import { given, lists, network, owner, pool, quarantine, release, reserve, source } from '../core/given.ts'

const claims = [{ pools: ['other'] }]
const { events } = given(
  network,
  pool('10.0.0.0/24', { isDefault: true, labels: { a: 'b' } }),
  pool('10.1.0.0/24', { name: 'other' }),
  source('n1', { node: 'n1' }),
  reserve('short/1', { labels: { a: 'b' }, node: 'n1', confirmWithinMs: 1_000, requestId: 'r' }),
  ...['a name of more than 13 characters', '€'.repeat(1_400), 'another of more than 13'].map((name) =>
    reserve({ ...owner('a/1'), name, uid: name }, { claims }),
  ),
  lists('n1', ['short/1@10.0.0.1']),
  quarantine('10.0.0.9'),
  release('short/1'),
  release('never/1'),
).when(release('later/1')).scene

test.each(events.map((event) => [event.type, event] as const))('%s is read as it was written', (_, event) => {
  const text = textOf('net', event)
  expect(eventOf(text)).toEqual(event)
  if ('record' in event) expect(recordOfText(text)).toEqual(event.record)
})

test('the digest of an event is that of the digest before it and its text', () => {
  expect(digestOf('666f', 'o')).toBe(createHash('sha256').update('foo').digest('hex'))
})

test.each([
  ['of a greater format', (cells: readonly string[]) => cells.with(2, '2')],
  ['with a field more', (cells: readonly string[]) => [...cells, '']],
])('an event %s is refused', (_, change) => {
  const text = change(textOf('net', events[3]!).split(SEPARATOR)).join(SEPARATOR)
  expect(() => eventOf(text)).toThrow(/^event net\/4 has format [12], this process knows 1: /)
})
