/** `ipledger audit rejudge`: over the API, so that it needs no login of the database; what is judged is core's business. */
import { durationMs, timestampMs } from '@bufbuild/protobuf/wkt'
import type { Evidence } from '../core/event.ts'
import { type JudgePolicy, judgePolicy } from '../core/policy.ts'
import {
  type Ground,
  groundOf,
  isAsStored,
  type JudgedAgain,
  judgeAgain,
  type StoredVerdict,
  storedVerdict,
} from '../core/rejudge.ts'
import type { Event } from '../gen/ipledger/v1/audit_pb.ts'
import type { ReapPolicy } from '../gen/ipledger/v1/pool_pb.ts'
import type { PolicyAsked, RejudgeOptions } from './audit.ts'
import { type Connection, connect } from './connection.ts'
import { given } from './options.ts'
import { sheet, table } from './print.ts'

const PAGE = 1_000

/** One that came, or comes, to something else than was done. */
type Told = {
  readonly seq: number
  readonly leaseId: string
  readonly address: string
  readonly at: string
  /** What was done, and on which ground. */
  readonly cause: string
  readonly verdict: string
  readonly because: string
}

type Rejudged = {
  readonly network: string
  readonly head: number
  readonly policy: PolicyAsked
  /** Events, by their cause. */
  readonly byCause: Readonly<Record<string, number>>
  readonly judged: number
  /** Ended by an operator's word: there is nothing to judge. */
  readonly byWord: number
  readonly unreadable: readonly Told[]
  /** By the policy of their day they come to something else: the log or the judge is wrong. */
  readonly disagreeing: readonly Told[]
  /** By the policy that was asked for. */
  readonly differing: readonly Told[]
}

/** True when each comes to what was done by the policy of its day. */
export async function runRejudge(options: RejudgeOptions): Promise<boolean> {
  const rejudged = await rejudge(connect(), options)
  console.log(options.json === true ? JSON.stringify(rejudged, null, 2) : textOf(rejudged))
  return rejudged.disagreeing.length === 0 && rejudged.unreadable.length === 0
}

async function rejudge(client: Connection, options: RejudgeOptions): Promise<Rejudged> {
  const { network, policy: asked } = options
  const pools = await readPolicies(client, network)
  const byCause: Record<string, number> = {}
  const unreadable: Told[] = []
  const disagreeing: Told[] = []
  const differing: Told[] = []
  let judged = 0
  let byWord = 0
  let head = 0
  for await (const page of pagesOf(client, options)) {
    head = Number(page.head)
    for (const event of page.events) {
      const stored = storedOf(event)
      if (stored === null) continue
      byCause[event.cause] = (byCause[event.cause] ?? 0) + 1
      const ground = groundOf(stored)
      if (ground.kind === 'word') byWord += 1
      else if (ground.kind === 'unreadable')
        unreadable.push(told(event, { verdict: 'unreadable', because: ground.why }))
      else {
        judged += 1
        const then = judgeAgain(ground, stored.at, null)
        if (!isAsStored(then, ground)) disagreeing.push(told(event, words(then)))
        const other = judgeAgain(ground, stored.at, policyFor(ground, event, asked, pools))
        if (other.verdict !== storedVerdict(ground)) differing.push(told(event, words(other)))
      }
    }
  }
  return { network, head, policy: asked, byCause, judged, byWord, unreadable, disagreeing, differing }
}

async function* pagesOf(client: Connection, { network, from, to, restores }: RejudgeOptions) {
  for (let pageToken = ''; ; ) {
    const page = await client.audit.listEvents({
      network,
      types: ['lease.reaped', ...(restores === true ? ['lease.confirmed'] : [])],
      afterSeq: from === undefined || from === 0n ? 0n : from - 1n,
      ...given({ beforeSeq: to === undefined ? undefined : to + 1n }),
      pageSize: PAGE,
      pageToken,
    })
    yield page
    if (page.nextPageToken === '') return
    pageToken = page.nextPageToken
  }
}

/** Null: a confirm that gave nothing back. */
function storedOf(event: Event): StoredVerdict | null {
  const evidence = (event.evidence ?? null) as Evidence | null
  if (event.type === 'lease.confirmed' && (evidence === null || !('proof' in evidence))) return null
  const { lease } = event
  return {
    network: event.network,
    address: lease?.address ?? '',
    token: Number(lease?.fencingToken ?? 0n),
    at: event.time === undefined ? 0 : timestampMs(event.time),
    cause: event.cause,
    evidence,
  }
}

