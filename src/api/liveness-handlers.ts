/** LivenessService: sources and what they report, what follows from it, and what waits. One function a method. */
import { blockBase, blockSize, formatValue, isMalformed, parseAddress } from '../core/address.ts'
import { eraOf, firstSeqOfEra } from '../core/policy.ts'
import { type Refusal, refusal } from '../core/refusal.ts'
import type { LivenessService } from '../gen/ipledger/v1/liveness_pb.ts'
import { beginEraBeyond } from '../ledger/eras.ts'
import { asking, nothingWasDone, ReadsUnavailable } from '../ledger/reads.ts'
import { createGathering } from '../liveness/gather.ts'
import {
  type Range,
  readFence,
  readHolds,
  readSightings,
  readSnapshots,
  readSourceNamed,
  readSources,
  type SightingPosition,
  type SnapshotPosition,
  type SourceListed,
} from '../liveness/lists.ts'
import { planNetwork } from '../liveness/plan.ts'
import { enableSource, registerSource, retireSource } from '../liveness/register.ts'
import {
  beginSnapshot,
  createUnchangedIntake,
  type Ground,
  isRefusal,
  type Reported,
  reportSnapshot,
  reportVerdicts,
  type SnapshotReport,
} from '../liveness/report.ts'
import { LOWEST, sightNews } from '../liveness/sighted.ts'
import { listStuck } from '../liveness/stuck.ts'
import { countUncovered } from '../liveness/uncovered.ts'
import { rememberUnknown } from '../liveness/unknown-sources.ts'
import {
  type Backend,
  beyondHead,
  type Call,
  type Handlers,
  networkNotFound,
  readingBack,
  submit,
} from './call.ts'
import { invalidField, Refused } from './errors.ts'
import { address, LIMITS, ledgerNumber, pageSize, poolName, requiredText, text } from './fields.ts'
import {
  awaitingMessage,
  begunMessage,
  findingMessage,
  holdMessage,
  reportedMessage,
  sightingMessage,
  snapshotMessage,
  sourceMessage,
  stuckMessage,
  verdictsMessage,
} from './liveness-answers.ts'
import {
  type Reporting,
  readCodes,
  readFenceNode,
  readRegistration,
  readReport,
  readReporting,
  readResumeHold,
  readSourceId,
  readSourceStates,
  readVerdicts,
} from './liveness-requests.ts'
import { decodePage, encodePage } from './page-token.ts'
import { allowedNetwork } from './requests.ts'

