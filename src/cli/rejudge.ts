/**
 * `audit rejudge`: every reap on proof, judged again from the evidence in its event, by the policy of its day and by its pool's
 * policy of today. Over the API, so that it needs no login of the database; core judges.
 */
import { durationMs } from '@bufbuild/protobuf/wkt'
import { judgeProof, type Proof } from '../core/judge.ts'
import { type ReapPolicy, reapPolicy } from '../core/policy.ts'
import { AuditService, type Event } from '../gen/ipledger/v1/audit_pb.ts'
import { type Pool, PoolService } from '../gen/ipledger/v1/pool_pb.ts'
import { everyPage } from './ask.ts'
import { SilentExit } from './exit.ts'
import { type Format, outputOption, print, sheet, tableOf } from './print.ts'
import { fromOf, seq, toOf } from './readers.ts'
import { command, group, networkOptions } from './verb.ts'

type Options = Readonly<{ network: string; from?: bigint; to?: bigint; output?: Format }>
/** `then`: the policy of its day. By that one a reap that differs or can't be read means that the log or the judge is wrong. */
type Which = 'then' | 'today'

const PROVEN = 'PROVEN_ABSENT'

export const rejudgeCommand = group(
  'audit',
  'check past decisions',
  command('rejudge', {
    about: 'judge every reap on proof again from the evidence in its event',
    options: [
      ...networkOptions(),
      ['--from <n>', 'from this event on (default: the first)', seq],
      ['--to <n>', 'up to this event', seq],
      outputOption(),
    ],
    help: `
Asks the server. By the policy of its day each must come to the same verdict: exit code 1 if one does not, or cannot be
read. Reaps that the policy of today would not do are listed, and are no failure.`,
    async run({ network, from, to, output }: Options) {
      const { pools } = await everyPage(PoolService.method.listPools, { network })
      const policies = new Map(pools.map(({ id, reapPolicy: set }) => [Number(id), policyOf(set!)]))
      const { events } = await everyPage(AuditService.method.listEvents, {
        network,
        types: ['lease.reaped'],
        ...(from !== undefined && fromOf({ seq: from })),
        ...(to !== undefined && toOf({ seq: to })),
      })
      // The pool may be gone.
      const found = rejudge(events, ({ record }) => policies.get(record.poolId) ?? reapPolicy())
      await print(output, { network, ...found }, () => textOf(network, found))
      if (found.differing.some(({ policy }) => policy === 'then')) throw new SilentExit()
    },
  }),
)

/** Reaps by their cause, and those on proof that the judge would not do again. */
export function rejudge(events: readonly Event[], policyFor: (proof: Proof) => ReapPolicy) {
  const byCause: Record<string, number> = {}
  for (const { cause } of events) byCause[cause] = (byCause[cause] ?? 0) + 1
  const judged = events
    .filter(({ cause }) => cause === PROVEN)
    .flatMap((event) => [judge(event, 'then', (proof) => proof.policy), judge(event, 'today', policyFor)])
  return { byCause, differing: judged.filter(({ verdict }) => verdict !== 'reap') }
}

function judge({ seq, lease, evidence }: Event, policy: Which, policyFor: (proof: Proof) => ReapPolicy) {
  const about = { policy, seq: Number(seq), leaseId: lease?.leaseId ?? '', address: lease?.address ?? '' }
  try {
    const proof = evidence?.proof as unknown as Proof
    const { verdict, because } = judgeProof({ ...proof, policy: policyFor(proof) })
    return { ...about, verdict, because: because.map(({ text }) => text).join('; ') }
  } catch (error) {
    return { ...about, verdict: 'unreadable', because: String(error) }
  }
}

function policyOf({ misses, ...times }: NonNullable<Pool['reapPolicy']>): ReapPolicy {
  return {
    misses,
    minimumAgeMs: durationMs(times.minimumAge!),
    unwitnessedAgeMs: durationMs(times.unwitnessedAge!),
    terminalGraceMs: durationMs(times.terminalGrace!),
    confirmGraceMs: durationMs(times.confirmGrace!),
  }
}

function textOf(network: string, { byCause, differing }: ReturnType<typeof rejudge>): string {
  const causes = Object.entries(byCause).map(([cause, number]) => `${number} ${cause}`)
  const count = (which: Which, differ: string) => {
    const some = differing.filter(({ policy }) => policy === which).length
    return some === 0 ? 'all the same' : `${some} ${differ}`
  }
  const counts = sheet({
    network,
    reaps: causes.join(', ') || 'none',
    judgedAgain: byCause[PROVEN] ?? 0,
    byThePolicyThen: count('then', 'come to something else: the log or the judge is wrong'),
    "by today's policy": count('today', 'would not have been done'),
  })
  return differing.length === 0 ? counts : `${counts}\n\n${tableOf('', differing)}`
}
