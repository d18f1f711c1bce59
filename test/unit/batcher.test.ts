import { stat } from 'node:fs/promises'
import { expect, test } from 'vitest'
import { createBatcher, type Run } from '../../src/ledger/batcher.ts'
import { release } from '../support/commands.ts'

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