export function livenessHandlers(backend: Backend): Handlers<typeof LivenessService> {
  const { ledger, intake } = backend
  const { database } = intake
  const sayUnchanged = createGathering({
    perform: createUnchangedIntake(intake),
    groupOf: ({ network }) => network,
    keyOf: ({ network, source }) => `${network} ${source}`,
    isAwaited: (call) => call.isAwaited(),
  })
  const take = (report: SnapshotReport, call: Call) =>
    'unchanged' in report.content
      ? sayUnchanged({
          ...report,
          unchanged: report.content.unchanged,
          isAwaited: () => performance.now() < call.deadline && !call.isGone(),
        })
      : reportSnapshot(intake, report)

  return {
    registerSource: async (message, call) => {
      const wanted = readRegistration(message, call)
      accepted(await writing(registerSource(database, wanted)))
      const source = await shown(backend, wanted, 'registered')
      return { $typeName: 'ipledger.v1.RegisterSourceResponse', source: sourceMessage(source) }
    },

    enableSource: async (message, call) => {
      const wanted = readSourceId(message, call)
      accepted(await writing(enableSource(database, wanted)))
      const source = await shown(backend, wanted, 'enabled')
      return { $typeName: 'ipledger.v1.EnableSourceResponse', source: sourceMessage(source) }
    },

    retireSource: async (message, call) => {
      const wanted = readSourceId(message, call)
      accepted(await writing(retireSource(database, wanted)))
      const source = await shown(backend, wanted, 'retired')
      const left = await readingBack(
        asking(countUncovered(database, source)),
        `source ${wanted.id} was retired`,
      )
      return {
        $typeName: 'ipledger.v1.RetireSourceResponse',
        source: sourceMessage(source),
        uncovered: left.leases,
        atLeast: left.atLeast,
      }
    },

    listSources: async (message, call) => {
      const network = allowedNetwork(call, message.network)
      const id = optional(message.id, 'id')
      const node = optional(message.node, 'node')
      const states = readSourceStates(message.states)
      const size = pageSize(message.pageSize)
      const asked = ['ListSources', network, id, node, states]
      const after = placeOf(message.pageToken, asked) ?? ''
      await requireNetwork(backend, network)
      const { found, next } = await (id === null
        ? asking(readSources(database, { network, node, states, after, size }))
        : onlyNamed(backend, network, id))
      const sources = found.filter(
        (source) => (node === null || source.node === node) && states.includes(source.state),
      )
      return {
        $typeName: 'ipledger.v1.ListSourcesResponse',
        sources: sources.map(sourceMessage),
        nextPageToken: next === null ? '' : encodePage(next, asked),
      }
    },

    listSnapshots: async (message, call) => {
      const network = allowedNetwork(call, message.network)
      const source = requiredText(message.source, 'source', LIMITS.nameBytes)
      const sequence = number(message.sequence, 'sequence')
      const size = pageSize(message.pageSize)
      const asked = ['ListSnapshots', network, source, sequence]
      const position = decodePage(message.pageToken, asked)
      const after = position === null ? null : snapshotPosition(position)
      await requireSource(backend, network, source)
      const { found, next } = await asking(
        readSnapshots(database, { network, source, sequence, after, size }),
      )
      return {
        $typeName: 'ipledger.v1.ListSnapshotsResponse',
        snapshots: found.map(snapshotMessage),
        nextPageToken: next === null ? '' : encodePage(`${next.sequence} ${next.reportedAt}`, asked),
      }
    },

    listSightings: async (message, call) => {
      const network = allowedNetwork(call, message.network)
      const source = optional(message.source, 'source')
      const at = message.address === '' ? null : address(message.address, 'address')
      const { vanished } = message
      const sequence = number(message.sequence, 'sequence')
      if (sequence !== null && source === null) {
        throw invalidField('sequence', 'only with source, whose snapshot it is the number of')
      }
      const size = pageSize(message.pageSize)
      const asked = ['ListSightings', network, source, at, vanished, sequence]
      const position = decodePage(message.pageToken, asked)
      const after = position === null ? null : sightingPosition(position)
      if (source === null) await requireNetwork(backend, network)
      else await requireSource(backend, network, source)
      const range = at === null ? null : await rangeAround(backend, network, at)
      const { found, next } = await asking(
        readSightings(database, { network, source, range, vanished, sequence, after, size }),
      )
      return {
        $typeName: 'ipledger.v1.ListSightingsResponse',
        sightings: found.map(sightingMessage),
        nextPageToken: next === null ? '' : encodePage(sightingText(next), asked),
      }
    },

    beginSnapshot: async (message, call) => {
      const wanted = readReporting(message, call)
      const begin = async () => heard(backend, call, wanted, await asking(beginSnapshot(intake, wanted)))
      let begun = await begin()
      if (begun.ground.beyond !== null) {
        await believe(backend, call, wanted, begun.ground)
        begun = await begin()
        if (begun.ground.beyond !== null) throw refusedBeyond(backend, call, wanted, begun.ground)
      }
      return begunMessage(begun)
    },

    reportSnapshot: async (message, call) => {
      const report = readReport(message, call)
      const send = async () => heard(backend, call, report, await writing(take(report, call)))
      let reported = await send()
      if (reported.is === 'beyond') {
        await believe(backend, call, report, reported.ground)
        reported = await send()
      }
      if (reported.is === 'beyond') throw refusedBeyond(backend, call, report, reported.ground)
      if (reported.is !== 'taken') return awaitingMessage(reported)
      await followUp(backend, call, report, reported)
      return reportedMessage(reported)
    },

    reportVerdicts: async (message, call) => {
      const reporting = readReporting(message, call)
      const epoch = requiredText(message.epoch, 'epoch', LIMITS.nameBytes)
      const verdicts = readVerdicts(message.verdicts)
      const send = async () =>
        accepted(await writing(reportVerdicts(intake, { ...reporting, epoch, verdicts })))
      let taken = await send()
      if (taken.ground.beyond !== null) {
        await believe(backend, call, reporting, taken.ground)
        taken = await send()
        if (taken.ground.beyond !== null) throw refusedBeyond(backend, call, reporting, taken.ground)
      }
      return verdictsMessage(taken)
    },

    fenceNode: async (message, call) => {
      const command = readFenceNode(message, call)
      await submit(backend, command, call)
      const fence = await readingBack(
        asking(readFence(database, command)),
        `boot ${command.boot} of node ${command.node} was fenced`,
      )
      return {
        $typeName: 'ipledger.v1.FenceNodeResponse',
        seq: BigInt(fence.seq),
        leases: fence.leases,
      }
    },

    reconcile: async (message, call) => {
      const network = allowedNetwork(call, message.network)
      const filter = {
        pool: message.pool === '' ? null : poolName(message.pool, 'pool'),
        address: message.address === '' ? null : address(message.address, 'address'),
        source: optional(message.source, 'source'),
        kept: message.kept,
        asIfEnabled: optional(message.asIfEnabled, 'asIfEnabled'),
      }
      const limit = pageSize(message.pageSize)
      const asked = ['Reconcile', network, filter]
      const place = placeOf(message.pageToken, asked)
      const after = place === null ? null : address(place, 'pageToken')
      await requireNetwork(backend, network)
      const planned = accepted(
        await asking(planNetwork({ database, ledger }, { network, ...filter, after, limit })),
      )
      return {
        $typeName: 'ipledger.v1.ReconcileResponse',
        findings: planned.findings.map(findingMessage),
        nextPageToken: planned.next === null ? '' : encodePage(planned.next, asked),
        head: BigInt(planned.head),
      }
    },

    listHolds: async (message, call) => {
      const network = allowedNetwork(call, message.network)
      await requireNetwork(backend, network)
      const holds = await asking(readHolds(database, network))
      return {
        $typeName: 'ipledger.v1.ListHoldsResponse',
        holds: holds.map((hold) => holdMessage(network, hold)),
      }
    },

    resumeHold: async (message, call) => {
      const command = readResumeHold(message, call)
      const { network, source } = command
      // A slip of the pen would seem to have ended a hold.
      if (source !== null) await requireSource(backend, network, source)
      await submit(backend, command, call)
      const holds = await readingBack(asking(readHolds(database, network)), 'the hold was ended')
      return {
        $typeName: 'ipledger.v1.ResumeHoldResponse',
        holds: holds.map((hold) => holdMessage(network, hold)),
      }
    },

    listStuck: async (message, call) => {
      const network = allowedNetwork(call, message.network)
      const codes = readCodes(message.codes)
      const limit = pageSize(message.pageSize)
      const asked = ['ListStuck', network, codes]
      const place = placeOf(message.pageToken, asked)
      const after = place === null ? null : stuckPosition(place)
      await requireNetwork(backend, network)
      const { stuck, next } = accepted(await asking(listStuck(database, { network, codes, after, limit })))
      return {
        $typeName: 'ipledger.v1.ListStuckResponse',
        stuck: stuck.map(stuckMessage),
        nextPageToken: next === null ? '' : encodePage(next, asked),
      }
    },
  }
}

