/** Whom a source's entry is about, and how owners are told apart. */
import { expect, test } from 'vitest'
import { describeOwner, isListedAs, type Owner, sameAttachment } from '../../src/core/owner.ts'

const named: Owner = { kind: 'pod', name: 'web', uid: 'web', incarnation: '1', interface: 'eth0' }
const known: Owner = { ...named, uid: 'u1' }

test.each<[string, Owner, Partial<Owner>, boolean]>([
  ['itself', known, {}, true],
  ['one of another kind', known, { kind: 'container' }, false],
  ['another uid under its name', known, { uid: 'u2' }, false],
  ['its uid under another name', known, { name: 'other' }, true],
  ['a uid where the holder gave none', named, { uid: 'u2' }, true],
  ['… under another name', named, { uid: 'u2', name: 'other' }, false],
  ['another incarnation', known, { incarnation: '2' }, false],
  ['no incarnation', known, { incarnation: '' }, true],
  ['an incarnation where the holder has none', { ...known, incarnation: '' }, {}, true],
  ['another interface', known, { interface: 'eth1' }, false],
  ['no interface', known, { interface: '' }, true],
])('an entry of %s', (_, owner, entry, expected) => {
  expect(isListedAs(owner, { ...known, incarnation: '1', ...entry })).toBe(expected)
})

test('an attachment is one uid, incarnation, interface and kind', () => {
  expect(sameAttachment(known, { ...known, name: 'other' })).toBe(true)
  for (const field of ['kind', 'uid', 'incarnation', 'interface'])
    expect(sameAttachment(known, { ...known, [field]: 'other' }), field).toBe(false)
})

test.each([
  [known, 'pod web uid u1 incarnation 1 (eth0)'],
  [{ ...named, incarnation: '', interface: '' }, 'pod web'],
])('%o is named in a sentence', (owner, text) => expect(describeOwner(owner)).toBe(text))
