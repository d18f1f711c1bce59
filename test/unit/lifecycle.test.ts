/**
 * DESIGN §3, each state against each command, through `decide`. The table below is written out from the design,
 * not from `LIFECYCLE`: for each command, what becomes of the address in each state it can be in.
 */
import { describe, expect, test } from 'vitest'
import type { Command } from '../../src/core/command.ts'
import { isEndedEvent, isHeldEvent } from '../../src/core/event.ts'
import { QUARANTINE_REASONS } from '../../src/core/lease.ts'
import { LIFECYCLE, stateOf } from '../../src/core/lifecycle.ts'
import {
  claim,
  confirm,
  confirmOf,
  DAY,
  elapsed,
  expire,
  type Given,
  given,
  MINUTE,
  owner,
  pool,
  quarantine,
  reap,
  release,
  releaseOf,
  removed,
  reserve,
  updateLabels,
  web,
} from '../support/given.ts'
import { ENDED, EVERY_STATE, QUARANTINED, type State, SUBJECT, statesOf } from '../support/states.ts'

/** What a Reserve gets that does not get the subject. */
const LOWEST = '10.0.0.1'

/** Its lease, where it has one, is the pod web's in its first life. */
const STATES = statesOf(web(1))

type Row = {
  readonly command: (token: number, version: number) => Command
  /** Outcome, and the states in which it is that. */
  readonly outcomes: Readonly<Record<string, readonly State[]>>
}

const stranger = owner({ name: 'stranger', incarnation: '1' })
const naming = { claims: [claim({ pool: 'a', address: SUBJECT })] }
const anywhere = { claims: [claim({ pool: 'a' })] }
const predecessor = removed({ incarnation: '1' })

