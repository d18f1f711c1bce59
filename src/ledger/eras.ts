/**
 * When a ledger begins a new era: the database is older than itself, so that what was acknowledged since may be missing
 * and somebody may be using an address that the books have as free (calico#4374, patroni#1894; INV-24). Found out by
 *
 * - another life of the database than the one stored with the network (life.ts): looked at by every batch, under the lock
 *   and before it decides anything, so that no Reserve comes between a restore, or a failover in mid-life, and the era;
 * - a head below one that this process has seen: committed events are gone, wherever they went;
 * - a number beyond the head in a token that is ours, or from an enabled source (`beginEraBeyond`);
 * - of either, a number beyond the end of an earlier era, if no network recovered since (`lostAfter`): numbers of a new era
 *   are above those that a failover lost, and would hide that it did;
 * - an operator who says so (`beginEra`).
 *
 * Numbers of the new era are above all that anybody can have seen. Unless the deployment declares that no commit is ever
 * lost, the network recovers: nothing is handed out or reaped until its sources have reported. The declaration covers
 * failovers only. A copy or a restored dump is older whatever is replicated, and events that were there and are not, which
 * a number beyond the head says too, are their own proof.
 */
import type pg from 'pg'
import type { BeginEra, Command } from '../core/command.ts'
import { eraOf, firstSeqOfEra } from '../core/policy.ts'
import { refusal } from '../core/refusal.ts'
import { trip } from '../postgres/trip.ts'
import type { Ledger, Outcome } from './ledger.ts'
import { type DatabaseLife, LIFE_STATEMENTS } from './life.ts'
import type { Slice } from './slice.ts'

export type EraRules = {
  /** Declared by the deployment: whatever is acknowledged survives a failover. */
  readonly commitsAreNeverLost: boolean
  /** The highest head of the network that this process has seen. */
  readonly seen: { head: number }
  readonly onBegun: (begun: BeginEra) => void
}

/** Numbers stay below 2^53. */
const LAST_ERA = 2 ** 13 - 1
/** Eras are rare. What is quoted from further ahead is no number of ours but a mistake, and would use them up. Not measured. */
const MOST_ERAS_AHEAD = 64

/** The era that is to be begun before anything is decided; null: this is the database it was. */
export function eraDue(
  { books, database }: Slice,
  now: DatabaseLife,
  rules: EraRules,
  commands: readonly Command[],
  /** Of the highest head that this process has seen. */
  endedAt: number | null = null,
): BeginEra | null {
  const { network, head } = books
  if (network === null) return null
  const why = whyOlder(database!.stored, now, { head, endedAt }, rules)
  if (why === null) return null
  return {
    ...envelope(network.network, 'ledger', why.cause),
    era: Math.max(network.era, eraOf(rules.seen.head)) + 1,
    // Who asks for an era that recovers finds it begun, and would not be heard.
    recovering: why.recovering || commands.some((one) => one.type === 'beginEra' && one.recovering),
    why: why.text,
  }
}

type Why = { readonly cause: string; readonly text: string; readonly recovering: boolean }

function whyOlder(
  stored: DatabaseLife | null,
  now: DatabaseLife,
  { head, endedAt }: { readonly head: number; readonly endedAt: number | null },
  rules: EraRules,
): Why | null {
  const { commitsAreNeverLost, seen } = rules
  if (stored !== null && stored.systemIdentifier !== now.systemIdentifier) {
    const text = `the ledger was written in cluster ${stored.systemIdentifier}, this is cluster ${now.systemIdentifier}: a restored copy`
    return { cause: 'DATABASE_REPLACED', text, recovering: true }
  }
  if (stored !== null && stored.databaseOid !== now.databaseOid) {
    const text = `the ledger was written in database ${stored.databaseOid} of this cluster, this is database ${now.databaseOid}: a restored copy`
    return { cause: 'DATABASE_REPLACED', text, recovering: true }
  }
  if (stored !== null && stored.logOid !== now.logOid) {
    const text = `the log was table ${stored.logOid} of this database, it is table ${now.logOid}: a dump restored over it`
    return { cause: 'DATABASE_REPLACED', text, recovering: true }
  }
  if (head < seen.head) {
    const text = `the log ends at ${head}, and ended at ${seen.head} before: committed events are gone`
    return { cause: 'EVENTS_LOST', text, recovering: true }
  }
  if (endedAt !== null) {
    const text = `era ${eraOf(seen.head)} ended at ${endedAt}, and the log was at ${seen.head} before: committed events are gone`
    return { cause: 'EVENTS_LOST', text, recovering: true }
  }
  if (stored !== null && stored.timeline !== now.timeline) {
    const text = `the ledger was written on timeline ${stored.timeline}, this is timeline ${now.timeline}: a failover, or recovery to a point in time`
    return { cause: 'FAILED_OVER', text, recovering: !commitsAreNeverLost }
  }
  return null
}

