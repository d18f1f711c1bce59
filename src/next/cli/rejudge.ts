/**
 * `audit rejudge`: every reap on proof, judged again from what its event stores, by the policy of its day and by another.
 * Over the API, so that it needs no login of the database; what is judged is core's business.
 */
import { durationMs } from '@bufbuild/protobuf/wkt'
import { type Command, InvalidArgumentError } from 'commander'
import { judgeProof, type Judgement, type Proof } from '../core/judge.ts'
import { type ReapPolicy, reapPolicy } from '../core/policy.ts'
import { AuditService, type Event } from '../gen/ipledger/v1/audit_pb.ts'
import { type Pool, PoolService } from '../gen/ipledger/v1/pool_pb.ts'
import { Unsuccessful } from './failure.ts'
import { printJson, sheet, tableOf, time } from './print.ts'
import { seq } from './readers.ts'
import { ask } from './verb.ts'

type Options = {
  readonly network: string
  readonly from?: bigint
  readonly to?: bigint
  readonly policy: PolicyAsked
  readonly json?: boolean
}
/** Today's of each pool, or the policy of the day with these in their places. */
type PolicyAsked = 'today' | Readonly<Partial<ReapPolicy>>

/** One that comes to something else than was done. */
type Told = {
  readonly seq: number
  readonly leaseId: string
  readonly address: string
  readonly at: string
  readonly verdict: string
  readonly because: string
}

type Rejudged = {
  readonly network: string
  readonly policy: PolicyAsked
  /** Reaps, by their cause; only those on proof are judged. */
  readonly byCause: Readonly<Record<string, number>>
  /** By the policy of their day they come to something else, or can't be read: the log or the judge is wrong. */
  readonly disagreeing: readonly Told[]
  /** By the policy that was asked for. */
  readonly differing: readonly Told[]
}

const PROVEN = 'PROVEN_ABSENT'
const PAGE = 1_000

export function rejudgeCommand(program: Command): void {
  program
    .command('audit')
    .description('whether what was done was right')
    .command('rejudge')
    .description('judge every reap on proof again from the evidence in its event')
    .option('--network <name>', 'network', 'default')
    .option('--from <n>', 'from this event on', seq)
    .option('--to <n>', 'up to this event', seq)
    .option(
      '--policy <settings>',
      'today: of each pool as it is now; or misses=5,minimumAgeMs=600000: as then, with these',
      policy,
      'today',
    )
    .option('--json', 'print it for programs')
    .addHelpText(
      'after',
      `
Asks the server. By the policy of its day each must come to what was done: exit code 1 if one does not, or cannot be
read. What another policy would not have done is listed, and is no failure.

Settings: ${Object.keys(reapPolicy()).join(', ')}.

Examples:
  ipledger audit rejudge
  ipledger audit rejudge --policy misses=5,minimumAgeMs=600000 --json`,
    )
    .action(async (options: Options) => {
      const { network, from = 0n, to } = options
      const policies = options.policy === 'today' ? await policiesNow(network) : new Map()
      const events: Event[] = []
      const afterSeq = from === 0n ? 0n : from - 1n
      const range = { network, afterSeq, ...(to !== undefined && { beforeSeq: to + 1n }) }
      for (let pageToken = ''; ; ) {
        const page = await ask(AuditService.method.listEvents, {
          ...range,
          types: ['lease.reaped'],
          pageSize: PAGE,
          pageToken,
        })
        events.push(...page.events)
        pageToken = page.nextPageToken
        if (pageToken === '') break
      }
      const found = rejudge(events, options, policies)
      if (options.json === true) printJson(found)
      else console.log(textOf(found))
      if (found.disagreeing.length > 0) throw new Unsuccessful(1)
    })
}

