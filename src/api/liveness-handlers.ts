/** LivenessService: sources and what they report, what follows from it, and what waits. One function a method. */
import type { SourceState } from '../core/image.ts'
import { refusal } from '../core/refusal.ts'
import type { LivenessService } from '../gen/ipledger/v1/liveness_pb.ts'
import type { LeaseFilter, SourceShown } from '../ledger/reads-types.ts'
import { shownHolds, shownLease, shownSighting, shownSource, shownVerification } from './answers.ts'
import { accepted, type Backend, type Handlers, ofNetwork, submit } from './call.ts'
import { Refused } from './errors.ts'
import {
  address,
  cidrOrAddress,
  ipAddress,
  LIMITS,
  optionalText,
  pageSize,
  poolName,
  requiredText,
  text,
} from './fields.ts'
import {
  readCodes,
  readRegisterSource,
  readReport,
  readReporting,
  readResumeHold,
  readSourceCommand,
  readSourceStates,
  readVerdicts,
} from './liveness-requests.ts'
import { decodePage, encodePage } from './page-token.ts'
import { reconcile } from './reconcile.ts'
import { allowedNetwork } from './requests.ts'

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

export function livenessHandlers(backend: Backend): Handlers<typeof LivenessService> {
  const { reads, intake } = backend

  /** As the command left it; how it stands by its reports if that can be read. */
  async function shown(network: string, source: SourceState): Promise<SourceShown> {
    const { id } = source.declaration
    const filter = { id, node: null, states: [], after: null, limit: 1 }
    const found = await reads.sources(network, filter).catch(() => null)
    return { source, freshness: found?.[0]?.freshness ?? null }
  }

  async function requireSource(network: string, id: string): Promise<void> {
    const filter = { id, node: null, states: [], after: null, limit: 1 }
    if (ofNetwork(await reads.sources(network, filter), network).length > 0) return
    throw new Refused(
      refusal('SOURCE_NOT_FOUND', `network ${network} has no source ${id}`, { network, source: id }),
    )
  }

  return {
    registerSource: async (message, call) => {
      const command = readRegisterSource(message, call)
      const { network } = command
      const { source } = await submit(backend, command, call)
      return {
        source: shownSource(network, await shown(network, source!)),
      }
    },

    enableSource: async (message, call) => {
      const command = readSourceCommand('enableSource', message, call)
      const { network } = command
      const { source } = await submit(backend, command, call)
      return {
        source: shownSource(network, await shown(network, source!)),
      }
    },

    retireSource: async (message, call) => {
      const command = readSourceCommand('retireSource', message, call)
      const { network } = command
      const { source, unwitnessed = 0, unlisted = 0 } = await submit(backend, command, call)
      return {
        source: shownSource(network, await shown(network, source!)),
        unwitnessed,
        unlisted,
      }
    },

    listSources: async (message, call) => {
      const network = allowedNetwork(call, message.network)
      const id = optionalText(message.id, 'id')
      const node = optionalText(message.node, 'node')
      const states = readSourceStates(message.states)
      const size = pageSize(message.pageSize)
      const asked = ['ListSources', network, id, node, states]
      const after = placeOf(message.pageToken, asked)
      const found = ofNetwork(
        await reads.sources(network, { id, node, states, after, limit: size + 1 }),
        network,
      )
      const sources = found.slice(0, size)
      const last = found.length > size ? sources.at(-1) : undefined
      return {
        sources: sources.map((source) => shownSource(network, source)),
        nextPageToken: last === undefined ? '' : encodePage(last.source.declaration.id, asked),
      }
    },

    listSightings: async (message, call) => {
      const network = allowedNetwork(call, message.network)
      const source = optionalText(message.source, 'source')
      const at = message.address === '' ? null : ipAddress(message.address, 'address')
      const { vanished } = message
      const size = pageSize(message.pageSize)
      const asked = ['ListSightings', network, source, at === null ? null : message.address, vanished]
      const after = placeOf(message.pageToken, asked)
      if (source !== null) await requireSource(network, source)
      const found = await reads.sightings(network, { source, address: at, vanished }, { after, size })
      const { sightings, next } = ofNetwork(found, network)
      return {
        sightings: sightings.map(shownSighting),
        nextPageToken: next === null ? '' : encodePage(next, asked),
      }
    },

    beginSnapshot: async (message, call) => accepted(await intake.begin(readReporting(message, call))),

    reportSnapshot: async (message, call) => {
      const { next, ...reported } = accepted(await intake.report(readReport(message, call)))
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
      const epoch = requiredText(message.epoch, 'epoch', LIMITS.nameBytes)
      const verdicts = readVerdicts(message.verdicts)
      return accepted(await intake.verdicts({ ...reporting, epoch, verdicts }))
    },

    reconcile: async (message, call) => {
      const network = allowedNetwork(call, message.network)
      const pool = message.pool === '' ? null : poolName(message.pool, 'pool')
      const at = message.address === '' ? null : address(message.address, 'address')
      const source = optionalText(message.source, 'source')
      const { kept } = message
      const size = pageSize(message.pageSize)
      const asked = ['Reconcile', network, pool, at, source, kept]
      const position = decodePage(message.pageToken, asked)
      const after = position === null ? null : address(position, 'pageToken')
      if (source !== null) await requireSource(network, source)
      const leases = {
        ...EVERY_LEASE,
        pools: pool === null ? [] : [pool],
        cidr: at === null ? null : cidrOrAddress(at, 'address'),
      }
      const { deadline } = call
      const found = await reconcile(backend, { network, leases, source, kept, after, size, deadline })
      const { findings, next, head, unknownPools } = ofNetwork(found, network)
      if (unknownPools.length > 0) {
        const message = `there is no pool ${pool} in network ${network}`
        throw new Refused(refusal('POOL_NOT_FOUND', message, { pool: pool! }))
      }
      return {
        findings: findings.map((one) => ({
          ...one,
          address: one.lease.address,
          lease: shownLease(one.lease),
        })),
        nextPageToken: next === null ? '' : encodePage(next, asked),
        head,
      }
    },

    resumeHold: async (message, call) => {
      const { network } = await submit(backend, readResumeHold(message, call), call)
      return { holds: shownHolds(network!.network) }
    },

    listAttention: async (message, call) => {
      const network = allowedNetwork(call, message.network)
      const codes = readCodes(message.codes)
      const size = pageSize(message.pageSize)
      const asked = ['ListAttention', network, codes]
      const after = placeOf(message.pageToken, asked)
      const { items, next } = ofNetwork(await reads.attention(network, { codes }, { after, size }), network)
      return {
        items,
        nextPageToken: next === null ? '' : encodePage(next, asked),
      }
    },
  }
}

const PLACE_BYTES = 2_500

/** A forged position must not reach the database as anything but text. */
function placeOf(pageToken: string, asked: unknown): string | null {
  const position = decodePage(pageToken, asked)
  return position === null ? null : text(position, 'pageToken', PLACE_BYTES)
}
