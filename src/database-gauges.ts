/**
 * Gauges that come from the database, read when they are collected, as docs/observability.md says. Usage and attention are what a job
 * wrote last. A collection waits `WAIT_MS` for the database and then takes the readings it has.
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
/** After this and its interval a part is left out. */
const KNOWN_FOR_MS = 60_000

type Row = { readonly metric: ReadMetric; readonly labels: string[]; readonly value: number }
type Part = { readonly text: string; readonly everyMs: number; readAt: number; readings: readonly Reading[] }

export class DatabaseGauges {
  readonly #database: pg.Pool
  readonly #log: Pick<Logger, 'warn'>
  readonly #parts = [...GAUGES.map(partOf(10_000)), ...SLOW_GAUGES.map(partOf(60_000))]
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
    const now = performance.now()
    const known = this.#parts.filter(({ readAt, everyMs }) => now - readAt <= everyMs + KNOWN_FOR_MS)
    const isUp = this.#isUp && known.length > 0
    return [['ipledger.database.up', [], isUp ? 1 : 0], ...known.flatMap(({ readings }) => readings)]
  }

  async #readDue(): Promise<void> {
    try {
      for (const part of this.#parts)
        if (performance.now() - part.readAt >= part.everyMs) await this.#read(part)
      this.#isUp = true
    } catch (error) {
      if (this.#isUp) this.#log.warn({ err: error }, 'metrics of the database cannot be read')
      this.#isUp = false
    }
  }

  async #read(part: Part): Promise<void> {
    const at = performance.now()
    const rows = await ask<Row>(this.#database, part.text, [MOST_SERIES])
    part.readings = rows.map(({ metric, labels, value }) => [metric, labels, value])
    part.readAt = at
    for (const { metric, labels } of rows) if (metric === 'ipledger.era') expectNetwork(labels[0]!)
  }
}

function partOf(everyMs: number) {
  return (text: string): Part => ({ text, everyMs, readAt: -Infinity, readings: [] })
}
