/** The edge: text of sources in, canonical entries out (incident 11.2). */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { Entry } from '../../src/core/event.ts'
import { cooperatively } from '../../src/in-slices.ts'
import { digestingList, readingEntries, type Scope } from '../../src/sources/entries.ts'
import type { GivenEntry } from '../../src/sources/source.ts'
import { listDigest, readEntries } from '../support/at-once.ts'

const WIDE: Scope = { network: 'default', node: '' }
const NODE: Scope = { network: 'default', node: 'n1' }

function read(entry: GivenEntry, scope = WIDE) {
  const { entries, unreadable } = readEntries([entry], scope)
  return { entry: entries[0], why: unreadable[0]?.why }
}

const NONE = { entries: [], unreadable: [], unreadableCount: 0 }
const POD = { address: '10.0.0.5', kind: 'pod', name: 'default/web-0', uid: 'u1' }

describe('what an entry says', () => {
  test('is kept, and what is empty is not there', () => {
    const full = { ...POD, incarnation: 's2', interface: 'eth0', node: 'n7', state: 'paused' }
    expect(read({ ...full, network: 'default' }).entry).toStrictEqual(full)
    const empty = { incarnation: '', interface: '', node: '', state: '', network: '' }
    expect(read({ ...POD, ...empty }).entry).toStrictEqual(POD)
    expect(read({ ...POD, state: 'live' }).entry).toStrictEqual(POD)
  })

  test('name and uid stand for each other', () => {
    expect(read({ ...POD, uid: '' }).entry).toMatchObject({ name: 'default/web-0', uid: 'default/web-0' })
    expect(read({ ...POD, name: '' }).entry).toMatchObject({ name: 'u1', uid: 'u1' })
  })

  test('without a kind: in use, and whose it is is not known', () => {
    const { entry, why } = read({ address: '10.0.0.5', interface: 'eth0', node: 'n7', state: 'terminal' })
    expect(why).toBeUndefined()
    expect(entry).toStrictEqual({ address: '10.0.0.5', node: 'n7', state: 'terminal' })
  })

  test('of a source of a node: it is there', () => {
    expect(read(POD, NODE).entry?.node).toBe('n1')
    expect(read({ ...POD, node: 'n1' }, NODE)).toMatchObject({ why: undefined, entry: { node: 'n1' } })
  })

  test('every word for a state is kept', () => {
    expect(read({ ...POD, state: 'terminal' }).entry?.state).toBe('terminal')
    expect(read({ ...POD, state: 'NobodyKnows' }).entry?.state).toBe('NobodyKnows')
  })
})

describe('one address has one spelling', () => {
  test.each([
    ['FD00:0:0::5', 'fd00::5'],
    ['fd00::0.0.0.5', 'fd00::5'],
    ['fd00:0000:0000:0000:0000:0000:0000:0005', 'fd00::5'],
    ['fd00::5%eth0', 'fd00::5'],
    ['fd00::5/64', 'fd00::5'],
    ['::ffff:10.0.0.5', '10.0.0.5'],
    ['::FFFF:a00:5', '10.0.0.5'],
    ['10.0.0.5/32', '10.0.0.5'],
    ['10.0.0.5/24', '10.0.0.5'],
    ['::ffff:10.0.0.5/120', '10.0.0.5'],
    ['10.0.0.5%eth0', '10.0.0.5'],
    [' 10.0.0.5', '10.0.0.5'],
  ])('%j, and spoils no list', (given, address) => {
    const both = [
      { ...POD, address: given },
      { ...POD, address },
    ]
    expect(readEntries(both, WIDE)).toEqual({ ...NONE, entries: [{ ...POD, address }] })
  })
})

