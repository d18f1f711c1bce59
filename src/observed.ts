/**
 * Gauges that come from the database: how full pools are, what is held, which sources are silent, what waits. They are read when
 * they are collected: the cheap ones at most every ten seconds, those that count leases once a minute. How full pools are and what
 * waits is what a job wrote last.
 *
 * - A collection waits `WAIT_MS` for the database and goes on with what is known. What is older than a minute or two is left out,
 *   and `ipledger_database_up` says so.
 * - At most `MOST_SERIES` networks, pools and sources; `ipledger_series_left_out` counts the others.
 * - Every process that serves reads them: in a query over several processes take the maximum, not the sum.
 */
import type pg from 'pg'
import { GAUGES, SLOW_GAUGES } from './ledger/sql/metrics.ts'
import { ask } from './postgres/on-connection.ts'
import {
  expectNetwork,
  type Logger,
  MOST_SERIES,
  noLongerThan,
  type Reading,
  type ReadMetric,
} from './telemetry.ts'

const WAIT_MS = 1_500
/** Beyond this and its interval a part is no longer known. */
const KNOWN_FOR_MS = 60_000

type Part = { readonly everyMs: number; readonly text: string }
const PARTS: readonly Part[] = [
  ...GAUGES.map((text) => ({ everyMs: 10_000, text })),
  ...SLOW_GAUGES.map((text) => ({ everyMs: 60_000, text })),
]

type Row = { readonly metric: ReadMetric; readonly labels: string[]; readonly value: number }
type Known = { readonly at: number; readonly readings: readonly Reading[] }

export class Observed {
  readonly #database: pg.Pool
  readonly #log: Pick<Logger, 'warn'>
  readonly #known = new Map<Part, Known>()
  #isUp = false
  #reading: Promise<void> | undefined

  constructor(database: pg.Pool, log: Pick<Logger, 'warn'>) {
    this.#database = database
    this.#log = log
  }

  async collect(): Promise<readonly Reading[]> {
    this.#reading ??= this.#readDue().finally(() => {
      this.#reading = undefined
    })
    await noLongerThan(WAIT_MS, this.#reading)
    for (const [part, { at }] of this.#known)
      if (performance.now() - at > part.everyMs + KNOWN_FOR_MS) this.#known.delete(part)
    const found = [...this.#known.values()].flatMap(({ readings }) => readings)
    return [['ipledger.database.up', [], this.#isUp && this.#known.size > 0 ? 1 : 0], ...found]
  }

  async #readDue(): Promise<void> {
    try {
      for (const part of PARTS) {
        const before = this.#known.get(part)
        if (before === undefined || performance.now() - before.at >= part.everyMs) await this.#read(part)
      }
      this.#isUp = true
    } catch (error) {
      if (this.#isUp) this.#log.warn({ err: error }, 'metrics of the database cannot be read')
      this.#isUp = false
    }
  }

  async #read(part: Part): Promise<void> {
    const at = performance.now()
    const rows = await ask<Row>(this.#database, part.text, [MOST_SERIES])
    const readings = rows.map(({ metric, labels, value }) => [metric, labels, value] as const)
    this.#known.set(part, { at, readings })
    for (const { metric, labels } of rows) if (metric === 'ipledger.era') expectNetwork(labels[0]!)
  }
}
