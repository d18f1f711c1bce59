/**
 * A network's log as a file, to be checked where there is no database (`check-export.ts`): lines of JSON. The first says
 * what it is; a seal is an object, and after it come the lines of its events as they were hashed, so that
 * `sha256sum` of one begins with its leaf. Events that no seal covers have none before them.
 *
 * Whole seals only, so that each can be checked: the first begins at or before `from`. Streamed, a statement at a time,
 * and nothing written here is changed by what is committed meanwhile.
 */
import type pg from 'pg'
import { EVENT_COLUMNS } from './rows.ts'
import { readSeals, SEAL_STATEMENTS, type Seal } from './seals.ts'
import { inSnapshot } from './transaction.ts'

export type ExportRange = { readonly from: number; readonly to: number | null }

/** Lines of a statement: a fraction of a second. Not measured. */
const PAGE = 2_000

/** For the test of their plans. */
export const EXPORT_STATEMENTS = {
  lines: `
    select e.seq, ipledger.event_line(e) as line from ipledger.event e
     where e.network_id = $1 and e.seq > $2 and e.seq <= $3 order by e.seq limit $4`,
  leaves: `
    select encode(s.leaves, 'hex') as leaves from ipledger.seal s where s.network_id = $1 and s.first_seq = $2 limit 1`,
  head: `
    select e.seq as head from ipledger.event e where e.network_id = $1 order by e.seq desc limit 1`,
} as const

/** Without line ends. Empty where the network has no event. */
export async function* exportLog(
  client: pg.Client,
  network: string,
  range: ExportRange,
): AsyncGenerator<string> {
  const { rows: heads } = await client.query<{ head: number }>(EXPORT_STATEMENTS.head, [network])
  const head = heads[0]?.head
  if (head === undefined) return
  const { rows } = await client.query<{ first_seq: number; last_seq: number }>(SEAL_STATEMENTS.around, [
    network,
    range.from,
  ])
  const around = rows[0]
  const from = around !== undefined && range.from <= around.last_seq ? around.first_seq : range.from
  const to = Math.min(range.to ?? head, head)
  yield JSON.stringify({ export: { network, from, to, head, columns: EVENT_COLUMNS } })
  let at = from - 1
  for await (const seal of readSeals(client, network, { after: at, upTo: to })) {
    yield* lines(client, network, at, seal.first - 1)
    yield sealLine(seal, await leavesOf(client, seal))
    yield* lines(client, network, seal.first - 1, seal.last)
    at = seal.last
  }
  yield* lines(client, network, at, to)
}

/** A seal as it is exported; without its leaves it is the digest alone, which says whether, and not which. */
export function sealLine(seal: Seal, leaves: string | null): string {
  const { network, first, last, digest, previousDigest, sealedAt } = seal
  return JSON.stringify({
    seal: {
      network,
      first,
      last,
      digest,
      previousDigest,
      sealedAt: new Date(sealedAt).toISOString(),
      ...(leaves !== null && { leaves }),
    },
  })
}

async function* lines(
  client: pg.Client,
  network: string,
  after: number,
  upTo: number,
): AsyncGenerator<string> {
  for (let at = after; at < upTo; ) {
    const { rows } = await inSnapshot(client, () =>
      client.query<{ seq: number; line: string }>(EXPORT_STATEMENTS.lines, [network, at, upTo, PAGE]),
    )
    for (const { line } of rows) yield line
    if (rows.length < PAGE) return
    at = rows.at(-1)!.seq
  }
}

async function leavesOf(client: pg.Client, { network, first }: Seal): Promise<string> {
  const { rows } = await client.query<{ leaves: string }>(EXPORT_STATEMENTS.leaves, [network, first])
  return rows[0]?.leaves ?? ''
}