/** Of the pools there are: a proof names its pool by number, other events are shown with its present name. */
type Policies = {
  readonly byId: ReadonlyMap<number, JudgePolicy>
  readonly byName: ReadonlyMap<string, JudgePolicy>
}

async function readPolicies(client: Connection, network: string): Promise<Policies> {
  const byId = new Map<number, JudgePolicy>()
  const byName = new Map<string, JudgePolicy>()
  for (let pageToken = ''; ; ) {
    const page = await client.pools.listPools({ network, pageSize: PAGE, pageToken })
    for (const { id, name, reapPolicy } of page.pools) {
      const policy = policyOf(reapPolicy)
      byId.set(Number(id), policy)
      byName.set(name, policy)
    }
    if (page.nextPageToken === '') return { byId, byName }
    pageToken = page.nextPageToken
  }
}

function policyOf(message: ReapPolicy | undefined): JudgePolicy {
  if (message === undefined) return judgePolicy()
  const { misses, minimumAge, unwitnessedAge, terminalGrace, confirmGrace } = message
  const ms = (duration: typeof minimumAge) => (duration === undefined ? undefined : durationMs(duration))
  return judgePolicy(
    given({
      misses: misses === 0 ? undefined : misses,
      minimumAgeMs: ms(minimumAge),
      unwitnessedAgeMs: ms(unwitnessedAge),
      terminalGraceMs: ms(terminalGrace),
      confirmGraceMs: ms(confirmGrace),
    }),
  )
}

/** Of a pool that is gone: the defaults. */
function policyFor(
  ground: Extract<Ground, { readonly kind: 'proof' | 'neverConfirmed' }>,
  event: Event,
  asked: PolicyAsked,
  { byId, byName }: Policies,
): JudgePolicy {
  const isProof = ground.kind === 'proof'
  if (asked === 'today') {
    const policy = isProof ? byId.get(ground.proof.lease.poolId) : byName.get(event.lease?.pool ?? '')
    return policy ?? judgePolicy()
  }
  return { ...(isProof ? ground.proof.policy : judgePolicy({ confirmGraceMs: ground.graceMs })), ...asked }
}

// Words.

function told(event: Event, { verdict, because }: Readonly<{ verdict: string; because: string }>): Told {
  return {
    seq: Number(event.seq),
    leaseId: event.lease?.leaseId ?? '',
    address: event.lease?.address ?? '',
    at: event.time === undefined ? '' : new Date(timestampMs(event.time)).toISOString(),
    cause: event.cause,
    verdict,
    because,
  }
}

function words({ verdict, cause, because }: JudgedAgain): Readonly<{ verdict: string; because: string }> {
  const named = verdict === 'lookUp' ? 'look up' : cause === null ? verdict : `${verdict} ${cause}`
  return { verdict: named, because: because.map(({ text }) => text).join('; ') }
}

function textOf(rejudged: Rejudged): string {
  const { network, judged, byWord, byCause, unreadable, disagreeing, differing, policy } = rejudged
  const named =
    policy === 'today'
      ? "today's policy"
      : Object.entries(policy)
          .map(([name, value]) => `${name}=${value}`)
          .join(', ')
  return [
    sheet([
      ['network', network],
      [
        'events',
        Object.entries(byCause)
          .map(([cause, count]) => `${count} ${cause}`)
          .join(', ') || 'none',
      ],
      ['judged again', String(judged)],
      ['by word', byWord === 0 ? '' : `${byWord}: an operator's, nothing to judge`],
      [
        'by the policy then',
        disagreeing.length === 0 ? 'all the same' : `${disagreeing.length} come to something else`,
      ],
      ['unreadable', unreadable.length === 0 ? '' : String(unreadable.length)],
      [
        `by ${named}`,
        differing.length === 0 ? 'all the same' : `${differing.length} would not have been done`,
      ],
    ]),
    ...listed('By the policy then they come to something else: the log or the judge is wrong.', disagreeing),
    ...listed('Not to be judged again:', unreadable),
    ...listed(`By ${named} it would not have been done:`, differing),
  ].join('\n')
}

function listed(title: string, some: readonly Told[]): readonly string[] {
  if (some.length === 0) return []
  return [
    '',
    title,
    '',
    table(
      ['EVENT', 'LEASE', 'ADDRESS', 'TIME', 'WAS', 'VERDICT', 'BECAUSE'],
      some.map(({ seq, leaseId, address, at, cause, verdict, because }) => [
        String(seq),
        leaseId,
        address,
        at.replace(/\.\d+Z$/, 'Z'),
        cause,
        verdict,
        because,
      ]),
    ),
  ]
}