const TABLE: Readonly<Record<string, Row>> = {
  'Reserve that names it': {
    command: () => reserve({ owner: stranger, ...naming }),
    outcomes: {
      'becomes RESERVED': ['FREE', 'COOLED'],
      'refused ADDRESS_COOLING': ['COOLING', 'COOLING_REAPED'],
      'refused ADDRESS_TAKEN': ['RESERVED', 'ACTIVE'],
      'refused ADDRESS_QUARANTINED': [...QUARANTINED],
    },
  },
  'Reserve, confirmed, that names it': {
    command: () => reserve({ owner: stranger, ...naming, confirmed: true }),
    outcomes: {
      'becomes ACTIVE': ['FREE', 'COOLED'],
      'refused ADDRESS_COOLING': ['COOLING', 'COOLING_REAPED'],
      'refused ADDRESS_TAKEN': ['RESERVED', 'ACTIVE'],
      'refused ADDRESS_QUARANTINED': [...QUARANTINED],
    },
  },
  'Reserve by the next incarnation that names it': {
    command: () => reserve({ owner: web(2), ...naming }),
    outcomes: {
      'becomes RESERVED': ['FREE', 'COOLED', 'COOLING'],
      'refused ADDRESS_COOLING': ['COOLING_REAPED'],
      'refused ADDRESS_TAKEN': ['RESERVED', 'ACTIVE'],
      'refused ADDRESS_QUARANTINED': [...QUARANTINED],
    },
  },
  'Reserve by the next incarnation that prefers it': {
    command: () => reserve({ owner: web(2), claims: [claim({ pool: 'a', preferPrevious: true })] }),
    outcomes: {
      'becomes RESERVED': ['COOLED', 'COOLING'],
      'becomes SUPERSEDED': ['RESERVED', 'ACTIVE'],
      unchanged: ['FREE', 'COOLING_REAPED', ...QUARANTINED],
    },
  },
  'Reserve that names it and sees it live': {
    command: () => reserve({ owner: stranger, ...naming, liveAddresses: [SUBJECT] }),
    outcomes: {
      'refused ADDRESS_QUARANTINED, becomes SEEN_BY_CALLER of nobody': ['FREE', 'COOLED'],
      'refused ADDRESS_COOLING': ['COOLING', 'COOLING_REAPED'],
      'refused ADDRESS_TAKEN': ['RESERVED', 'ACTIVE'],
      'refused ADDRESS_QUARANTINED': [...QUARANTINED],
    },
  },
  'Reserve by the next incarnation that names it and sees it live': {
    command: () => reserve({ owner: web(2), ...naming, liveAddresses: [SUBJECT] }),
    outcomes: {
      'refused ADDRESS_QUARANTINED, becomes SEEN_BY_CALLER of nobody': ['FREE', 'COOLED', 'COOLING'],
      'refused ADDRESS_COOLING': ['COOLING_REAPED'],
      'refused ADDRESS_TAKEN': ['RESERVED', 'ACTIVE'],
      'refused ADDRESS_QUARANTINED': [...QUARANTINED],
    },
  },
  'Reserve by the same attachment': {
    command: () => reserve({ owner: web(1), ...anywhere }),
    outcomes: {
      'unchanged, and it is the answer': ['RESERVED', 'ACTIVE'],
      unchanged: [
        'FREE',
        'COOLED',
        'COOLING',
        'COOLING_REAPED',
        'CONFLICT',
        'OPERATOR',
        'RELEASED_BUT_LIVE',
        'SECOND_ADDRESS',
        'FOREIGN',
        'SEEN_BY_CALLER',
      ],
      'refused ATTACHMENT_CLOSED': ['SUPERSEDED', 'REMOVAL_UNCONFIRMED'],
    },
  },
  'Reserve by the same attachment, confirmed': {
    command: () => reserve({ owner: web(1), ...anywhere, confirmed: true }),
    outcomes: {
      'becomes ACTIVE': ['RESERVED'],
      'unchanged, and it is the answer': ['ACTIVE'],
      unchanged: [
        'FREE',
        'COOLED',
        'COOLING',
        'COOLING_REAPED',
        'CONFLICT',
        'OPERATOR',
        'RELEASED_BUT_LIVE',
        'SECOND_ADDRESS',
        'FOREIGN',
        'SEEN_BY_CALLER',
      ],
      'refused ATTACHMENT_CLOSED': ['SUPERSEDED', 'REMOVAL_UNCONFIRMED'],
    },
  },
  'Reserve by the next incarnation': {
    command: () => reserve({ owner: web(2), ...anywhere }),
    outcomes: {
      'becomes SUPERSEDED': ['RESERVED', 'ACTIVE'],
      unchanged: ['FREE', 'COOLED', 'COOLING', 'COOLING_REAPED', ...QUARANTINED],
    },
  },
  'Reserve by the next incarnation, this one removed': {
    command: () => reserve({ owner: web(2), ...anywhere, supersedes: predecessor }),
    outcomes: {
      'becomes COOLING': ['RESERVED', 'ACTIVE', 'SUPERSEDED', 'REMOVAL_UNCONFIRMED'],
      unchanged: [
        'FREE',
        'COOLED',
        'COOLING',
        'COOLING_REAPED',
        'CONFLICT',
        'OPERATOR',
        'RELEASED_BUT_LIVE',
        'SECOND_ADDRESS',
        'FOREIGN',
        'SEEN_BY_CALLER',
      ],
    },
  },
  'Reserve by the next incarnation, this one removed, that names it': {
    command: () => reserve({ owner: web(2), ...naming, supersedes: predecessor }),
    outcomes: {
      'becomes RESERVED': [
        'FREE',
        'COOLED',
        'COOLING',
        'RESERVED',
        'ACTIVE',
        'SUPERSEDED',
        'REMOVAL_UNCONFIRMED',
      ],
      'refused ADDRESS_COOLING': ['COOLING_REAPED'],
      'refused ADDRESS_QUARANTINED': [
        'CONFLICT',
        'OPERATOR',
        'RELEASED_BUT_LIVE',
        'SECOND_ADDRESS',
        'FOREIGN',
        'SEEN_BY_CALLER',
      ],
    },
  },
  'Reserve by the next incarnation, this one removed, that prefers it': {
    command: () =>
      reserve({
        owner: web(2),
        claims: [claim({ pool: 'a', preferPrevious: true })],
        supersedes: predecessor,
      }),
    outcomes: {
      'becomes RESERVED': ['COOLED', 'COOLING', 'RESERVED', 'ACTIVE', 'SUPERSEDED', 'REMOVAL_UNCONFIRMED'],
      unchanged: [
        'FREE',
        'COOLING_REAPED',
        'CONFLICT',
        'OPERATOR',
        'RELEASED_BUT_LIVE',
        'SECOND_ADDRESS',
        'FOREIGN',
        'SEEN_BY_CALLER',
      ],
    },
  },
  Confirm: {
    command: (token) => confirm(token),
    outcomes: {
      'becomes ACTIVE': ['RESERVED'],
      'unchanged, and it is the answer': ['ACTIVE'],
      'refused LEASE_NOT_FOUND': ['FREE'],
      'refused LEASE_LOST': [...ENDED],
      'refused ATTACHMENT_CLOSED': ['SUPERSEDED', 'REMOVAL_UNCONFIRMED'],
      'refused ILLEGAL_STATE': [
        'CONFLICT',
        'OPERATOR',
        'RELEASED_BUT_LIVE',
        'SECOND_ADDRESS',
        'FOREIGN',
        'SEEN_BY_CALLER',
      ],
    },
  },
  'Confirm by its owner': {
    command: () => confirmOf(web(1)),
    outcomes: {
      'becomes ACTIVE': ['RESERVED'],
      'unchanged, and it is the answer': ['ACTIVE'],
      'refused LEASE_NOT_FOUND': ['FREE', ...ENDED, 'FOREIGN', 'SEEN_BY_CALLER'],
      'refused ATTACHMENT_CLOSED': ['SUPERSEDED', 'REMOVAL_UNCONFIRMED'],
      'refused ILLEGAL_STATE': ['CONFLICT', 'OPERATOR', 'RELEASED_BUT_LIVE', 'SECOND_ADDRESS'],
    },
  },
  'Confirm by another incarnation': {
    command: (token) => confirm(token, { lease: { token, owner: web(2) } }),
    outcomes: {
      'refused LEASE_NOT_FOUND': ['FREE'],
      'refused LEASE_LOST': [...ENDED],
      'refused ILLEGAL_STATE': ['RESERVED', 'ACTIVE', ...QUARANTINED],
    },
  },
  Release: {
    command: (token) => release(token),
    outcomes: {
      'becomes COOLING': ['RESERVED', 'ACTIVE', 'SUPERSEDED', 'REMOVAL_UNCONFIRMED'],
      'becomes CONFLICT of nobody': ['CONFLICT'],
      'becomes OPERATOR of nobody': ['OPERATOR'],
      'becomes RELEASED_BUT_LIVE of nobody': ['RELEASED_BUT_LIVE'],
      'becomes SECOND_ADDRESS of nobody': ['SECOND_ADDRESS'],
      'unchanged, and it is the answer': [...ENDED],
      'refused LEASE_NOT_FOUND': ['FREE'],
      'refused ILLEGAL_STATE': ['FOREIGN', 'SEEN_BY_CALLER'],
    },
  },
  'Release by its owner': {
    command: () => releaseOf(web(1)),
    outcomes: {
      'becomes COOLING': ['RESERVED', 'ACTIVE', 'SUPERSEDED', 'REMOVAL_UNCONFIRMED'],
      'becomes CONFLICT of nobody': ['CONFLICT'],
      'becomes OPERATOR of nobody': ['OPERATOR'],
      'becomes RELEASED_BUT_LIVE of nobody': ['RELEASED_BUT_LIVE'],
      'becomes SECOND_ADDRESS of nobody': ['SECOND_ADDRESS'],
      'unchanged, and it is the answer': [...ENDED],
      unchanged: ['FREE', 'FOREIGN', 'SEEN_BY_CALLER'],
    },
  },
  'Release by another incarnation': {
    command: (token) => release(token, { lease: { token, owner: web(2) } }),
    outcomes: {
      'refused LEASE_NOT_FOUND': ['FREE'],
      'refused ILLEGAL_STATE': [...ENDED, 'RESERVED', 'ACTIVE', ...QUARANTINED],
    },
  },
  'Release, removal not confirmed': {
    command: (token) => release(token, { removalConfirmed: false }),
    outcomes: {
      'becomes REMOVAL_UNCONFIRMED': ['RESERVED', 'ACTIVE'],
      'unchanged, and it is the answer': [
        ...ENDED,
        'SUPERSEDED',
        'REMOVAL_UNCONFIRMED',
        'OPERATOR',
        'RELEASED_BUT_LIVE',
        'SECOND_ADDRESS',
        'FOREIGN',
        'SEEN_BY_CALLER',
      ],
      'refused LEASE_NOT_FOUND': ['FREE'],
      'refused ILLEGAL_STATE': ['CONFLICT'],
    },
  },
  'Release by its owner, removal not confirmed': {
    command: () => releaseOf(web(1), { removalConfirmed: false }),
    outcomes: {
      'becomes REMOVAL_UNCONFIRMED': ['RESERVED', 'ACTIVE'],
      'unchanged, and it is the answer': [
        ...ENDED,
        'SUPERSEDED',
        'REMOVAL_UNCONFIRMED',
        'OPERATOR',
        'RELEASED_BUT_LIVE',
        'SECOND_ADDRESS',
      ],
      unchanged: ['FREE', 'FOREIGN', 'SEEN_BY_CALLER'],
      'refused ILLEGAL_STATE': ['CONFLICT'],
    },
  },
  Quarantine: {
    command: () => quarantine({ address: SUBJECT }),
    outcomes: {
      'becomes OPERATOR': [
        'RESERVED',
        'ACTIVE',
        'SUPERSEDED',
        'REMOVAL_UNCONFIRMED',
        'CONFLICT',
        'RELEASED_BUT_LIVE',
        'SECOND_ADDRESS',
      ],
      'becomes OPERATOR of nobody': ['FREE', ...ENDED, 'FOREIGN', 'SEEN_BY_CALLER'],
      'unchanged, and it is the answer': ['OPERATOR'],
    },
  },
  'Quarantine by id': {
    command: (token) => quarantine({ token }),
    outcomes: {
      'becomes OPERATOR': [
        'RESERVED',
        'ACTIVE',
        'SUPERSEDED',
        'REMOVAL_UNCONFIRMED',
        'CONFLICT',
        'RELEASED_BUT_LIVE',
        'SECOND_ADDRESS',
      ],
      'becomes OPERATOR of nobody': ['FOREIGN', 'SEEN_BY_CALLER'],
      'unchanged, and it is the answer': ['OPERATOR'],
      'refused LEASE_NOT_FOUND': ['FREE'],
      'refused LEASE_LOST': [...ENDED],
    },
  },
  Reap: {
    command: (token, version) => reap(token, version),
    outcomes: {
      'becomes COOLING': ['RESERVED', 'ACTIVE', ...QUARANTINED],
      'refused LEASE_NOT_FOUND': ['FREE'],
      'refused LEASE_LOST': [...ENDED],
    },
  },
  Expire: {
    command: (token, version) => expire(token, version),
    outcomes: {
      // Without a deadline a reservation never expires; see expiry.test.ts for those that have one.
      'refused ILLEGAL_STATE': ['RESERVED', 'ACTIVE', ...QUARANTINED],
      'refused LEASE_NOT_FOUND': ['FREE'],
      'refused LEASE_LOST': [...ENDED],
    },
  },
  UpdateLabels: {
    command: (token) => updateLabels(token, { team: 'red' }),
    outcomes: {
      labelled: ['RESERVED', 'ACTIVE', ...QUARANTINED],
      'refused LEASE_NOT_FOUND': ['FREE'],
      'refused LEASE_LOST': [...ENDED],
    },
  },
}

