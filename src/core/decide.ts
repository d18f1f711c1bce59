/**
 * What a command does to the books: the events it leaves and its answer, or why it is refused. Pure: what it
 * knows is in `Books`, time is `books.now`, numbers follow from `books.head`. A refused command leaves no events
 * but quarantines of candidates its caller sees live, and the hold that refuses a reap. The caller (ledger, simulator, dry run) folds the events
 * with `evolve` before it decides the next command.
 */
import {
  type Books,
  BrokenBooks,
  bookInPool,
  closingsOf,
  forkBooks,
  Missing,
  type Need,
  poolById,
  type Remembered,
  rememberedRequest,
} from './books.ts'
import type { AllOrNothing, Answer, Command, LeaseView } from './command.ts'
import {
  decideConfirm,
  decideExpire,
  decideQuarantine,
  decideReap,
  decideRelease,
  decideUpdateLabels,
} from './decide-lease.ts'
import {
  decideBeginEra,
  decideCreateNetwork,
  decideCreatePool,
  decideDeletePool,
  decideEndRecovery,
  decideUpdateNetwork,
  decideUpdatePool,
} from './decide-pool.ts'
import { decideFenceNode, decideReapProven, decideRestore, decideResumeHold } from './decide-proven.ts'
import { decideReserve } from './decide-reserve.ts'
import { decideSight } from './decide-sighting.ts'
import { isEndedEvent, isHeldEvent, type LedgerEvent } from './event.ts'
import { addressOf, closedOrReopened, evolve } from './evolve.ts'
import { type Refusal, refusal } from './refusal.ts'

export type Decision =
  | {
      readonly kind: 'accepted'
      readonly events: readonly LedgerEvent[]
      readonly answer: Answer
      readonly replayed: boolean
    }
  | { readonly kind: 'refused'; readonly events: readonly LedgerEvent[]; readonly refusal: Refusal }
  | {
      readonly kind: 'missing'
      readonly need: Need
      /** Will be missing next; the same trip may bring it. */
      readonly alike: readonly Need[]
    }

/** What the deciders of single commands give: events without the last step, numbering being done already. */
export type Verdict =
  | { readonly events: readonly LedgerEvent[]; readonly answer: Answer }
  | { readonly events: readonly LedgerEvent[]; readonly refused: Refusal }

export function decide(books: Books, command: Command): Decision {
  try {
    const distrust = mistrusted(books, command)
    if (distrust !== null) return refuse(distrust)
    if (books.network === null && command.type !== 'createNetwork') {
      return refuse(
        refusal('NETWORK_NOT_FOUND', `network ${command.network} does not exist; create it first`, {
          network: command.network,
        }),
      )
    }
    const replay = replayed(books, command)
    if (replay !== null) return replay
    const verdict = decideOne(books, command)
    return 'refused' in verdict
      ? { kind: 'refused', events: verdict.events, refusal: verdict.refused }
      : { kind: 'accepted', events: verdict.events, answer: verdict.answer, replayed: false }
  } catch (error) {
    if (error instanceof Missing) return { kind: 'missing', need: error.need, alike: error.alike }
    throw error
  }
}

/**
 * Books whose projections are lost or being replaced: what would rest on free space or on what a pool holds is
 * refused until the rebuild has ended (7.1). Reserve says so itself.
 */
function mistrusted(books: Books, command: Command): Refusal | null {
  const lost = books.network === null && books.head > 0
  if (!lost && books.network?.state !== 'REBUILDING') return null
  switch (command.type) {
    case 'createNetwork':
    case 'createPool':
    case 'updatePool':
    case 'deletePool':
    case 'quarantine':
    case 'sight':
    case 'reapProven':
    case 'restore':
      break
    default:
      if (!lost) return null
  }
  return refusal(
    'NETWORK_RECOVERING',
    `the books of network ${command.network} are being rebuilt from its log; nothing is decided on them until that has ended`,
    { network: command.network, state: 'REBUILDING' },
    1_000,
  )
}

function decideOne(books: Books, command: Command): Verdict {
  const verdict = apply(books, command)
  for (const event of verdict.events) requireRead(books, event)
  return verdict
}

/** Nothing is changed that has not been read: `evolve` meets what it needs, and nothing read later says otherwise. */
function requireRead(books: Books, event: LedgerEvent): void {
  if (isHeldEvent(event) || isEndedEvent(event)) {
    const { poolId, address } = addressOf(event)
    poolById(books, poolId)
    bookInPool(books, poolId, address)
  }
  const closes = closedOrReopened(event)
  if (closes !== null) closingsOf(books, closes)
}

