/** Snapshots that are kept: why they were partial, or did not count, as far as what is kept tells. */
import { expect, test } from 'vitest'
import { readSnapshots } from '../../src/liveness/lists.ts'
import { useTestDatabase } from '../support/database.ts'
import { createEye, INTERVAL, pod, register } from '../support/intake.ts'
import { useTruth } from '../support/truth.ts'

const database = await useTestDatabase()
const truth = await useTruth(database)
const { intake } = truth
const network = await truth.network()
const [A, B] = [pod('10.0.0.1'), pod('10.0.0.2')]

/** The latest first. */
async function kept(source: string): Promise<readonly string[]> {
  const page = await readSnapshots(intake.database, {
    network,
    source,
    sequence: null,
    after: null,
    size: 100,
  })
  return page.found.map(({ sequence, complete, counted, because }) =>
    [sequence, complete ? 'complete' : 'partial', counted ? 'counted' : '', ...because]
      .filter(Boolean)
      .join(' '),
  )
}

async function sourceWith(id: string) {
  await register(intake, network, id)
  const eye = createEye(intake, network, id)
  const tooSoon = async () => {
    const begun = await eye.begin()
    return { ...begun, begunAt: begun.begunAt - INTERVAL + 1_000 }
  }
  return { ...eye, tooSoon }
}

test('those of a warm-up, and those too soon after one that counted, did not count', async () => {
  const { look, tooSoon } = await sourceWith('agent')
  await look([A])
  await look([A, B])
  expect(await kept('agent')).toEqual(['2 complete WARM_UP', '1 complete WARM_UP'])
  await look([A, B])
  await look([B])
  await look([A, B], { begun: await tooSoon() })
  await look([A], { complete: false })
  expect(await kept('agent')).toEqual([
    '6 partial DECLARED',
    '5 complete TOO_SOON',
    '4 complete counted',
    // It may have warmed up or been too soon: now that its epoch is warm nothing tells.
    '2 complete',
    '1 complete WARM_UP',
  ])
})

test('also after one that counted, changed nothing, and is not kept', async () => {
  const { look, tooSoon } = await sourceWith('calm')
  for (let n = 0; n < 3; n += 1) await look([A])
  await look([A, B], { begun: await tooSoon() })
  expect(await kept('calm')).toEqual(['4 complete TOO_SOON', '1 complete WARM_UP'])
})

test('nothing follows from what counted in another epoch', async () => {
  const { look, tooSoon } = await sourceWith('booted')
  for (let n = 0; n < 4; n += 1) await look([A])
  await look([A], { epoch: 'e2' })
  await look([A, B], { epoch: 'e2', begun: await tooSoon() })
  expect(await kept('booted')).toEqual(['6 complete WARM_UP', '5 complete WARM_UP', '1 complete WARM_UP'])
})