describe('what cannot be read is told, with its text', () => {
  test('and where it stood, and with nothing that it does not say', () => {
    const message = { $typeName: 'ipledger.v1.SnapshotEntry', address: 'x', kind: '', uid: 'u1' }
    const { unreadable } = readEntries([POD, message], WIDE)
    expect(unreadable).toMatchObject([{ index: 1, text: '{"address":"x","uid":"u1"}' }])
    expect(unreadable[0]!.why).toContain('"x"')
  })

  test.each([
    ...['10.0.0.300', '', '010.0.0.5', '10.0.0/24', 'web-0', '/24', '::ffff:010.0.0.5', 'fe80::zz%eth0'],
    '1'.repeat(100_000),
  ])('address %.20j: nothing is kept', (address) => {
    const { entries, unreadable, unreadableCount } = readEntries([{ ...POD, address }], WIDE)
    expect([entries, unreadableCount]).toEqual([[], 1])
    expect(unreadable[0]!.text.length).toBeLessThanOrEqual(201)
  })

  test.each<[string, Partial<GivenEntry>]>([
    ['a kind in capitals', { kind: 'Pod' }],
    ['an owner without its kind', { kind: '' }],
    ['an incarnation of nobody', { kind: '', name: '', uid: '', incarnation: 's1' }],
    ['a kind of nobody', { name: '', uid: '' }],
    ['a name with a control character', { name: 'web\u0000' }],
    ['a uid beyond the limit', { uid: 'u'.repeat(254) }],
    ['a uid beyond the limit in bytes', { uid: 'ü'.repeat(127) }],
    ['half of a surrogate pair', { uid: '\ud800' }],
    ['an interface beyond the limit', { interface: 'e'.repeat(64) }],
    ['an incarnation with the separator', { incarnation: 'a\u001fb' }],
    ['a state beyond the limit', { state: 's'.repeat(64) }],
    ['a node beyond the limit', { node: 'n'.repeat(254) }],
  ])('%s: and its address is in use all the same', (_what, fields) => {
    const { entries, unreadableCount } = readEntries([{ ...POD, state: 'terminal', ...fields }], WIDE)
    expect(entries).toStrictEqual([{ address: '10.0.0.5' }])
    expect(unreadableCount).toBe(1)
  })

  test('another node than that of the source', () => {
    expect(read({ ...POD, node: 'n2' }, NODE).why).toContain('another node')
    expect(read({ ...POD, node: 'n2' }, NODE).entry).toStrictEqual({ address: '10.0.0.5', node: 'n1' })
    expect(read({ ...POD, node: 'n2' }, WIDE).why).toBeUndefined()
  })

  test('twenty are shown of one list, in text that can be kept, and all are counted', () => {
    const many = Array.from({ length: 50 }, (_, n) => ({ address: `${'x'.repeat(n)}${'😀'.repeat(200)}` }))
    const { unreadable, unreadableCount } = readEntries(many, WIDE)
    expect(unreadableCount).toBe(50)
    expect(unreadable).toHaveLength(20)
    expect(unreadable.every(({ text }) => text.length <= 201 && text.isWellFormed())).toBe(true)
  })
})

describe('what says nothing here is valid and ignored', () => {
  test.each([
    ...['fe80::1', 'fe80::1%eth0', 'febf::1', '169.254.1.1', '127.0.0.1', '::1', '::', '0.0.0.0'],
    ...['224.0.0.1', 'ff02::1', '255.255.255.255', 'fe80::1/64', '127.0.0.1/8', '::ffff:169.254.1.1'],
  ])('%s', (address) => {
    expect(readEntries([{ ...POD, address }], WIDE)).toEqual(NONE)
  })

  test.each(['fec0::1', '169.253.255.255', '169.255.0.0', '1.0.0.0', '223.255.255.255', '126.0.0.1', '1::2'])(
    '%s is an address like any',
    (address) => {
      expect(read({ ...POD, address }).entry?.address).toBe(address)
    },
  )

  test.each([POD, { address: 'broken' }])('an entry of another network, whatever it looks like', (entry) => {
    expect(readEntries([{ ...entry, network: 'other' }], WIDE)).toEqual(NONE)
  })
})

