/** A source as it is stored when it reports. An unchanged list only touches its row; verdicts answer its look-ups. */
import type pg from 'pg'
import { z } from 'zod'
import type { Freshness } from '../core/command.ts'
import type { SourceState } from '../core/image.ts'
import { networkNotFound, type Refusal, refusal } from '../core/refusal.ts'
import { ANSWER } from '../ledger/sql/look-ups.ts'
import { STORED_SOURCE, TOUCH } from '../ledger/sql/sources.ts'
import { freshnessOf, type Row, sourceOf } from '../ledger/tables.ts'
import { ask } from '../postgres/on-connection.ts'
import type { Reporting, Verdict, Verification } from './report.ts'

export type StoredSource = {
  readonly source: SourceState
  readonly fresh: Freshness | null
  readonly head: number
  readonly era: number
  readonly isRecovering: boolean
  readonly secret: Buffer
  readonly questions: readonly Verification[]
}

export async function readStoredSource(
  database: pg.Pool,
  { network, source: id, mayReport }: Reporting,
): Promise<StoredSource | Refusal> {
  const [row] = await ask<Row>(database, STORED_SOURCE, [network, id])
  if (row === undefined) return networkNotFound(network)
  if (row.source_id === null)
    return refusal('SOURCE_NOT_FOUND', `there is no source ${id} in network ${network}; register it first`, {
      source: id,
    })
  const source = sourceOf(row)
  const bad = mayReport(source.declaration)
  if (bad !== null) return bad
  if (source.state === 'RETIRED')
    return refusal('ILLEGAL_STATE', `source ${id} is RETIRED, for good; register another id`, {
      source: id,
      state: 'RETIRED',
    })
  return {
    source,
    fresh: row.report_epoch === null ? null : freshnessOf({ ...row, epoch: row.report_epoch, source_id: id }),
    head: row.head as number,
    era: row.network_era as number,
    isRecovering: row.is_recovering as boolean,
    secret: row.secret as Buffer,
    questions: questionsOf(row.questions),
  }
}

/** Null: another report was taken meanwhile, or its source or network changed. */
export async function touch(
  database: pg.Pool,
  network: string,
  { source, fresh }: StoredSource,
  after: Freshness,
): Promise<Pick<StoredSource, 'head' | 'questions'> | null> {
  const before = fresh!
  const counted = JSON.stringify(after.counted.map(({ sequence, head, at }) => [sequence, head, at]))
  const { sequence, warm, countedTotal, reportedAt, completeAt, completeHead } = after
  const [row] = await ask<Row>(database, TOUCH, [
    ...[network, before.source, before.sequence],
    ...[sequence, warm, counted, countedTotal, reportedAt, completeAt, completeHead],
    ...[before.digest, before.epoch, before.era, source.version],
  ])
  if (row === undefined) return null
  return { head: row.head as number, questions: questionsOf(row.questions) }
}

type Question = Omit<Verification, 'id'> & { readonly head: number }
/** Address, kind and uid of the owner, and the head of the question: a late answer is none to a later question. */
const idFields = z.tuple([z.union([z.ipv4(), z.ipv6()]), z.string(), z.string(), z.int()])

function questionsOf(found: unknown): readonly Verification[] {
  const questions: Verification[] = []
  for (const { head, ...question } of (found as readonly Question[] | null) ?? []) {
    const { address, owner } = question
    const id = Buffer.from(JSON.stringify([address, owner.kind, owner.uid, head])).toString('base64url')
    questions.push({ ...question, id })
  }
  return questions
}

/** Answers how many of them answer an open question. */
export async function keepVerdicts(
  database: pg.Pool,
  network: string,
  source: string,
  verdicts: readonly Verdict[],
): Promise<number> {
  const answers: object[] = []
  for (const { id, ...verdict } of verdicts)
    try {
      const [address, kind, uid, head] = idFields.parse(JSON.parse(Buffer.from(id, 'base64url').toString()))
      answers.push({ address, kind, uid, head, ...verdict })
    } catch {
      // An id that was not given here answers no question.
    }
  return (await ask(database, ANSWER, [network, source, JSON.stringify(answers)])).length
}
