/** LivenessService: sources and what they report, what follows from it, and what waits. */
import type { JsonObject } from '@bufbuild/protobuf'
import type { Family } from '../../core/address.ts'
import {
  ATTENTION,
  ATTENTION_CODES,
  type Attention,
  AttentionList,
  attentionOf,
} from '../../core/attention.ts'
import type { Answer } from '../../core/command.ts'
import type { Details, HoldCause, SourceKind } from '../../core/event.ts'
import type { SourceState } from '../../core/image.ts'
import { POLICY } from '../../core/policy.ts'
import type * as pb from '../../gen/ipledger/v1/liveness_pb.ts'
import { attentionToLeases } from '../../ledger/read-attention.ts'
import { EVERY_LEASE } from '../../ledger/read-leases.ts'
import { asking, type Reads } from '../../ledger/reads.ts'
import type { Reporting, Verdict } from '../../sources/report.ts'
import { checkAllowed, checkDeclaration, missingEntry } from '../../sources/settings.ts'
import { endedAt, sentence } from '../../sources/source.ts'
import type { Decoded } from '../codec/decode-request.ts'
import { invalidField, Refused, refused } from '../codec/errors.ts'
import { address, excluding, ipAddress, knownTexts, optionalCidr, reason, required } from '../codec/fields.ts'
import { pageOf } from '../codec/page-token.ts'
import { holdsView, leaseView, sightingView, sourceView, verificationView } from '../codec/views.ts'
import { accepted, type Backend, type Declarations, ofNetwork, poolNotFound, type Scoped } from '../method.ts'
import { ADMINS, checkAllNetworks, checkNode, HOLDERS, mayReport, READERS } from '../rights.ts'
import { reconcile as judgeLeases } from './reconcile.ts'

/** Of the settings of a source; far more than any kind needs. */
const SETTINGS_BYTES = 16 * 1024
const DETAIL_BYTES = 1_024

const NOT_READ = { freshness: null, failure: null, failingSince: null }