// Networks and sources that are named.

async function requireNetwork({ reads }: Backend, network: string): Promise<void> {
  if ((await reads.network(network)) === null) throw networkNotFound(network)
}

async function requireSource(backend: Backend, network: string, id: string): Promise<void> {
  await requireNetwork(backend, network)
  if ((await named(backend, network, id)) !== null) return
  throw new Refused(
    refusal('SOURCE_NOT_FOUND', `network ${network} has no source ${id}`, { network, source: id }),
  )
}

function named({ intake }: Backend, network: string, id: string): Promise<SourceListed | null> {
  return asking(readSourceNamed(intake.database, network, id))
}

async function onlyNamed(backend: Backend, network: string, id: string) {
  const source = await named(backend, network, id)
  return { found: source === null ? [] : [source], next: null }
}

/** As it stands after what was done to it. */
function shown(
  backend: Backend,
  { network, id }: { readonly network: string; readonly id: string },
  what: string,
): Promise<SourceListed> {
  return readingBack(named(backend, network, id), `source ${id} was ${what}`)
}

/** An address in a block that is leased as one stands for the block. */
async function rangeAround({ reads }: Backend, network: string, at: string): Promise<Range> {
  const parsed = parseAddress(at)
  if (isMalformed(parsed)) throw invalidField('address', parsed.malformed)
  const found = await reads.leaseAt(network, parsed)
  if (found?.is !== 'held') return { first: at, last: at }
  const { family, value } = parsed
  const { prefixLength } = found.lease
  const first = blockBase(family, value, prefixLength)
  return {
    first: formatValue(family, first),
    last: formatValue(family, first + blockSize(family, prefixLength) - 1n),
  }
}

