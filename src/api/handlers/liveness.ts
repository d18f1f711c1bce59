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
import type { Details, HoldCause, SourceDeclaration, SourceKind } from '../../core/event.ts'
import type { SourceState } from '../../core/image.ts'
import { POLICY } from '../../core/policy.ts'
import type * as pb from '../../gen/ipledger/v1/liveness_pb.ts'
import { attentionToLeases } from '../../ledger/read-attention.ts'
import { asking, type Reads } from '../../ledger/reads.ts'
import type { Reporting, Verdict } from '../../sources/report.ts'
import { checkAllowed, checkDeclaration, missingEntry } from '../../sources/settings.ts'
import { endedAt, sentence } from '../../sources/source.ts'
import type { Decoded } from '../codec/decode-request.ts'
import { invalidField, Refused, refused } from '../codec/errors.ts'
import { address, excluding, ipAddress, knownTexts, optionalCidr, required } from '../codec/fields.ts'
import { pageOf } from '../codec/page-token.ts'
import { holdsView, leaseView, sightingView, sourceView, verificationView } from '../codec/views.ts'
import {
  accepted,
  allowedNetwork,
  type Backend,
  type Call,
  type Content,
  type Declarations,
  ofNetwork,
  poolNotFound,
} from '../method.ts'
import { ADMINS, checkAllNetworks, checkNode, HOLDERS, mayReport, READERS } from '../rights.ts'
import { reconcile as judgeLeases } from './reconcile.ts'

/** Of the settings of a source; far more than any kind needs. */
const SETTINGS_BYTES = 16 * 1024
const DETAIL_BYTES = 1_024

const NO_OWNER = { ownerKind: null, ownerName: null, ownerUid: null }
const EVERY_LEASE = { ...NO_OWNER, states: [], quarantineReasons: [], node: null, labels: {} }
const NOT_READ = { freshness: null, failure: null, failingSince: null }

export const livenessMethods: Declarations<typeof pb.LivenessService> = {
  registerSource: { roles: ADMINS, decode: decodeRegister, view: viewOf },
  enableSource: {
    roles: ADMINS,
    decode: ({ network, id, acceptUnlisted }, call) => ({
      type: 'enableSource',
      network: allowedNetwork(call, network),
      id: required(id, 'id'),
      acceptUnlisted,
    }),
    async view(answer, content, backend) {
      const { placed, listed } = answer
      return { ...(await viewOf(answer, content, backend)), placed, listed }
    },
  },
  retireSource: {
    roles: ADMINS,
    decode: ({ network, id }, call) => ({
      type: 'retireSource',
      network: allowedNetwork(call, network),
      id: required(id, 'id'),
    }),
    async view(answer, content, backend) {
      const { unwitnessed, unlisted } = answer
      return { ...(await viewOf(answer, content, backend)), unwitnessed, unlisted }
    },
  },
  resumeHold: {
    roles: ADMINS,
    decode: ({ network, cause, why }, call) => ({
      type: 'resumeHold',
      network: allowedNetwork(call, network),
      hold: (cause as HoldCause | undefined) ?? null,
      why: required(why, 'why'),
    }),
    view: ({ network }) => ({ holds: holdsView(network!.network) }),
  },
  beginSnapshot: { roles: HOLDERS, answer: beginSnapshot },
  reportSnapshot: { roles: HOLDERS, answer: reportSnapshot },
  reportVerdicts: { roles: HOLDERS, answer: reportVerdicts },
  listSources: { roles: READERS, answer: listSources },
  listSightings: { roles: READERS, answer: listSightings },
  listAttention: { roles: READERS, answer: listAttention },
  reconcile: { roles: READERS, answer: reconcile },
}

const namedSource = (reads: Reads, network: string, id: string) =>
  reads.sources(network, { id, node: null, states: [], after: null, limit: 1 })

/** As the command left it, with its reports if they can be read. */
async function viewOf({ source }: Answer, { network }: Content, { ledger, reads }: Backend) {
  const found = await namedSource(reads, network, source!.declaration.id).catch(() => null)
  return { source: sourceView(network, { ...NOT_READ, ...found?.[0], source: source! }, ledger.now()) }
}

/** Null: the call names no source. */
async function requiredSource(reads: Reads, network: string, id: string): Promise<string | null> {
  if (id === '') return null
  if (ofNetwork(await namedSource(reads, network, id), network).length > 0) return id
  throw refused('SOURCE_NOT_FOUND', `network ${network} has no source ${id}`, { network, source: id })
}