export function rejudge(
  events: readonly Event[],
  { network, policy: asked }: Pick<Options, 'network' | 'policy'>,
  policies: ReadonlyMap<number, ReapPolicy>,
): Rejudged {
  const byCause: Record<string, number> = {}
  const disagreeing: Told[] = []
  const differing: Told[] = []
  for (const event of events) {
    byCause[event.cause] = (byCause[event.cause] ?? 0) + 1
    if (event.cause !== PROVEN) continue
    try {
      const proof = event.evidence?.proof as unknown as Proof
      const then = judgeProof(proof)
      if (then.verdict !== 'reap') disagreeing.push(told(event, then))
      const { poolId } = proof.record
      // Of a pool that is gone: the defaults.
      const set = asked === 'today' ? (policies.get(poolId) ?? reapPolicy()) : { ...proof.policy, ...asked }
      const now = judgeProof({ ...proof, policy: set })
      if (now.verdict !== 'reap') differing.push(told(event, now))
    } catch (error) {
      disagreeing.push({ ...told(event), because: String(error) })
    }
  }
  return { network, policy: asked, byCause, disagreeing, differing }
}

async function policiesNow(network: string): Promise<ReadonlyMap<number, ReapPolicy>> {
  const policies = new Map<number, ReapPolicy>()
  for (let pageToken = ''; ; ) {
    const page = await ask(PoolService.method.listPools, { network, pageSize: PAGE, pageToken })
    for (const { id, reapPolicy: set } of page.pools) policies.set(Number(id), policyOf(set))
    pageToken = page.nextPageToken
    if (pageToken === '') return policies
  }
}

function policyOf(set: Pool['reapPolicy']): ReapPolicy {
  if (set === undefined) return reapPolicy()
  return {
    misses: set.misses,
    minimumAgeMs: durationMs(set.minimumAge!),
    unwitnessedAgeMs: durationMs(set.unwitnessedAge!),
    terminalGraceMs: durationMs(set.terminalGrace!),
    confirmGraceMs: durationMs(set.confirmGrace!),
  }
}

function policy(text: string): PolicyAsked {
  if (text === 'today') return text
  const known = Object.keys(reapPolicy())
  return Object.fromEntries(
    text.split(',').map((part) => {
      const [, name = '', value] = /^\s*([A-Za-z]+)=(\d{1,12})\s*$/.exec(part) ?? []
      if (known.includes(name)) return [name, Number(value)]
      throw new InvalidArgumentError(`It is today, or settings as misses=5, of ${known.join(', ')}.`)
    }),
  )
}

function told({ seq: number, lease, time: at }: Event, judgement?: Judgement): Told {
  return {
    seq: Number(number),
    leaseId: lease?.leaseId ?? '',
    address: lease?.address ?? '',
    at: time(at),
    verdict: judgement?.verdict ?? 'unreadable',
    because: judgement?.because.map(({ text }) => text).join('; ') ?? '',
  }
}

function textOf({ network, byCause, disagreeing, differing, policy: asked }: Rejudged): string {
  const named =
    asked === 'today'
      ? "today's policy"
      : Object.entries(asked)
          .map(([name, value]) => `${name}=${value}`)
          .join(', ')
  const counts = Object.entries(byCause).map(([cause, count]) => `${count} ${cause}`)
  const same = (some: readonly Told[], otherwise: string) => (some.length === 0 ? 'all the same' : `${some.length} ${otherwise}`)
  return [
    sheet([
      ['network', network],
      ['reaps', counts.join(', ') || 'none'],
      ['judged again', String(byCause[PROVEN] ?? 0)],
      ['by the policy then', same(disagreeing, 'come to something else')],
      [`by ${named}`, same(differing, 'would not have been done')],
    ]),
    ...listed('By the policy then they come to something else: the log or the judge is wrong.', disagreeing),
    ...listed(`By ${named} it would not have been done:`, differing),
  ].join('\n')
}

function listed(title: string, some: readonly Told[]): readonly string[] {
  if (some.length === 0) return []
  const rows = tableOf('', some, {
    EVENT: (one) => String(one.seq),
    LEASE: ({ leaseId }) => leaseId,
    ADDRESS: ({ address }) => address,
    TIME: ({ at }) => at,
    VERDICT: ({ verdict }) => verdict,
    BECAUSE: ({ because }) => because,
  })
  return ['', title, '', rows]
}