// Reports.

/**
 * While the books recover, a source that they do not know may be one that was registered after they were copied, and one
 * in dry run may have been enabled since: they wait for it (12.1). A token that is bound to a node is told no more than
 * that the source is none of its.
 */
async function heard<T extends { readonly ground: Ground; readonly source?: { readonly state: string } }>(
  { intake, log }: Backend,
  call: Call,
  { network, source }: Reporting,
  result: T | Refusal,
): Promise<T> {
  const { name: by, node } = call.caller
  const isWaitedFor = isRefusal(result)
    ? result.reason === 'SOURCE_NOT_FOUND' || result.reason === 'SOURCE_MISMATCH'
    : result.ground.networkState === 'RECOVERING' && result.source?.state === 'REGISTERED'
  if (isWaitedFor) {
    const called = { network, id: source, node: node ?? '', by }
    if (await asking(rememberUnknown(intake.database, called))) {
      log.warn(
        { network, source, node, actor: by },
        'a source that is not known, or in dry run, reports while the network recovers: the recovery waits until it is registered and enabled',
      )
    }
  }
  if (isRefusal(result)) throw new Refused(result)
  return result
}

/** At once, after a report was taken: whatever goes wrong here, it is taken, and the jobs do the same again. */
async function followUp(
  backend: Backend,
  call: Call,
  { network, source, epoch: boot }: SnapshotReport,
  reported: Reported,
): Promise<void> {
  const { ledger, log } = backend
  const actor = call.caller.name
  const { ground, news, fencedAt } = reported
  if (fencedAt !== null) {
    log.error(
      { network, source, actor, node: reported.source.node, boot, fencedAt },
      'a boot that somebody vouched for as over reports: what it lists is alive, and its addresses may be handed out',
    )
  }
  try {
    if (ground.beyond !== null) {
      log.error(
        { network, source, actor, beyond: ground.beyond, era: ground.era, head: ground.head },
        'a snapshot token of ours has numbers this ledger never gave out: the database is an older copy, a new era begins',
      )
      const outcome = await beginEraBeyond(ledger, { network, ground, actor })
      if (!outcome.ok) {
        log.error({ network, source, refusal: outcome.refusal }, 'the new era could not be begun')
      }
    }
    if (news.length > 0) {
      await sightNews({ database: backend.intake.database, ledger }, network, reported, actor)
    }
  } catch (error) {
    log.error({ network, source, err: error }, 'what a snapshot says could not be acted on at once')
  }
}

/**
 * An enabled source of a node says by its own token that it saw numbers of a later life of this ledger: then there was
 * one, and a new era begins. From anybody else it is a mistake or a lie, and changes nothing (calico#4374).
 */