/** The subject's lease, or its last one; a number of no lease where it never had one. */
function tokenOf(books: Given): { readonly token: number; readonly version: number } {
  const events = books.ledger.events.filter((event) => isHeldEvent(event) || isEndedEvent(event))
  const last = events.at(-1)
  if (last === undefined) return { token: 1, version: 1 }
  return {
    token: isHeldEvent(last) ? last.lease.fencingToken : last.ended.lease.fencingToken,
    version: last.seq,
  }
}

/** What became of the subject, in the words of the table. */
function outcomeOf(books: Given, command: Command): string {
  const before = books.leaseAt(SUBJECT)
  const { events, refusal, answer } = books.ledger.submit(command)
  const own = events.filter((event) =>
    isHeldEvent(event)
      ? event.lease.address === SUBJECT
      : isEndedEvent(event) && event.ended.lease.address === SUBJECT,
  )
  const last = own.at(-1)
  const parts: string[] = []
  if (refusal !== null) parts.push(`refused ${refusal.reason}`)
  if (last !== undefined && isEndedEvent(last)) parts.push('becomes COOLING')
  else if (last !== undefined && isHeldEvent(last)) {
    const nobody = last.lease.owner === null ? ' of nobody' : ''
    if (last.type === 'lease.updated') parts.push(stateOf(last.lease) === stateOf(before!) ? 'labelled' : '?')
    else parts.push(`becomes ${stateOf(last.lease)}${nobody}`)
  } else if (refusal === null) {
    const named = answer!.leases.some((lease) => lease.address === SUBJECT)
    parts.push(named ? 'unchanged, and it is the answer' : 'unchanged')
    if (!named && command.type === 'reserve') expect(answer!.leases[0]!.address).toBe(LOWEST)
  }
  return parts.join(', ')
}

