/** A network in which a job fails holds up none of the others (Azure#4449: one record blocked all), and the run says so. */
import { afterAll, expect, test } from 'vitest'
import { inTurns } from '../../src/jobs/job.ts'
import { observePools } from '../../src/jobs/observe-pools.ts'
import { createProjectTenure } from '../../src/jobs/project-tenure.ts'
import { sealLog } from '../../src/jobs/seal-log.ts'
import { SEAL_AFTER_MS } from '../../src/ledger/seals.ts'
import { createLogger } from '../../src/telemetry.ts'
import { useTestDatabase, withClient } from '../support/database.ts'
import { useTruth, workload } from '../support/truth.ts'
import { expectVerified } from '../support/verified.ts'

const database = await useTestDatabase()
const truth = await useTruth(database)
afterAll(() => expectVerified(database))

const said: unknown[] = []
const log = Object.assign(createLogger('silent'), { error: (...words: unknown[]) => void said.push(words) })
const told = (network: string) => [
  expect.objectContaining({ network, err: expect.objectContaining({ message: 'broken here' }) }),
  'a job failed in this network',
]

/** As long as it is there, nothing can be written to the table of the first network. */
async function broken<T>(table: string, network: string, work: () => Promise<T>): Promise<T> {
  const on = (text: string) => withClient(database.adminUrl, (admin) => admin.query(text))
  await on(`create function public.break_it() returns trigger language plpgsql as $$
    begin if new.network_id = '${network}' then raise exception 'broken here'; end if; return new; end $$;
    create trigger break_it before insert on ipledger.${table} for each row execute function public.break_it()`)
  try {
    return await work()
  } finally {
    await on(`drop trigger break_it on ipledger.${table}; drop function public.break_it()`)
  }
}

async function twoNetworks() {
  said.length = 0
  const names = [await truth.network(), await truth.network()].sort()
  for (const network of names) for (let n = 0; n < 3; n += 1) await truth.lease(network, workload(n))
  return { first: names[0]!, second: names[1]! }
}

const rowsOf = (table: string, network: string) =>
  truth.rows<{ network_id: string }>(
    `select network_id from ipledger.${table} where network_id = $1`,
    network,
  )

test.each([
  { name: 'project-tenure', table: 'tenure', job: createProjectTenure({ slotMs: 0 }) },
  { name: 'seal-log', table: 'seal', job: sealLog },
  { name: 'observe-pools', table: 'pool_sample', job: observePools },
])('$name', async ({ table, job }) => {
  const { first, second } = await twoNetworks()
  for (const network of [first, second]) await truth.past(network, SEAL_AFTER_MS + 1_000)
  await broken(table, first, () =>
    expect(job(truth.context({ database: truth.connections, log }))).rejects.toThrow('broken here'),
  )
  expect(await rowsOf(table, first)).toEqual([])
  expect(await rowsOf(table, second)).not.toEqual([])
  expect(said).toEqual([told(first)])
  await job(truth.context({ database: truth.connections, log }))
  expect(await rowsOf(table, first)).not.toEqual([])
})

test('in turns: whoever has more comes again after the others, one that failed does not, and the first failure ends the run', async () => {
  const { first, second } = await twoNetworks()
  const turns: string[] = []
  const context = truth.context({ database: truth.connections, log })
  const run = inTurns(context, async (network) => {
    if (network !== first && network !== second) return { done: { other: 1 }, more: false }
    turns.push(network)
    if (network === first && turns.length > 2) throw new Error('broken here')
    return { done: {}, more: turns.filter((one) => one === network).length < 3 }
  })
  await expect(run).rejects.toThrow('broken here')
  expect(turns).toEqual([first, second, first, second, second])
  expect(said).toEqual([told(first)])
})

test('a worker that stops is no failure of a network', async () => {
  await twoNetworks()
  const stopped = new AbortController()
  const run = inTurns(
    truth.context({ database: truth.connections, log, signal: stopped.signal }),
    async () => {
      stopped.abort()
      throw new Error('stopped')
    },
  )
  await expect(run).rejects.toThrow('stopped')
  expect(said).toEqual([])
})