async function believe(backend: Backend, call: Call, asked: Reporting, ground: Ground): Promise<void> {
  const { ledger, log } = backend
  const { name: actor, role, node } = call.caller
  const { network } = asked
  const source = role === 'agent' ? await named(backend, network, asked.source) : null
  if (source === null || source.state !== 'ENABLED' || source.node !== node) {
    throw refusedBeyond(backend, call, asked, ground)
  }
  log.error(
    { network, source: source.id, actor, beyond: ground.beyond, era: ground.era, head: ground.head },
    'an enabled source saw numbers this ledger never gave out: the database is an older copy, a new era begins',
  )
  const outcome = await beginEraBeyond(ledger, { network, ground, actor })
  if (outcome.ok) return
  // So far ahead that nobody was ever given it.
  if (outcome.refusal.reason === 'VERSION_MISMATCH') throw refusedBeyond(backend, call, asked, ground)
  throw new Refused(outcome.refusal)
}

function refusedBeyond(
  backend: Backend,
  call: Call,
  { network, quoted }: Reporting,
  { era, head, beyond }: Ground,
): Refused {
  const endedAt = beyond?.endedAt
  if (endedAt !== undefined) {
    const number = quoted.head
    return beyondHead(backend, call, `seenHead (of era ${eraOf(number)}, which is over)`, {
      network,
      number,
      head: endedAt,
    })
  }
  return quoted.head > head
    ? beyondHead(backend, call, 'seenHead', { network, number: quoted.head, head })
    : beyondHead(backend, call, `seenEra (this is era ${era})`, {
        network,
        number: firstSeqOfEra(quoted.era),
        head,
      })
}

/** Where the connection broke in the middle, nobody knows how far it got; every one of these may be repeated. */
async function writing<T>(work: Promise<T>): Promise<T> {
  try {
    return await asking(work)
  } catch (error) {
    if (!(error instanceof ReadsUnavailable) || nothingWasDone(error)) throw error
    const unknown = refusal(
      'OUTCOME_UNKNOWN',
      'the database did not answer; a snapshot is reported again with a new token, anything else as it is',
      {},
      1_000,
    )
    throw Object.assign(new Refused(unknown), { cause: error.cause })
  }
}

function accepted<T extends object>(result: T | Refusal): T {
  if (isRefusal(result)) throw new Refused(result)
  return result
}

// Fields and positions.

function optional(value: string, path: string): string | null {
  return value === '' ? null : text(value, path, LIMITS.nameBytes)
}

/** 0 is none. */
function number(value: bigint, path: string): number | null {
  return value === 0n ? null : ledgerNumber(value, path)
}

/** A forged position must not reach the database as anything but text. */
function placeOf(pageToken: string, asked: unknown): string | null {
  const position = decodePage(pageToken, asked)
  return position === null ? null : text(position, 'pageToken', PLACE_BYTES)
}

const PLACE_BYTES = 512

function snapshotPosition(position: string): SnapshotPosition {
  const found = /^([0-9]{1,15}) ([0-9]{1,15})$/.exec(position)
  if (found === null) throw invalidField('pageToken', 'is not a page token of this server')
  const [sequence, reportedAt] = found.slice(1).map(Number) as [number, number]
  return { sequence, reportedAt }
}

/** `s` and the id of a source, then `a` and an address: behind it the list goes on. */
function stuckPosition(place: string): string {
  if (place.startsWith('s') || place === `a${LOWEST}`) return place
  if (!place.startsWith('a')) throw invalidField('pageToken', 'is not a page token of this server')
  return `a${address(place.slice(1), 'pageToken')}`
}

/** Address, number, key, and last the source, whose id may hold anything. */
const SIGHTING_PLACE = /^([0-9a-f:.]{2,45}) ([0-9]{1,15}) ([A-Za-z0-9_-]{0,64}) (.*)$/su

function sightingPosition(position: string): SightingPosition {
  const found = SIGHTING_PLACE.exec(text(position, 'pageToken', PLACE_BYTES))
  if (found === null) throw invalidField('pageToken', 'is not a page token of this server')
  const [, at, sequence, entry, source] = found as unknown as [string, string, string, string, string]
  return { address: address(at, 'pageToken'), source, entry, sequence: Number(sequence) }
}

function sightingText({ address: at, source, entry, sequence }: SightingPosition): string {
  return `${at} ${sequence} ${entry} ${source}`
}