export const livenessMethods: Declarations<typeof pb.LivenessService> = {
  registerSource: {
    roles: ADMINS,
    decode({ id, kind: kindName, sight, settings }, { caller, network }, { secrets }) {
      const kind = (kindName?.toLowerCase() ?? 'push') as SourceKind
      const { node, ownerKinds, families, intervalMs } = required(sight, 'sight')
      checkNode(caller, node)
      if (ownerKinds.length === 0)
        throw invalidField('sight.ownerKinds', 'required: the kinds of workloads that it can see, as in pod')
      const declaration = {
        id: required(id, 'id'),
        kind,
        node,
        ownerKinds: [...new Set(ownerKinds)],
        families: decodeFamilies(families),
        intervalMs: intervalMs ?? (kind === 'push' ? POLICY.agentIntervalMs : POLICY.pulledIntervalMs),
        settings: decodeSettings(settings ?? {}),
      }
      const bad = checkDeclaration(declaration) ?? checkAllowed(secrets, network, declaration)
      if (bad !== null) throw new Refused(bad)
      const missing = missingEntry(secrets, network, declaration)
      if (missing !== null) checkAllNetworks(caller, missing)
      return { type: 'registerSource', declaration }
    },
    view: viewOf,
  },
  enableSource: {
    roles: ADMINS,
    decode: ({ id, acceptUnlisted }) => ({ type: 'enableSource', id: required(id, 'id'), acceptUnlisted }),
    view: viewOf,
  },
  retireSource: {
    roles: ADMINS,
    decode: ({ id }) => ({ type: 'retireSource', id: required(id, 'id') }),
    view: viewOf,
  },
  resumeHold: {
    roles: ADMINS,
    decode: ({ cause, ...given }) => ({
      type: 'resumeHold',
      hold: (cause as HoldCause | undefined) ?? null,
      why: reason(given),
    }),
    view: ({ network }) => ({ holds: holdsView(network!.network) }),
  },
  beginSnapshot: {
    roles: HOLDERS,
    async answer(request, call, { intake }) {
      const { proof, ...begun } = accepted(await asking(intake.begin(decodeReporting(request, call))))
      return { ...begun, proof: base64(proof) }
    },
  },
  reportSnapshot: {
    roles: HOLDERS,
    async answer(request, call, { intake }) {
      const { entries, unchanged, sequence, head, proof, complete } = request
      if (unchanged !== '' && entries.length > 0) excluding('unchanged', 'entries', 'unchanged')
      const report = {
        ...decodeReporting(request, call),
        begunAt: required(request.begunAt, 'begunAt'),
        sequence: required(sequence || undefined, 'sequence'),
        epoch: required(request.epoch, 'epoch'),
        head,
        proof,
        complete,
        content: unchanged === '' ? { entries } : { unchanged },
      }
      const { next, ...reported } = accepted(await asking(intake.report(report)))
      return {
        ...reported,
        verifications: reported.verifications.map(verificationView),
        nextSequence: next.sequence,
        nextHead: next.head,
        nextBegunAt: next.begunAt,
        nextProof: base64(next.proof),
      }
    },
  },
  reportVerdicts: {
    roles: HOLDERS,
    async answer(request, call, { intake }) {
      const reporting = decodeReporting(request, call)
      const epoch = required(request.epoch, 'epoch')
      if (request.verdicts.length === 0) throw invalidField('verdicts', 'required: 1 to 1000 verdicts')
      const verdicts = request.verdicts.map(decodeVerdict)
      return accepted(await asking(intake.verdicts({ ...reporting, epoch, verdicts })))
    },
  },
  getSource: {
    roles: READERS,
    async answer(request, { network }, { ledger, reads }) {
      const found = await foundSource(reads, network, required(request.id, 'id'))
      return { source: sourceView(network, found, ledger.now()) }
    },
  },
  listSources: {
    roles: READERS,
    async answer(request, { network }, { ledger, reads }) {
      const page = pageOf(request)
      const filter = {
        id: null,
        node: request.node || null,
        states: request.states as readonly SourceState['state'][],
        after: page.after,
        limit: page.size + 1,
      }
      const found = ofNetwork(await reads.sources(network, filter), network)
      const { items, nextPageToken } = page.cut(found, ({ source }) => source.declaration.id)
      return { sources: items.map((one) => sourceView(network, one, ledger.now())), nextPageToken }
    },
  },
  listSightings: {
    roles: READERS,
    async answer(request, { network }, { reads }) {
      const { vanished } = request
      const address = request.address === '' ? null : ipAddress(request.address, 'address')
      const page = pageOf(request)
      const source = await requiredSource(reads, network, request.source)
      const found = await reads.sightings(network, { source, address, vanished }, page)
      const { sightings, next } = ofNetwork(found, network)
      return { sightings: sightings.map(sightingView), nextPageToken: page.next(next) }
    },
  },
  listAttention: {
    roles: READERS,
    async answer(request, { network, deadline }, { ledger, reads }) {
      const codes = knownTexts(request.codes, ATTENTION_CODES, 'codes')
      const page = pageOf(request)
      const list = new AttentionList({ isEach: request.each, after: page.after ?? '', size: page.size + 1 })
      const add = (one: Attention): void => {
        if (codes.length > 0 && !codes.includes(one.code)) return
        if (request.source === '' || request.source === one.source) list.add(one)
      }
      const found = await reads.findings(network)
      const image = ofNetwork(await ledger.image(network, { deadline }), network)
      for (const one of attentionOf({ image, now: ledger.now(), ...found })) add(one)
      for await (const items of attentionToLeases(image)) items.forEach(add)
      const { items, nextPageToken } = page.cut(list.items(), (last) => list.positionOf(last))
      return { items: items.map((one) => ({ ...one, severity: ATTENTION[one.code][0] })), nextPageToken }
    },
  },
  reconcile: {
    roles: READERS,
    async answer(request, { network, deadline }, backend) {
      const { pool, kept } = request
      const page = pageOf(request, address)
      const source = await requiredSource(backend.reads, network, request.source)
      const cidr = optionalCidr(request.address, 'address')
      const leases = { ...EVERY_LEASE, pools: pool === '' ? [] : [pool], cidr }
      const judged = await judgeLeases(backend, { network, leases, source, kept, ...page, deadline })
      const { findings, next, head, unknownPools } = ofNetwork(judged, network)
      if (unknownPools.length > 0) throw poolNotFound(network, pool)
      return {
        findings: findings.map((one) => ({
          ...one,
          address: one.lease.address,
          lease: leaseView(one.lease),
        })),
        nextPageToken: page.next(next),
        head,
      }
    },
  },
}

