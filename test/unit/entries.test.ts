/** The edge: text of sources in, canonical entries out (DESIGN §4 "Reporting"; incident 11.2, M-20, INV-9). */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import {
  addDigests,
  digestOf,
  digestOfGiven,
  type EntrySet,
  listedOf,
  type Packed,
  pack,
  readEntries,
  readManyEntries,
  type Scope,
  unpack,
} from '../../src/liveness/entries.ts'
import type { GivenEntry } from '../../src/liveness/source.ts'

const WIDE: Scope = { network: 'default', node: '', epoch: 'p1' }
const NODE: Scope = { network: 'default', node: 'n1', epoch: 'boot-1' }

const digest = (set: EntrySet) => digestOf(listedOf(set).keys)

function read(entry: GivenEntry, scope = WIDE) {
  const { entries, unreadable, ignored } = readEntries([entry], scope)
  return { entry: [...entries.values()][0], why: unreadable[0]?.why, ignored }
}

const POD: GivenEntry = { address: '10.0.0.5', kind: 'pod', name: 'default/web-0', uid: 'u1' }

describe('what an entry says', () => {
  test('an owner as a lease has it', () => {
    expect(
      read({ ...POD, incarnation: 's2', interface: 'eth0', node: 'n7', boot: 'b7', state: 'paused' }).entry,
    ).toMatchObject({
      address: '10.0.0.5',
      owner: {
        kind: 'pod',
        name: 'default/web-0',
        uid: 'u1',
        uidNamed: true,
        incarnation: 's2',
        interface: 'eth0',
      },
      node: 'n7',
      boot: 'b7',
      state: 'paused',
    })
  })

  test('name and uid stand for each other, and it is known which was named', () => {
    expect(read({ ...POD, uid: '' }).entry?.owner).toMatchObject({ uid: 'default/web-0', uidNamed: false })
    expect(read({ ...POD, name: '' }).entry?.owner).toMatchObject({ name: 'u1', uidNamed: true })
  })

  test('an interface that was not told is empty: no Reserve has that one', () => {
    expect(read(POD).entry?.owner?.interface).toBe('')
  })

  test('without a kind: in use, and whose it is is not known', () => {
    const { entry, why } = read({ address: '10.0.0.5' })
    expect(why).toBeUndefined()
    expect(entry).toMatchObject({ owner: null, state: 'live' })
  })

  test('on a node: it is there, in the boot that reports', () => {
    expect(read(POD, NODE).entry).toMatchObject({ node: 'n1', boot: 'boot-1' })
    expect(read({ ...POD, node: 'n1', boot: 'boot-0' }, NODE).entry).toMatchObject({ boot: 'boot-1' })
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
  ])('%s', (given, canonical) => {
    const spelled = readEntries(
      [
        { ...POD, address: given },
        { ...POD, address: canonical },
      ],
      WIDE,
    )
    expect([...spelled.entries.values()].map(({ address }) => address)).toEqual([canonical])
  })
})