function apply(books: Books, command: Command): Verdict {
  switch (command.type) {
    case 'reserve':
      return decideReserve(books, command)
    case 'allOrNothing':
      return decideAllOrNothing(books, command)
    case 'confirm':
      return decideConfirm(books, command)
    case 'release':
      return decideRelease(books, command)
    case 'quarantine':
      return decideQuarantine(books, command)
    case 'reap':
      return decideReap(books, command)
    case 'expire':
      return decideExpire(books, command)
    case 'updateLabels':
      return decideUpdateLabels(books, command)
    case 'sight':
      return decideSight(books, command)
    case 'reapProven':
      return decideReapProven(books, command)
    case 'restore':
      return decideRestore(books, command)
    case 'resumeHold':
      return decideResumeHold(books, command)
    case 'fenceNode':
      return decideFenceNode(books, command)
    case 'createNetwork':
      return decideCreateNetwork(books, command)
    case 'updateNetwork':
      return decideUpdateNetwork(books, command)
    case 'endRecovery':
      return decideEndRecovery(books, command)
    case 'beginEra':
      return decideBeginEra(books, command)
    case 'createPool':
      return decideCreatePool(books, command)
    case 'updatePool':
      return decideUpdatePool(books, command)
    case 'deletePool':
      return decideDeletePool(books, command)
  }
}

function refuse(refused: Refusal): Decision {
  return { kind: 'refused', events: [], refusal: refused }
}

/** The answer of an earlier request with this id; null when there is none and the command is to be decided. */
function replayed(books: Books, command: Command): Decision | null {
  if (command.requestId === null) return null
  const remembered = rememberedRequest(books, command.requestId)
  if (remembered === null) return null
  const answer = replayAnswer(books, command, remembered)
  return 'reason' in answer ? refuse(answer) : { kind: 'accepted', events: [], answer, replayed: true }
}

function replayAnswer(books: Books, command: Command, remembered: Remembered): Answer | Refusal {
  if (remembered.fingerprint !== command.fingerprint) {
    return refusal(
      'REQUEST_ID_REUSED',
      `requestId ${command.requestId} was used for a ${remembered.method} with other content; use a new id for a new request`,
      { requestId: command.requestId ?? '', method: remembered.method },
    )
  }
  const answer = JSON.parse(remembered.answer) as Answer
  const { type } = command.type === 'allOrNothing' ? (command.items[0] ?? command) : command
  if (type !== 'reserve' && type !== 'confirm') return answer
  for (const view of [answer, ...(answer.items ?? [])].flatMap((one) => one.leases)) {
    const remedy = type === 'confirm' ? 'unconfigure the address' : 'reserve with a new requestId'
    const lost = lostSince(books, view, remedy)
    if (lost !== null) return lost
  }
  return answer
}

/** An old answer must never say that an address is held that has ended or been quarantined meanwhile, whoever has it now. */
function lostSince(books: Books, view: LeaseView, remedy: string): Refusal | null {
  const found = books.byToken.get(view.fencingToken)
  if (found === undefined) throw new Missing({ what: 'token', token: view.fencingToken })
  if (found !== null && 'address' in found) {
    const book = books.addresses.get(found.address)
    if (book === undefined) throw new Missing({ what: 'address', address: found.address })
    if (book.lease?.state === 'RESERVED' || book.lease?.state === 'ACTIVE') return null
    const reason = book.lease?.quarantine?.reason ?? ''
    return refusal('LEASE_LOST', `lease ${view.leaseId} has been quarantined since (${reason}); ${remedy}`, {
      leaseId: view.leaseId,
      state: 'QUARANTINED',
      quarantineReason: reason,
    })
  }
  const ended = found?.ended
  return refusal('LEASE_LOST', `lease ${view.leaseId} has ended since; ${remedy}`, {
    leaseId: view.leaseId,
    ...(ended === undefined
      ? {}
      : {
          state: ended.how === 'lease.released' ? 'RELEASED' : 'REAPED',
          endedAt: new Date(ended.endedAt).toISOString(),
        }),
  })
}

/** Items see each other's effects in a copy of the books; one refusal and the copy is forgotten, events and all. */
function decideAllOrNothing(books: Books, command: AllOrNothing): Verdict {
  const trial = forkBooks(books)
  const events: LedgerEvent[] = []
  const items: Answer[] = []
  for (const [index, item] of command.items.entries()) {
    const verdict = decideOne(trial, item)
    if ('refused' in verdict) {
      const { refused } = verdict
      return {
        events: [],
        refused: {
          ...refused,
          message: `item ${index}: ${refused.message}`,
          metadata: { ...refused.metadata, item: String(index) },
        },
      }
    }
    for (const event of verdict.events) evolve(trial, event)
    events.push(...verdict.events)
    items.push(verdict.answer)
  }
  if (events.length > 0 && events[0]!.seq !== books.head + 1)
    throw new BrokenBooks('a trial left the ledger with a gap')
  return { events, answer: { leases: [], items } }
}