const namedSource = (reads: Reads, network: string, id: string) =>
  reads.sources(network, { id, node: null, states: [], after: null, limit: 1 })

/** As the command left it, with its reports if they can be read. */
async function viewOf(answer: Answer, { network }: Scoped, { ledger, reads }: Backend) {
  const { source, placed, listed, unwitnessed, unlisted, foreseen } = answer
  const found = await namedSource(reads, network, source!.declaration.id).catch(() => null)
  const view = sourceView(network, { ...NOT_READ, ...found?.[0], source: source! }, ledger.now())
  return { source: view, placed, listed, unwitnessed, unlisted, foreseen }
}

async function requiredSource(reads: Reads, network: string, id: string): Promise<string | null> {
  return id === '' ? null : (await foundSource(reads, network, id)).source.declaration.id
}

async function foundSource(reads: Reads, network: string, id: string) {
  const [found] = ofNetwork(await namedSource(reads, network, id), network)
  if (found !== undefined) return found
  throw refused('SOURCE_NOT_FOUND', `network ${network} has no source ${id}`, { network, source: id })
}

function base64(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('base64')
}

function decodeReporting(request: { readonly source: string }, call: Scoped): Reporting {
  const { caller, network, traceId, deadline } = call
  return {
    network,
    source: required(request.source, 'source'),
    traceId,
    deadline,
    actor: { name: caller.name, node: caller.node },
    mayReport: mayReport(caller),
  }
}

function decodeFamilies(given: readonly number[]): readonly Family[] {
  if (given.length === 0) return [4, 6]
  const families = given.map((family, index) => {
    if (family !== 4 && family !== 6) throw invalidField(`sight.families[${index}]`, 'must be 4 or 6')
    return family
  })
  return [...new Set(families)]
}

function decodeSettings(settings: JsonObject): Details {
  // PostgreSQL's text holds everything but this.
  const json = JSON.stringify(settings, (key, value) => {
    const isStorable = [key, value].every(
      (one) => typeof one !== 'string' || (one.isWellFormed() && !one.includes('\0')),
    )
    if (!isStorable) throw invalidField('settings', 'must be well-formed text without NUL')
    return value
  })
  if (Buffer.byteLength(json) > SETTINGS_BYTES) {
    throw invalidField('settings', `must have at most ${SETTINGS_BYTES} bytes of JSON`)
  }
  return settings as Details
}

function decodeVerdict(
  { id, answer: named, terminalSince, ...input }: Decoded<pb.LookUpVerdict>,
  index: number,
): Verdict {
  const path = `verdicts[${index}]`
  const answer = required(named, `${path}.answer`).toLowerCase() as Verdict['answer']
  if (Buffer.byteLength(input.detail) > DETAIL_BYTES) {
    throw invalidField(`${path}.detail`, `must have at most ${DETAIL_BYTES} bytes`)
  }
  // Errors of a runtime have lines; refusing a verdict for them would leave it unanswered for ever.
  const detail = sentence(input.detail)
  if (answer !== 'terminal') {
    if (terminalSince !== undefined)
      throw invalidField(`${path}.terminalSince`, 'is only for the answer TERMINAL')
    return { id, answer, detail }
  }
  return { id, ...endedAt(required(terminalSince, `${path}.terminalSince`), detail) }
}
