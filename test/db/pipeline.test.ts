import pg from 'pg'
import { beforeEach, expect, test } from 'vitest'
import { connect } from '../../src/postgres/connect.ts'
import { ConnectionLost } from '../../src/postgres/connection-lost.ts'
import {
  BEGIN,
  COMMIT,
  ROLLBACK,
  runPipeline,
  type Statement,
  sever,
  Unreadable,
} from '../../src/postgres/pipeline.ts'
import { useTestDatabase, withClient } from '../support/database.ts'

const database = await useTestDatabase()

const one = (name: string, text: string, values: readonly unknown[] = []): Statement => ({
  name,
  text,
  values,
})
const add = (id: number) => one('add', 'insert into public.item (id) values ($1::bigint)', [id])
const pid = one('pid', 'select pg_backend_pid() as pid')

async function items(): Promise<readonly number[]> {
  return withClient(database.adminUrl, async (admin) => {
    const { rows } = await admin.query<{ id: number }>('select id from public.item order by id')
    return rows.map(({ id }) => id)
  })
}

const onConnection = (work: (client: pg.Client) => Promise<void>) => withClient(database.adminUrl, work)

beforeEach(async () => {
  await withClient(database.adminUrl, async (admin) => {
    await admin.query('drop table if exists public.item')
    await admin.query(
      'create table public.item (id bigint primary key, odd bigint check (odd is null or odd <> 13), unique (odd) deferrable initially deferred)',
    )
  })
})

test('statements are answered in order, with names and types, the first time and when prepared', async () => {
  await onConnection(async (client) => {
    for (let round = 1; round <= 3; round += 1) {
      const { answered, warnings } = await runPipeline(client, [
        BEGIN,
        add(round),
        one('both', 'select $1::bigint as number, $2::text[] as words, null::inet as nothing', [
          round,
          ['a"b\\', 'NULL', '', null],
        ]),
        one('none', 'select 1 as gone where false'),
        one('two', 'select n from unnest($1::bigint[]) as n', ['{7,8}']),
        COMMIT,
      ])
      expect(warnings).toEqual([])
      expect(answered.map(({ command, rowCount }) => [command, rowCount])).toEqual([
        ['BEGIN', 0],
        ['INSERT', 1],
        ['SELECT', 1],
        ['SELECT', 0],
        ['SELECT', 2],
        ['COMMIT', 0],
      ])
      expect(answered[2]!.rows).toEqual([
        { number: round, words: ['a"b\\', 'NULL', '', null], nothing: null },
      ])
      expect(answered[3]!.rows).toEqual([])
      expect(answered[4]!.rows).toEqual([{ n: 7 }, { n: 8 }])
    }
  })
  expect(await items()).toEqual([1, 2, 3])
})

test.each([
  ['that cannot be parsed', one('bad', 'selct 1'), '42601'],
  ['whose parameter cannot be read', one('bad', 'select $1::inet', ['10.0.0.300']), '22P02'],
  ['that violates a constraint', one('bad', 'insert into public.item (id, odd) values (99, 13)'), '23514'],
])('nothing is run after a statement %s, the commit neither', async (_, bad, code) => {
  await onConnection(async (client) => {
    await expect(runPipeline(client, [BEGIN, add(1), bad, add(2), COMMIT])).rejects.toMatchObject({ code })
    expect((await runPipeline(client, [ROLLBACK])).answered[0]!.command).toBe('ROLLBACK')
    expect(await items()).toEqual([])
    // What the server had not got to, and what it had, is prepared for the next pipeline.
    expect((await runPipeline(client, [BEGIN, add(1), add(2), COMMIT])).answered.at(-1)!.command).toBe(
      'COMMIT',
    )
  })
  expect(await items()).toEqual([1, 2])
})

test('a commit after a pipeline that failed resolves, with the tag ROLLBACK', async () => {
  await onConnection(async (client) => {
    await runPipeline(client, [BEGIN, add(1)])
    await expect(runPipeline(client, [add(1)])).rejects.toMatchObject({ code: '23505' })
    expect((await runPipeline(client, [COMMIT])).answered.map(({ command }) => command)).toEqual(['ROLLBACK'])
  })
  expect(await items()).toEqual([])
})

test('a commit that fails is a failure', async () => {
  await onConnection(async (client) => {
    const same = (id: number) => one('same', 'insert into public.item (id, odd) values ($1::bigint, 5)', [id])
    await expect(runPipeline(client, [BEGIN, same(1), same(2), COMMIT])).rejects.toMatchObject({
      code: '23505',
    })
  })
  expect(await items()).toEqual([])
})

test('a statement that failed when it was prepared can be run later', async () => {
  await onConnection(async (client) => {
    const read = (text: string) => one('read', 'select $1::inet as address', [text])
    await expect(runPipeline(client, [read('10.0.0.300')])).rejects.toMatchObject({ code: '22P02' })
    const { answered } = await runPipeline(client, [read('10.0.0.3'), read('10.0.0.4')])
    expect(answered.map(({ rows }) => rows)).toEqual([[{ address: '10.0.0.3' }], [{ address: '10.0.0.4' }]])
  })
})

test('a row that cannot be read fails the pipeline and leaves the connection usable', async () => {
  await onConnection(async (client) => {
    const large = one('large', 'select 9007199254740993::int8 as value')
    await expect(runPipeline(client, [large, add(1)])).rejects.toThrow(Unreadable)
    expect((await runPipeline(client, [one('small', 'select 2::int8 as value')])).answered[0]!.rows).toEqual([
      { value: 2 },
    ])
  })
})

test('warnings belong to the pipeline that they came in; notices are none', async () => {
  await onConnection(async (client) => {
    const raise = (level: string) => one(level, `do $$ begin raise ${level} 'said as ${level}'; end $$`)
    const [warned, noticed] = await Promise.all([
      runPipeline(client, [raise('warning'), raise('notice')]),
      runPipeline(client, [raise('notice'), raise('info')]),
    ])
    expect(warned.warnings).toEqual(['said as warning'])
    expect(noticed.warnings).toEqual([])
    expect((await runPipeline(client, [COMMIT])).warnings).toEqual(['there is no transaction in progress'])
  })
})

test.each(['terminated by the server', 'severed by us'])(
  'a connection that is %s fails its pipeline',
  async (how) => {
    const client = await connect({ url: database.adminUrl, applicationName: 'test pipeline' })
    const backend = (await runPipeline(client, [pid])).answered[0]!.rows[0]!.pid
    const outcome = expect(
      runPipeline(client, [BEGIN, add(1), one('sleep', 'select pg_sleep(60)'), COMMIT]),
    ).rejects.toThrow(how === 'severed by us' ? ConnectionLost : pg.DatabaseError)
    if (how === 'severed by us') sever(client)
    await withClient(database.adminUrl, (other) => other.query('select pg_terminate_backend($1)', [backend]))
    await outcome
    await expect(runPipeline(client, [add(2)])).rejects.toThrow(ConnectionLost)
    expect(await items()).toEqual([])
  },
)