describe('a list', () => {
  const anyText = fc.string({ unit: 'grapheme', maxLength: 8 })
  const few = fc.constantFrom('', 'a', 'b')
  const anyEntry: fc.Arbitrary<GivenEntry> = fc.record(
    {
      address: fc.oneof(
        fc.ipV4(),
        fc.ipV6(),
        // Several at one address.
        {
          arbitrary: fc.constantFrom('10.0.0.1', '10.0.0.1/24', 'FD00::1', 'fd00::1%x', 'broken'),
          weight: 8,
        },
      ),
      network: fc.constantFrom('', 'default', 'other'),
      kind: fc.constantFrom('pod', 'pod', 'pod', 'vm', '', 'Pod'),
      name: fc.oneof(few, anyText),
      uid: few,
      incarnation: few,
      interface: few,
      node: anyText,
      state: fc.constantFrom('', 'live', 'terminal', 'running'),
    },
    { requiredKeys: ['address'] },
  )
  const anyEntries = fc.array(anyEntry, { maxLength: 30 })
  const shuffled = (list: readonly GivenEntry[]) =>
    fc.shuffledSubarray([...list], { minLength: list.length, maxLength: list.length })
  const inAnyOrder = anyEntries.chain((list) => fc.tuple(fc.constant(list), shuffled(list)))

  test('is the same in any order and however often an entry is repeated', () => {
    fc.assert(
      fc.property(inAnyOrder, ([list, other]) => {
        const one = readEntries(list, WIDE).entries
        const two = readEntries([...other, ...other], WIDE).entries
        expect(listDigest(two)).toBe(listDigest(one))
        expect(new Set(two.map((entry) => JSON.stringify(entry)))).toEqual(
          new Set(one.map((entry) => JSON.stringify(entry))),
        )
      }),
    )
  })

  test('read again is what it is', () => {
    fc.assert(
      fc.property(anyEntries, (list) => {
        const { entries } = readEntries(list, WIDE)
        expect(readEntries(entries, WIDE)).toStrictEqual({ ...NONE, entries })
      }),
    )
  })

  test.each([
    ['kind', { kind: 'vm' }],
    ['uid', { uid: 'u2' }],
    ['incarnation', { incarnation: 's2' }],
    ['interface', { interface: 'eth1' }],
    ['address', { address: '10.0.0.6' }],
  ])('holds owners apart by %s', (_field, change) => {
    expect(readEntries([POD, { ...POD, ...change }], WIDE).entries).toHaveLength(2)
    const three = [{ ...POD, uid: 'u0' }, POD, { ...POD, ...change }]
    expect(readEntries(three, WIDE).entries).toHaveLength(3)
  })

  test.each([
    ['name', { name: 'default/web-1' }],
    ['node', { node: 'n2' }],
    ['state', { state: 'paused' }],
  ])('has an owner at an address once, and another digest by its %s', (_field, change) => {
    const other = { ...POD, ...change }
    const { entries } = readEntries([POD, other], WIDE)
    expect(entries).toHaveLength(1)
    expect(readEntries([other, POD], WIDE).entries).toEqual(entries)
    expect(listDigest([other])).not.toBe(listDigest([POD]))
  })

  test('of two words for one owner takes the one that is alive', () => {
    const ended: Entry = { ...POD, name: 'a', state: 'terminal' }
    const alive: Entry = { ...POD, name: 'b', state: 'running' }
    expect(readEntries([ended, alive], WIDE).entries).toEqual([alive])
    expect(readEntries([alive, ended], WIDE).entries).toEqual([alive])
  })

  test('no two entries are one because of where one field ends and the next begins', () => {
    const list = [POD, { ...POD, uid: 'u2' }, { ...POD, uid: 'u', incarnation: '2' }]
    expect(readEntries(list, WIDE).entries).toHaveLength(3)
    expect(new Set(list.map((entry) => listDigest([entry]))).size).toBe(3)
  })

  // It is kept in the database, and processes of two versions may compare theirs.
  test('has a digest that stays', () => {
    expect(listDigest([])).toBe('0'.repeat(64))
    expect(listDigest([POD])).toBe('6265f7283d060cce6d9b12392041e40654d089fdb30d9fe577a6e714580f0c52')
    expect(listDigest([POD, { address: 'fd00::1' }])).toBe(
      '11487bb31a2b658264ab680c2f901956a0f70fbe0806670ad6170bca07ec3234',
    )
  })

  test('is read and digested in slices, by turns with what else the process does', async () => {
    const list = Array.from({ length: 10_000 }, (_, i) => ({ ...POD, address: `10.0.${i >> 8}.${i & 255}` }))
    const given = [...list, { address: 'broken' }]
    let turns = 0
    const counting = setInterval(() => {
      turns += 1
    })
    const read = await cooperatively(readingEntries(given, WIDE))
    const digest = await cooperatively(digestingList(read.entries))
    clearInterval(counting)
    expect(turns).toBeGreaterThan(2)
    expect(read).toEqual(readEntries(given, WIDE))
    expect(read.unreadable).toMatchObject([{ index: 10_000 }])
    expect(digest).toBe(listDigest(read.entries))
    expect([...readingEntries(given, WIDE)]).toHaveLength(10)
    expect([...digestingList(read.entries)]).toHaveLength(10)
  })
})