describe('what cannot be read is told, with its text', () => {
  test('and with nothing that it does not say', () => {
    const message = { $typeName: 'ipledger.v1.SnapshotEntry', address: 'x', kind: '', uid: 'u1', boot: '' }
    expect(readEntries([message], WIDE).unreadable).toMatchObject([{ text: '{"address":"x","uid":"u1"}' }])
  })

  test.each([
    '::ffff:10.0.0.5',
    '::FFFF:a00:5',
    '10.0.0.5/32',
    '10.0.0.5/24',
    '::ffff:10.0.0.5/120',
    '10.0.0.5%eth0',
    ' 10.0.0.5',
  ])('address %j: told, and the address that it can only mean is in use', (address) => {
    const { entries, unreadable } = readEntries([{ ...POD, address }], WIDE)
    expect(unreadable[0]?.text).toContain(JSON.stringify(address))
    expect([...entries.values()]).toMatchObject([{ address: '10.0.0.5', owner: null, state: 'live' }])
  })

  test.each(['fe80::1/64', '127.0.0.1/8', '::ffff:169.254.1.1'])(
    'address %j of every host is ignored',
    (address) => {
      expect(read({ ...POD, address })).toMatchObject({ why: undefined, ignored: 1 })
    },
  )

  test.each(['10.0.0.300', '', '010.0.0.5', '10.0.0/24', 'web-0', '/24', '::ffff:010.0.0.5'])(
    'address %j: nothing is kept',
    (address) => {
      const { entries, unreadable, unreadableCount } = readEntries([{ ...POD, address }], WIDE)
      expect(entries.size).toBe(0)
      expect(unreadableCount).toBe(1)
      expect(unreadable[0]?.text).toContain(JSON.stringify(address))
    },
  )

  const WRONG: readonly (readonly [string, Partial<GivenEntry>])[] = [
    ['a kind in capitals', { kind: 'Pod' }],
    ['an owner without its kind', { kind: '' }],
    ['an incarnation of nobody', { kind: '', name: '', uid: '', incarnation: 's1' }],
    ['a kind of nobody', { name: '', uid: '' }],
    ['a name with a control character', { name: 'web\u0000' }],
    ['a uid beyond the limit', { uid: 'u'.repeat(254) }],
    ['a uid beyond the limit in bytes', { uid: 'ü'.repeat(127) }],
    ['half of a surrogate pair', { uid: '\ud800' }],
    ['an interface with the separator of keys', { interface: 'eth0|x' }],
    ['an interface beyond the limit', { interface: 'e'.repeat(64) }],
    ['an incarnation with a line feed', { incarnation: 'a\nb' }],
    ['a state beyond the limit', { state: 's'.repeat(64) }],
    ['a boot beyond the limit', { boot: 'b'.repeat(254) }],
  ]

  test.each(WRONG)('%s: told, and its address is in use all the same', (_what, fields) => {
    const { entries, unreadableCount } = readEntries([{ ...POD, ...fields }], WIDE)
    expect(unreadableCount).toBe(1)
    expect([...entries.values()]).toMatchObject([{ address: '10.0.0.5', owner: null, state: 'live' }])
  })

  test('another node than that of the source', () => {
    expect(read({ ...POD, node: 'n2' }, NODE).why).toContain('n2')
    expect(read({ ...POD, node: 'n2' }, NODE).entry).toMatchObject({ owner: null, node: 'n1' })
    expect(read({ ...POD, node: 'n2' }, WIDE).why).toBeUndefined()
  })

  test('a broken one takes no other with it', () => {
    const set = readEntries([POD, { address: 'broken' }, { ...POD, address: '10.0.0.6' }], WIDE)
    expect([...set.entries.values()].map(({ address }) => address)).toEqual(['10.0.0.5', '10.0.0.6'])
  })

  test('twenty are shown of one snapshot, at two hundred characters, and all are counted', () => {
    const many = Array.from({ length: 50 }, () => ({ address: 'x'.repeat(100_000) }))
    const { unreadable, unreadableCount } = readEntries(many, WIDE)
    expect(unreadableCount).toBe(50)
    expect(unreadable).toHaveLength(20)
    expect(unreadable[0]!.text.length).toBeLessThanOrEqual(201)
  })
})

describe('what says nothing here is valid and ignored (N-05)', () => {
  test.each([
    ...['fe80::1', 'fe80::1%eth0', 'febf::1', '169.254.1.1', '127.0.0.1', '::1', '::', '0.0.0.0'],
    ...['224.0.0.1', 'ff02::1', '255.255.255.255'],
  ])('%s', (address) => {
    expect(read({ ...POD, address })).toEqual({ entry: undefined, why: undefined, ignored: 1 })
  })

  test.each(['fec0::1', '169.253.255.255', '169.255.0.0', '1.0.0.0', '223.255.255.255', '126.0.0.1', '::2'])(
    '%s is an address like any',
    (address) => {
      expect(read({ ...POD, address }).entry?.address).toBe(address)
    },
  )

  test('an entry of another network, whatever it looks like', () => {
    expect(read({ ...POD, network: 'other' }).ignored).toBe(1)
    expect(read({ address: 'broken', network: 'other' })).toEqual({
      entry: undefined,
      why: undefined,
      ignored: 1,
    })
    expect(read({ ...POD, network: 'default' }).entry?.address).toBe('10.0.0.5')
  })

  test('a zone id is not part of an address: what is in use stays in use', () => {
    expect(read({ ...POD, address: 'fd00::5%eth0' }).entry?.address).toBe('fd00::5')
    expect(read({ ...POD, address: 'fe80::zz%eth0' }).why).toBeDefined()
  })
})