function decodeRegister(
  { network: named, id, kind: kindName, sight, settings }: Decoded<pb.RegisterSourceRequest>,
  call: Call,
  { secrets }: Backend,
): Content<'registerSource'> {
  const network = allowedNetwork(call, named)
  const kind = (kindName?.toLowerCase() ?? 'push') as SourceKind
  const { node, ownerKinds, families, intervalMs } = required(sight, 'sight')
  checkNode(call.caller, node)
  if (ownerKinds.length === 0)
    throw invalidField('sight.ownerKinds', 'required: the kinds of workloads that it can see, as in pod')
  const declaration: SourceDeclaration = {
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
  if (missing !== null) checkAllNetworks(call.caller, missing)
  return { type: 'registerSource', network, declaration }
}

async function listSources(request: Decoded<pb.ListSourcesRequest>, call: Call, { ledger, reads }: Backend) {
  const network = allowedNetwork(call, request.network)
  const page = pageOf(request)
  const filter = {
    id: request.id || null,
    node: request.node || null,
    states: request.states as readonly SourceState['state'][],
    after: page.after,
    limit: page.size + 1,
  }
  const found = ofNetwork(await reads.sources(network, filter), network)
  const { items, nextPageToken } = page.cut(found, ({ source }) => source.declaration.id)
  return { sources: items.map((source) => sourceView(network, source, ledger.now())), nextPageToken }
}

async function listSightings(request: Decoded<pb.ListSightingsRequest>, call: Call, { reads }: Backend) {
  const network = allowedNetwork(call, request.network)
  const { vanished } = request
  const at = request.address === '' ? null : ipAddress(request.address, 'address')
  const page = pageOf(request)
  const source = await requiredSource(reads, network, request.source)
  const found = await reads.sightings(network, { source, address: at, vanished }, page)
  const { sightings, next } = ofNetwork(found, network)
  return { sightings: sightings.map(sightingView), nextPageToken: page.next(next) }
}

async function beginSnapshot(request: Decoded<pb.BeginSnapshotRequest>, call: Call, { intake }: Backend) {
  const { proof, ...begun } = accepted(await asking(intake.begin(decodeReporting(request, call))))
  return { ...begun, proof: base64(proof) }
}

async function reportSnapshot(request: Decoded<pb.ReportSnapshotRequest>, call: Call, { intake }: Backend) {
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
}

async function reportVerdicts(request: Decoded<pb.ReportVerdictsRequest>, call: Call, { intake }: Backend) {
  const reporting = decodeReporting(request, call)
  const epoch = required(request.epoch, 'epoch')
  if (request.verdicts.length === 0) throw invalidField('verdicts', 'required: 1 to 1000 verdicts')
  const verdicts = request.verdicts.map(decodeVerdict)
  return accepted(await asking(intake.verdicts({ ...reporting, epoch, verdicts })))
}

async function reconcile(request: Decoded<pb.ReconcileRequest>, call: Call, backend: Backend) {
  const network = allowedNetwork(call, request.network)
  const { pool, kept } = request
  const page = pageOf(request, address)
  const source = await requiredSource(backend.reads, network, request.source)
  const leases = {
    ...EVERY_LEASE,
    pools: pool === '' ? [] : [pool],
    cidr: optionalCidr(request.address, 'address'),
  }
  const wanted = { network, leases, source, kept, ...page, deadline: call.deadline }
  const { findings, next, head, unknownPools } = ofNetwork(await judgeLeases(backend, wanted), network)
  if (unknownPools.length > 0) throw poolNotFound(network, pool)
  return {
    findings: findings.map(({ lease, ...found }) => ({
      ...found,
      address: lease.address,
      lease: leaseView(lease),
    })),
    nextPageToken: page.next(next),
    head,
  }
}

async function listAttention(
  request: Decoded<pb.ListAttentionRequest>,
  call: Call,
  { ledger, reads }: Backend,
) {
  const network = allowedNetwork(call, request.network)
  const codes = knownTexts(request.codes, ATTENTION_CODES, 'codes')
  const page = pageOf(request)
  const list = new AttentionList({ isEach: request.each, after: page.after ?? '', size: page.size + 1 })
  const add = (one: Attention): void => {
    if (codes.length > 0 && !codes.includes(one.code)) return
    if (request.source === '' || request.source === one.source) list.add(one)
  }
  const found = await reads.findings(network)
  const image = ofNetwork(await ledger.image(network, { deadline: call.deadline }), network)
  for (const one of attentionOf({ image, now: ledger.now(), ...found })) add(one)
  for await (const items of attentionToLeases(image)) items.forEach(add)
  const { items, nextPageToken } = page.cut(list.items(), (last) => list.positionOf(last))
  return { items: items.map((one) => ({ ...one, severity: ATTENTION[one.code][0] })), nextPageToken }
}

function base64(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('base64')
}

function decodeReporting(
  request: { readonly network: string; readonly source: string },
  call: Call,
): Reporting {
  return {
    network: allowedNetwork(call, request.network),
    source: required(request.source, 'source'),
    traceId: call.traceId,
    deadline: call.deadline,
    actor: { name: call.caller.name, node: call.caller.node },
    mayReport: mayReport(call.caller),
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