describe.each(Object.entries(TABLE))('%s', (_name, row) => {
  const outcomeIn = (state: State) => {
    const fitting = Object.entries(row.outcomes).filter(([, states]) => states.includes(state))
    expect(fitting, `one outcome for ${state}`).toHaveLength(1)
    return fitting[0]![0]
  }

  test.each(EVERY_STATE)('%s', (state) => {
    const books = given(pool('a', '10.0.0.0/28'), ...STATES[state])
    const { token, version } = tokenOf(books)
    expect(outcomeOf(books, row.command(token, version))).toBe(outcomeIn(state))
  })
})

test('the states of the table are those of the lifecycle', () => {
  const variants = new Set<string>(['COOLED', 'COOLING_REAPED'])
  expect(EVERY_STATE.filter((state) => !variants.has(state)).sort()).toEqual(Object.keys(LIFECYCLE).sort())
  expect([...QUARANTINED].sort()).toEqual([...QUARANTINE_REASONS].sort())
})

test.each(QUARANTINED)('a refusal in %s says what the state is', (state) => {
  const books = given(pool('a', '10.0.0.0/28'), ...STATES[state], elapsed(DAY))
  const { token, version } = tokenOf(books)
  const refusal = books.refuse(expire(token, version), 'ILLEGAL_STATE')
  expect(refusal.message).toContain(state)
  expect(refusal.metadata).toMatchObject({ state: 'QUARANTINED', quarantineReason: state, address: SUBJECT })
})

test.each(EVERY_STATE)('every way out of %s to free goes through cooling', (state) => {
  for (const row of Object.values(TABLE)) {
    const books = given(pool('a', '10.0.0.0/28'), ...STATES[state])
    const held = books.leaseAt(SUBJECT) !== null
    const { token, version } = tokenOf(books)
    books.ledger.submit(row.command(token, version))
    if (!held || books.leaseAt(SUBJECT) !== null) continue
    expect(books.ledger.fold().addresses.get(SUBJECT)!.released).toMatchObject({
      availableAt: books.ledger.now() + 2 * MINUTE,
    })
    books.refuse(reserve({ owner: stranger, ...naming }), 'ADDRESS_COOLING')
  }
})
