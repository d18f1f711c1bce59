/** A layer over a map is the copy it stands for, without having been copied. */
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { emptyBooks, forkBooks } from '../../src/core/books.ts'
import { Layer } from '../../src/core/layer.ts'

const key = fc.integer({ min: 0, max: 7 })
const step = fc.oneof(
  fc.record({ what: fc.constant('set' as const), key, value: fc.integer() }),
  fc.record({ what: fc.constant('delete' as const), key }),
  fc.record({ what: fc.constant('get' as const), key }),
  fc.record({ what: fc.constant('clear' as const) }),
)

test('like a copy, in what it holds and in which order, and the map below stays as it was', () => {
  fc.assert(
    fc.property(
      fc.array(fc.tuple(key, fc.integer())),
      fc.array(step, { maxLength: 30 }),
      fc.array(step, { maxLength: 30 }),
      (before, steps, later) => {
        const below = new Map(before)
        const layer = new Layer(below)
        const copy = new Map(below)
        const walk = (maps: readonly Map<number, number>[], all: typeof steps) => {
          for (const one of all) {
            const [found, expected] = maps.map((map) => taken(map, one))
            expect(found).toEqual(expected)
            expectSame(maps[0]!, maps[1]!)
          }
        }
        walk([layer, copy], steps)
        walk([new Layer(layer), new Map(copy)], later)
        expectSame(layer, copy)
        expect([...below]).toEqual([...new Map(before)])
      },
    ),
  )
})

function taken(
  map: Map<number, number>,
  one: typeof step extends fc.Arbitrary<infer T> ? T : never,
): unknown {
  switch (one.what) {
    case 'set':
      return map.set(one.key, one.value) === map
    case 'delete':
      return map.delete(one.key)
    case 'get':
      return map.get(one.key)
    case 'clear':
      return map.clear()
  }
}

function expectSame(found: Map<number, number>, expected: Map<number, number>): void {
  expect([...found]).toEqual([...expected])
  expect([...found.keys()]).toEqual([...expected.keys()])
  expect([...found.values()]).toEqual([...expected.values()])
  expect(found.size).toBe(expected.size)
  const visited: [number, number][] = []
  found.forEach((value, at) => {
    visited.push([at, value])
  })
  expect(visited).toEqual([...expected])
  for (let at = 0; at < 8; at += 1) expect(found.has(at)).toBe(expected.has(at))
}

test('what is changed in place is changed in a copy', () => {
  const below = new Map([['a', new Set([1])]])
  const layer = new Layer(below, (set) => new Set(set))
  layer.get('a')!.add(2)
  for (const set of layer.values()) set.add(3)
  expect(layer.get('a')).toEqual(new Set([1, 2, 3]))
  expect(below.get('a')).toEqual(new Set([1]))
})

test('books are forked without a walk through what they hold', () => {
  const books = emptyBooks('default')
  for (const [name, map] of Object.entries(books)) {
    if (!(map instanceof Map)) continue
    const walked = () => {
      throw new Error(`${name} is walked`)
    }
    for (const method of ['keys', 'values', 'entries', 'forEach', Symbol.iterator] as const)
      Object.defineProperty(map, method, { value: walked })
  }
  expect(forkBooks(books).addresses.get('10.0.0.1')).toBeUndefined()
})
