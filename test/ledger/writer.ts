/** Decides commands by a log alone and writes them: the loop without its queue, for tests of logs. */
import type { Batch } from '../../src/core/batch.ts'
import type { Command, Freshness } from '../../src/core/command.ts'
import { decide, needsOf, type Outcome } from '../../src/core/decide.ts'
import type { AddressRecord, LedgerEvent } from '../../src/core/event.ts'
import { evolve } from '../../src/core/evolve.ts'
import { type Image, newImage, rollback, type SourceState, sightingsAt } from '../../src/core/image.ts'
import { cellsOf, digestOf, textOf } from '../../src/ledger/event-text.ts'
import type { Committed, Log, PoolRow, Sealed, Transaction, Write } from '../../src/ledger/log.ts'

export const NEVER: AbortSignal = new AbortController().signal
export const NO_NEEDS = { requests: [], tokens: [], owners: [], sources: [], lookUps: [] }

export type Writer = {
  readonly image: Image
  readonly outcomes: readonly Outcome[]
  /** Locks, catches up, decides, and answers with what is to be written. */
  prepare(
    ...commands: readonly Command[]
  ): Promise<{ readonly transaction: Transaction; readonly write: Write }>
  /** The same without catching up: as a process that believes its image. */
  prepareStale(
    ...commands: readonly Command[]
  ): Promise<{ readonly transaction: Transaction; readonly write: Write }>
  write(...commands: readonly Command[]): Promise<Committed>
}

export function createWriter(log: Log, network: string): Writer {
  const image = newImage(network)
  let outcomes: readonly Outcome[] = []

  async function prepare(commands: readonly Command[], catchesUp: boolean) {
    const needs = commands.map((command) => needsOf(image, command))
    const transaction = await log.begin(
      network,
      {
        after: image.head,
        creates: commands.some(({ type }) => type === 'createNetwork'),
        sought: null,
        needs: {
          requests: needs.flatMap((one) => one.requests),
          tokens: needs.flatMap((one) => one.tokens),
          owners: needs.flatMap((one) => one.owners),
          sources: [...new Set(needs.flatMap((one) => one.sources))],
          lookUps: needs.flatMap((one) => one.lookUps),
        },
      },
      NEVER,
    )
    if (catchesUp) for (const one of transaction.caught.tail) fold(one)
    image.journal = []
    const batch: Batch = {
      image,
      now: Math.max(transaction.caught.clock, image.at),
      known: transaction.caught.known,
      events: [],
      freshness: new Map(),
      remembered: new Map(),
      without: new Set(),
    }
    const before = image.digest
    outcomes = commands.map((command) => decide(batch, command))
    return { transaction, write: writeOf(image, batch, before) }
  }

  function fold({ event, digest }: Sealed): void {
    evolve(image, event)
    Object.assign(image, { head: event.seq, at: event.at, digest })
  }

  return {
    image,
    get outcomes() {
      return outcomes
    },
    prepare: (...commands) => prepare(commands, true),
    prepareStale: (...commands) => prepare(commands, false),
    async write(...commands) {
      const { transaction, write } = await prepare(commands, true)
      const committed = await transaction.commit(write)
      if (committed.kind !== 'committed') rollback(image, 0)
      image.journal = null
      image.dirtySightings.clear()
      return committed
    },
  }
}

function writeOf(image: Image, { events, freshness, remembered, now }: Batch, before: string): Write {
  const records = new Map<string, AddressRecord>()
  const pools = new Map<number, PoolRow>()
  const sources = new Map<string, SourceState>()
  let isNetwork = false
  let digest = before
  const sealed = events.map((event: LedgerEvent) => {
    digest = digestOf(digest, textOf(cellsOf(image.name, event)))
    if ('record' in event) records.set(event.record.address, event.record)
    else if ('poolId' in event) {
      const pool = image.pools.get(event.poolId)?.pool
      const { poolId, seq: version, at: updatedAt } = event
      pools.set(poolId, {
        poolId,
        settings: pool?.settings ?? null,
        version,
        createdAt: pool?.createdAt ?? updatedAt,
        updatedAt,
      })
    } else if (event.type.startsWith('source.')) {
      const { details } = event as Extract<LedgerEvent, { type: `source.${string}` }>
      const id = 'source' in details ? details.source : details.id
      sources.set(id, image.sources.get(id)!)
    } else if (event.type !== 'attachment.closed') isNetwork = true
    return { event, digest }
  })
  image.digest = digest
  return {
    events: sealed,
    records: [...records.values()],
    pools: [...pools.values()],
    network: isNetwork ? image.network : null,
    sources: [...sources.values()],
    freshness: [...freshness.values()] as readonly Freshness[],
    sightings: new Map([...image.dirtySightings].map((address) => [address, sightingsAt(image, address)])),
    requests: [...remembered].map(([requestId, { fingerprint, method, seq, answer }]) => ({
      requestId,
      fingerprint,
      method,
      seq,
      at: now,
      answer,
    })),
  }
}
