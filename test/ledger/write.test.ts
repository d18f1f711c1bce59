/** The rows that a batch writes beside its events. */
import assert from 'node:assert/strict'
import { test } from 'vitest'
import { command, pool, register, release, reserve } from '../core/given.ts'
import { createDatabase } from '../simulation/memory-log.ts'
import { createWriter } from './writer.ts'

const created = command({ type: 'createNetwork', settings: { description: '', labels: {} } })

test.each([
  ['a Reserve: the lease', reserve('a/1'), ['records']],
  ['a Release of what was never held: nothing', release('never/1'), []],
  ['a pool: the pool', pool('10.1.0.0/24', { name: 'other' }), ['pools']],
  [
    'a pool that is deleted: the pool',
    command({ type: 'deletePool', name: 'pool', version: null }),
    ['pools'],
  ],
  ['a source: the source', register('agent'), ['sources']],
  ['a hold: the network', command({ type: 'hold', hold: 'SOURCE_AHEAD', why: 'so' }), ['network']],
])('%s', async (_, step, expected) => {
  const of = (one: typeof step) => ({ ...one(), network: 'net' })
  const writer = createWriter(createDatabase(() => Date.now()).connect(), 'net')
  await writer.write(of(created), of(pool('10.0.0.0/24')))
  const { write } = await writer.prepare(of(step))
  const { records, pools, network, sources } = write
  const rows = { records, pools, network: network === null ? [] : [network], sources }
  assert.equal(write.events.length, 1)
  assert.deepEqual(
    Object.entries(rows).flatMap(([table, { length }]) => Array.from({ length }, () => table)),
    expected,
  )
})