describe('a set', () => {
  const anyText = fc.string({ unit: 'grapheme', maxLength: 8 })
  const anyEntry: fc.Arbitrary<GivenEntry> = fc.record(
    {
      address: fc.oneof(
        fc.ipV4(),
        fc.ipV6(),
        fc.constantFrom('10.0.0.1', '10.0.0.2', 'fd00::1', 'FD00::1', 'fd00::1%x', 'broken'),
      ),
      network: fc.constantFrom('', 'default', 'other'),
      kind: fc.constantFrom('', 'pod', 'vm', 'Pod'),
      name: anyText,
      uid: anyText,
      incarnation: anyText,
      interface: anyText,
      node: anyText,
      boot: anyText,
      state: anyText,
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
        const one = readEntries(list, NODE)
        const two = readEntries([...other, ...list], NODE)
        expect(digest(two)).toBe(digest(one))
        expect(new Set(two.entries.keys())).toEqual(new Set(one.entries.keys()))
      }),
    )
  })

  test('with one entry more, or another in its place, has another digest', () => {
    fc.assert(
      fc.property(anyEntries, anyEntry, (list, entry) => {
        const without = readEntries(list, WIDE)
        const with_ = readEntries([...list, entry], WIDE)
        expect(digest(with_) === digest(without)).toBe(with_.entries.size === without.entries.size)
      }),
    )
  })

  test.each([
    ['kind', { kind: 'vm' }],
    ['name', { name: 'default/web-1' }],
    ['uid', { uid: 'u2' }],
    ['incarnation', { incarnation: 's2' }],
    ['interface', { interface: 'eth1' }],
    ['node', { node: 'n2' }],
    ['boot', { boot: 'b2' }],
    ['state', { state: 'terminal' }],
    ['address', { address: '10.0.0.6' }],
  ])('holds entries apart by %s', (_field, change) => {
    expect(readEntries([POD, { ...POD, ...change }], WIDE).entries.size).toBe(2)
  })

  test('holds apart who named a uid from who did not', () => {
    const named = { address: '10.0.0.5', kind: 'pod', name: 'x', uid: 'x' }
    expect(readEntries([named, { ...named, uid: '' }], WIDE).entries.size).toBe(2)
  })

  test('no two entries share a key because of where one field ends and the next begins', () => {
    const moved = { ...POD, name: 'default/web-0u1', uid: '' }
    expect(readEntries([POD, moved, { ...POD, name: 'default/web-', uid: '0u1' }], WIDE).entries.size).toBe(3)
  })

  test('is what its parts are, read one by one', () => {
    fc.assert(
      fc.property(anyEntries, fc.nat(30), (list, at) => {
        const whole = readEntries(list, WIDE)
        const parts = [readEntries(list.slice(0, at), WIDE), readEntries(list.slice(at), WIDE)]
        const joined = parts.reduce((keys, part) => keys.union(listedOf(part).keys), new Set<string>())
        expect(digestOf(joined)).toBe(digest(whole))
        expect(joined).toEqual(listedOf(whole).keys)
      }),
    )
  })

  test('is what it is after it was kept as a part', () => {
    fc.assert(
      fc.property(anyEntries, (list) => {
        const entries = [...readEntries(list, WIDE).entries.values()]
        const kept = JSON.parse(JSON.stringify(entries.map(pack))) as readonly Packed[]
        expect(kept.map(unpack)).toEqual(entries)
      }),
    )
  })

  test('is what it is, read by turns', async () => {
    const list = Array.from({ length: 5_000 }, (_, i) => ({ ...POD, address: `10.0.${i >> 8}.${i & 255}` }))
    const given = [...list, { address: 'broken' }]
    expect(await readManyEntries(given, WIDE)).toEqual(readEntries(given, WIDE))
  })

  test('as sent has a digest that adds up over its parts, in any order', () => {
    fc.assert(
      fc.property(inAnyOrder, fc.nat(30), ([list, other], at) => {
        const parts = [digestOfGiven(other.slice(0, at)), digestOfGiven(other.slice(at))]
        expect(addDigests(parts)).toBe(digestOfGiven(list))
      }),
    )
  })

  test('as sent, a lost or a repeated entry shows', () => {
    const list = [POD, { ...POD, uid: 'u2' }]
    expect(digestOfGiven(list.slice(1))).not.toBe(digestOfGiven(list))
    expect(digestOfGiven([...list, POD, POD])).not.toBe(digestOfGiven(list))
  })

  // Known answers, so that a source in another language can be checked against them.
  test('as sent, by the documented rule', () => {
    expect(digestOfGiven([])).toBe('0'.repeat(64))
    expect(digestOfGiven([POD])).toBe('c14215710f0550d847ed0f20cf69bc622aeacd0dfcc7a949fa4df20338fdca67')
  })
})
