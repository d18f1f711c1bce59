/** Whatever the shell has read of a pool, an address that still rests, or that somebody sees, is no candidate. */
import { expect, test } from 'vitest'
import {
  candidates,
  emptyBooks,
  type LiveSighting,
  type PoolBook,
  placeKey,
  type ReleasedAddress,
} from '../../src/core/books.ts'
import { buildPool, NO_COUNTS, parsePoolSettings } from '../../src/core/pool.ts'

const NOW = 1_000_000

test('a released address is a candidate once it has cooled and nobody sees it', () => {
  const settings = parsePoolSettings({ name: 'web', cidr: '10.0.0.0/29' })
  if ('reason' in settings) throw new Error(settings.message)
  const pool = buildPool(settings, { network: 'default', poolId: 7, version: 2, createdAt: 0, updatedAt: 0 })
  const released = (address: string, availableAt: number): [string, ReleasedAddress] => [
    address,
    {
      poolId: 7,
      address,
      prefixLength: 32,
      availableAt,
      releasedSeq: 9,
      holderKey: '',
      removalConfirmed: true,
    },
  ]
  const book: PoolBook = {
    pool,
    counts: NO_COUNTS,
    untouched: [],
    untouchedUpTo: null,
    cooled: new Map([
      released('10.0.0.1', NOW - 1),
      released('10.0.0.2', NOW),
      released('10.0.0.3', NOW + 1),
      released('10.0.0.4', NOW - 5),
    ]),
    cooledComplete: true,
    sighted: new Set(),
    sightedUpTo: null,
  }
  const books = { ...emptyBooks('default'), now: NOW }
  const seen: LiveSighting = {
    source: 's',
    address: '10.0.0.4',
    owner: null,
    node: '',
    boot: '',
    head: 9,
    listedAt: 9,
  }
  for (const address of book.cooled.keys()) {
    const live = address === '10.0.0.4' ? [seen] : []
    books.sightings.set(placeKey(address, 32), { live, lastSeenAt: null })
  }
  const passedOver = new Set<string>()
  expect([...candidates(books, book, passedOver)]).toEqual(['10.0.0.1', '10.0.0.2'])
  expect([...passedOver]).toEqual(['10.0.0.4'])
})