// How each of these eras began.
const BEGINNINGS = `
  select (e.settings ->> 'recovering')::boolean as recovering, (e.evidence ->> 'lostAfter')::bigint as lost_after
    from unnest($2::bigint[]) with ordinality as k (seq, place)
    cross join lateral (
      select x.settings, x.evidence from ipledger.event x
       where x.network_id = $1 and x.seq >= k.seq and x.seq <= k.seq order by x.seq limit 1) e
   order by k.place`

/** For the test of their plans. */
export const ERA_STATEMENTS = { beginnings: BEGINNINGS } as const

/**
 * Where the era of a number ended, if it ended before that number and nobody has recovered since: then the number was
 * given out and is lost, whatever was declared of commits. Null where it did not, without a trip where its era is not over.
 */
export async function lostAfter(
  client: pg.Client,
  network: string,
  number: number,
  era: number,
): Promise<number | null> {
  const of = eraOf(number)
  if (number === 0 || of >= era || of < era - MOST_ERAS_AHEAD) return null
  const firsts = Array.from({ length: era - of }, (_, index) => firstSeqOfEra(of + 1 + index))
  const [answered] = await trip(client, [
    { name: 'era_beginnings', text: BEGINNINGS, values: [network, firsts] },
  ])
  const eras = answered!.rows as readonly { readonly recovering: boolean; readonly lost_after: number }[]
  const next = eras[0]
  if (next === undefined || eras.some(({ recovering }) => recovering)) return null
  return number > next.lost_after ? next.lost_after : null
}

/**
 * A number beyond the head came in a token that is ours, or from an enabled source's own token. Several processes may
 * find out at the same time: the era that has begun is begun.
 */
export async function beginEraBeyond(
  ledger: Ledger,
  found: {
    readonly network: string
    readonly ground: {
      readonly era: number
      readonly head: number
      readonly beyond: { readonly era: number; readonly head: number; readonly endedAt?: number } | null
    }
    readonly actor: string
  },
): Promise<Outcome> {
  const { network, ground, actor } = found
  const { beyond } = ground
  if (beyond === null) throw new Error(`nothing is beyond the head of network ${network}`)
  const { endedAt } = beyond
  const ended = endedAt === undefined ? '' : `, and era ${eraOf(beyond.head)} ended at ${endedAt}`
  const why = `${actor} quotes era ${beyond.era} and number ${beyond.head}, the ledger is in era ${ground.era} at ${ground.head}${ended}`
  return beginEra(ledger, {
    network,
    era: ground.era,
    above: Math.max(beyond.head, firstSeqOfEra(beyond.era)),
    actor,
    cause: 'BEYOND_HEAD',
    recovering: true,
    why,
  })
}

/** Whatever the caller knows of the network may be old: the era is begun once. */
export async function beginEra(
  ledger: Ledger,
  wanted: {
    readonly network: string
    /** In which the caller saw the network. */
    readonly era: number
    /** A number that was given out, as somebody says; 0 for none. */
    readonly above: number
    readonly actor: string
    readonly cause: string
    readonly recovering: boolean
    readonly why: string
  },
): Promise<Outcome> {
  const { network, era, above, actor, cause, recovering, why } = wanted
  const reached = Math.max(era, eraOf(above))
  if (reached > era + MOST_ERAS_AHEAD || reached >= LAST_ERA) {
    const message = `number ${above} is of era ${eraOf(above)}, network ${network} is in era ${era}: nobody was ever given it`
    return { ok: false, refusal: refusal('VERSION_MISMATCH', message, { network, era: String(era) }) }
  }
  return ledger.submit({ ...envelope(network, actor, cause), era: reached + 1, recovering, why })
}

/**
 * Networks whose ledger was last written in another life of the database: their eras begin now, not with their next
 * command. Asking for an era that has begun changes nothing, but is a batch, and each batch looks.
 */
export async function beginDueEras(
  ledger: Ledger,
  database: Pick<pg.Pool, 'query'>,
): Promise<readonly string[]> {
  const { rows } = await database.query<{ network_id: string; era: number }>(LIFE_STATEMENTS.strangers)
  for (const { network_id, era } of rows) {
    const known = { ...envelope(network_id, 'ledger', 'LOOK'), era, recovering: false, why: '' }
    await ledger.submit(known, { lane: 'reconciler' })
  }
  return rows.map(({ network_id }) => network_id)
}

function envelope(network: string, actor: string, cause: string) {
  return {
    type: 'beginEra',
    network,
    actor: { name: actor, node: null },
    cause,
    requestId: null,
    fingerprint: null,
    traceId: null,
  } as const
}
