/** LivenessService: sources and what they report, what follows from it, and what waits. One function a method. */
import type { Answer } from '../core/command.ts'
import type { HoldCause } from '../core/event.ts'
import type { SourceState } from '../core/image.ts'
import { refusal } from '../core/refusal.ts'
import type { LivenessService } from '../gen/ipledger/v1/liveness_pb.ts'
import type { LeaseFilter } from '../ledger/read-leases.ts'
import { ATTENTION_CODES } from '../ledger/read-sources.ts'
import { asking } from '../ledger/reads.ts'
import { shownHolds, shownLease, shownSighting, shownSource, shownVerification } from './answers.ts'
import { accepted, type Backend, commanded, type Handlers, ofNetwork, poolNotFound } from './call.ts'
import { Refused } from './errors.ts'
import { address, ipAddress, knownTexts, optionalCidr, required } from './fields.ts'
import {
  readRegisterSource,
  readReport,
  readReporting,
  readSourceCommand,
  readVerdicts,
} from './liveness-requests.ts'
import { pageOf } from './page-token.ts'
import { reconcile } from './reconcile.ts'
import { allowedNetwork, command } from './requests.ts'

const EVERY_LEASE: LeaseFilter = {
  states: [],
  quarantineReasons: [],
  ownerKind: null,
  ownerName: null,
  ownerUid: null,
  node: null,
  labels: {},
  pools: [],
  cidr: null,
}

const NOT_READ = { freshness: null, failure: null, failingSince: null }
const EVERY_SOURCE = { id: null, node: null, states: [], after: null }

export function livenessHandlers(backend: Backend): Handlers<typeof LivenessService> {
  const { reads, intake, secrets } = backend

  /** As the command left it; how it stands by its reports if that can be read. */
  async function answered({ source }: Answer, { network }: { readonly network: string }) {
    const filter = { ...EVERY_SOURCE, id: source!.declaration.id, limit: 1 }
    const found = await reads.sources(network, filter).catch(() => null)
    return { source: shownSource(network, { ...NOT_READ, ...found?.[0], source: source! }) }
  }

  async function requireSource(network: string, id: string): Promise<void> {
    const filter = { ...EVERY_SOURCE, id, limit: 1 }
    if (ofNetwork(await reads.sources(network, filter), network).length > 0) return
    throw new Refused(
      refusal('SOURCE_NOT_FOUND', `network ${network} has no source ${id}`, { network, source: id }),
    )
  }

  return {
    registerSource: commanded(
      backend,
      (message, call) => readRegisterSource(message, call, secrets),
      answered,
    ),
    enableSource: commanded(backend, readSourceCommand('enableSource'), answered),
    retireSource: commanded(backend, readSourceCommand('retireSource'), async (answer, command) => ({
      ...(await answered(answer, command)),
      unwitnessed: answer.unwitnessed,
      unlisted: answer.unlisted,
    })),

    listSources: async (message, call) => {
      const network = allowedNetwork(call, message.network)
      const page = pageOf(message)
      const filter = {
        id: message.id || null,
        node: message.node || null,
        states: message.states as readonly SourceState['state'][],
        after: page.after,
        limit: page.size + 1,
      }
      const found = ofNetwork(await reads.sources(network, filter), network)
      const { items, nextPageToken } = page.cut(found, ({ source }) => source.declaration.id)
      return { sources: items.map((source) => shownSource(network, source)), nextPageToken }
    },

    listSightings: async (message, call) => {
      const network = allowedNetwork(call, message.network)
      const { vanished } = message
      const source = message.source || null
      const at = message.address === '' ? null : ipAddress(message.address, 'address')
      const page = pageOf(message)
      if (source !== null) await requireSource(network, source)
      const found = await reads.sightings(network, { source, address: at, vanished }, page)
      const { sightings, next } = ofNetwork(found, network)
      return { sightings: sightings.map(shownSighting), nextPageToken: page.next(next) }
    },

    beginSnapshot: async (message, call) =>
      accepted(await asking(intake.begin(readReporting(message, call)))),

    reportSnapshot: async (message, call) => {
      const { next, ...reported } = accepted(await asking(intake.report(readReport(message, call))))
      return {
        ...reported,
        verifications: reported.verifications.map(shownVerification),
        nextSequence: next.sequence,
        nextHead: next.head,
        nextBegunAt: next.begunAt,
      }
    },

    reportVerdicts: async (message, call) => {
      const reporting = readReporting(message, call)
      const epoch = required(message.epoch, 'epoch')
      const verdicts = readVerdicts(message.verdicts)
      return accepted(await asking(intake.verdicts({ ...reporting, epoch, verdicts })))
    },

    reconcile: async (message, call) => {
      const network = allowedNetwork(call, message.network)
      const { pool, kept } = message
      const source = message.source || null
      const page = pageOf(message, address)
      if (source !== null) await requireSource(network, source)
      const leases = {
        ...EVERY_LEASE,
        pools: pool === '' ? [] : [pool],
        cidr: optionalCidr(message.address, 'address'),
      }
      const wanted = { network, leases, source, kept, ...page, deadline: call.deadline }
      const { findings, next, head, unknownPools } = ofNetwork(await reconcile(backend, wanted), network)
      if (unknownPools.length > 0) throw poolNotFound(network, pool)
      return {
        findings: findings.map(({ lease, ...found }) => ({
          ...found,
          address: lease.address,
          lease: shownLease(lease),
        })),
        nextPageToken: page.next(next),
        head,
      }
    },

    resumeHold: commanded(
      backend,
      ({ network, cause, why, requestId }, call) =>
        command(call, allowedNetwork(call, network), requestId, {
          type: 'resumeHold',
          hold: (cause as HoldCause | undefined) ?? null,
          why: required(why, 'why'),
        }),
      ({ network }) => ({ holds: shownHolds(network!.network) }),
    ),

    listAttention: async (message, call) => {
      const network = allowedNetwork(call, message.network)
      const codes = knownTexts(message.codes, ATTENTION_CODES, 'codes')
      const page = pageOf(message)
      const { items, next } = ofNetwork(await reads.attention(network, { codes }, page), network)
      return { items, nextPageToken: page.next(next) }
    },
  }
}
