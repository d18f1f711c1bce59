/** A ledger on a test database with a clock that a test moves, played with the steps of the core's tests. */
import type pg from 'pg'
import { afterAll } from 'vitest'
import type { Image } from '../../src/core/image.ts'
import { type OpenLedger, openLedger } from '../../src/ledger/open.ts'
import { Reads } from '../../src/ledger/reads.ts'
import { createPool } from '../../src/postgres/connect.ts'
import { newScene, type Step } from '../core/given.ts'
import { TestClock } from './clock.ts'
import type { TestDatabase } from './database.ts'
import { NETWORK } from './stored-scene.ts'

export type TestLedger = {
  readonly ledger: OpenLedger
  readonly pool: pg.Pool
  readonly reads: Reads
  play(...steps: readonly Step[]): Promise<void>
  advance(ms: number): Promise<void>
  image(): Promise<Image>
  /** `lease.reaped 10.0.0.1 PROVEN_ABSENT`, those that came after a number. */
  told(after: number): Promise<readonly string[]>
}

export async function useTestLedger(database: TestDatabase): Promise<TestLedger> {
  let offset = 0
  const ledger = await openLedger({
    url: database.serviceUrl,
    clock: new TestClock({ database: () => Date.now() + offset }),
    limits: { deadlineMs: 60_000 },
  })
  const pool = createPool({ url: database.serviceUrl, applicationName: 'test', max: 4 })
  const reads = new Reads(pool)
  afterAll(async () => {
    await ledger.close()
    await pool.end()
  })

  async function image(): Promise<Image> {
    return (await ledger.image(NETWORK))!
  }

  /** A step of the clock holds the network; here the operator knows. */
  async function advance(ms: number): Promise<void> {
    offset += ms
    if ((await ledger.image(NETWORK)) === null) return
    await ledger.submit({
      network: NETWORK,
      actor: { name: 'test', node: null },
      cause: 'ResumeHold',
      requestId: null,
      fingerprint: null,
      traceId: null,
      type: 'resumeHold',
      hold: 'CLOCK',
      why: 'the test moved its clock',
    })
  }

  async function play(...steps: readonly Step[]): Promise<void> {
    for (const step of steps) {
      if (typeof step !== 'function') {
        await play(...step)
        continue
      }
      const now = ledger.now()
      const freshness = new Map(await reads.freshness(NETWORK))
      const scene = {
        ...newScene(),
        image: (await ledger.image(NETWORK)) ?? newScene().image,
        now,
        freshness,
      }
      const command = step(scene)
      if (scene.now !== now) await advance(scene.now - now)
      if (command === undefined) continue
      const outcome = await ledger.submit(command)
      if (!outcome.ok) throw new Error(`${command.type}: ${outcome.refusal.message}`)
    }
  }

  async function told(after: number): Promise<readonly string[]> {
    const { rows } = await pool.query<{ line: string }>(
      `select concat_ws(' ', type, host(address), cause, quarantine_reason) as line from ipledger.event
        where network_id = $1 and seq > $2 and type not like 'source.%' and cause not in ('CLOCK', 'ResumeHold') order by seq`,
      [NETWORK, after],
    )
    return rows.map(({ line }) => line)
  }

  return { ledger, pool, reads, play, advance, image, told }
}
