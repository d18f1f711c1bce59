import { stat } from 'node:fs/promises'
import { expect, test } from 'vitest'
import { createBatcher, type Run } from '../../src/ledger/batcher.ts'
import { release } from '../support/commands.ts'
import { waitFor } from '../support/wait-for.ts'

const LIMITS = { queued: 10, leasesPerBatch: 10, defaultDeadlineMs: 10_000 }
const EVENTS = {
  onVeto: () => false,
  onFailure: () => undefined,
  onRefused: () => undefined,
  onDefect: () => undefined,
}

test('a process that stood still reads what was answered meanwhile before it looks at deadlines', async () => {
  const deadline = performance.now() + 500
  const run: Run = async (_, decides) => {
    decides(0)
    // Done by another thread while this one does nothing; heard of as an answer on a socket is.
    const answered = stat('.')
    while (performance.now() < deadline + 100);
    await answered
    return { kind: 'committed', outcomes: [{ ok: true, answer: { leases: [] }, replayed: false }] }
  }
  const batcher = createBatcher(run, LIMITS, EVENTS)
  const outcome = await batcher.submit(release(1), { deadline })
  expect(outcome).toMatchObject({ ok: true })
})

test('one late call among more than a call of a function takes arguments is told so, and ends nobody else', async () => {
  const waiting = 150_001
  const first = Promise.withResolvers<void>()
  const taken: number[] = []
  const run: Run = async (commands, decides) => {
    taken.push(commands.length)
    if (taken.length === 1) await first.promise
    // The database is away for one batch: all of them go back to the front of the queue.
    if (taken.length === 2) return { kind: 'unsent', error: new Error('away') }
    return {
      kind: 'committed',
      outcomes: commands.map((_, index) =>
        decides(index) ? { ok: true, answer: { leases: [] }, replayed: false } : null,
      ),
    }
  }
  const batcher = createBatcher(
    run,
    { queued: waiting, leasesPerBatch: 1_000_000, defaultDeadlineMs: 60_000 },
    EVENTS,
  )
  const inFlight = batcher.submit(release(1), {})
  await waitFor(() => taken.length === 1, { what: 'the first batch to be on its way' })
  const late = batcher.submit(release(2), { deadline: performance.now() + 1 })
  const patient = Array.from({ length: waiting - 1 }, () => batcher.submit(release(3), {}))
  expect(await late).toMatchObject({ ok: false, refusal: { reason: 'OVERLOADED' } })
  first.resolve()
  expect((await Promise.all([inFlight, ...patient])).every(({ ok }) => ok)).toBe(true)
  expect(taken).toEqual([1, waiting - 1, waiting - 1])
})
