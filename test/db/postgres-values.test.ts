import { describe, expect, test } from 'vitest'
import { connect } from '../../src/postgres/connect.ts'
import { arrayLiteral, parseTimestamptz } from '../../src/postgres/values.ts'
import { useTestDatabase, withClient } from '../support/database.ts'

const database = await useTestDatabase()

async function read(sql: string, params: readonly unknown[] = []): Promise<unknown> {
  return withClient(database.adminUrl, async (client) => {
    const { rows } = await client.query({ text: sql, values: [...params] })
    return rows[0].value
  })
}

describe('values as they arrive', () => {
  test('int8 is a number, the largest safe one too', async () => {
    expect(await read('select 9007199254740991::int8 as value')).toBe(9007199254740991)
    expect(await read('select -9007199254740991::int8 as value')).toBe(-9007199254740991)
    expect(await read('select array[1, null, 3]::int8[] as value')).toEqual([1, null, 3])
  })

  test('int8 beyond 2^53 rejects its statement and leaves the connection usable', async () => {
    const client = await connect({ url: database.adminUrl, applicationName: 'test' })
    await expect(client.query('select 9007199254740993::int8 as value')).rejects.toThrow(RangeError)
    expect((await client.query('select 2::int8 as value')).rows).toEqual([{ value: 2 }])
    await client.end()
  })

  test('numeric stays text: a v6 /48 has 2^80 addresses', async () => {
    expect(await read('select (2::numeric ^ 80)::numeric(30) as value')).toBe('1208925819614629174706176')
    expect(await read('select array[1.5, 2]::numeric[] as value')).toEqual(['1.5', '2'])
  })

  test('inet and cidr are text, a host inet without its length', async () => {
    expect(await read(`select '10.0.0.5'::inet as value`)).toBe('10.0.0.5')
    expect(await read(`select '2001:DB8::1'::inet as value`)).toBe('2001:db8::1')
    expect(await read(`select '10.0.0.0/24'::cidr as value`)).toBe('10.0.0.0/24')
    expect(await read(`select array['10.0.0.5', '::1']::inet[] as value`)).toEqual(['10.0.0.5', '::1'])
  })

  test('json and jsonb are parsed', async () => {
    expect(await read(`select '{"a": [1, null]}'::jsonb as value`)).toEqual({ a: [1, null] })
    expect(await read(`select '{"a": 1}'::json as value`)).toEqual({ a: 1 })
  })

  test('date and interval are text', async () => {
    expect(await read(`select date '2026-11-20' as value`)).toBe('2026-11-20')
    expect(await read(`select interval '90 seconds' as value`)).toBe('00:01:30')
  })
})

describe('timestamptz', () => {
  test.each([
    ['2026-11-20 13:46:00+00', Date.UTC(2026, 10, 20, 13, 46, 0)],
    ['2026-11-20 13:46:00.1+00', Date.UTC(2026, 10, 20, 13, 46, 0, 100)],
    ['2026-11-20 13:46:00.123999+00', Date.UTC(2026, 10, 20, 13, 46, 0, 123)],
    ['2026-11-20 13:46:00.0005+00', Date.UTC(2026, 10, 20, 13, 46, 0, 0)],
    ['1969-12-31 23:59:59.999999+00', -1],
    ['2026-11-20 19:16:00.5+05:30', Date.UTC(2026, 10, 20, 13, 46, 0, 500)],
    ['2026-11-20 10:46:00-03', Date.UTC(2026, 10, 20, 13, 46, 0)],
  ])('%s', (text, ms) => {
    expect(parseTimestamptz(text)).toBe(ms)
  })

  test.each([
    '2026-11-20 13:46:00',
    '2026-11-20T13:46:00Z',
    '10000-01-01 00:00:00+00',
    '0001-01-01 00:00:00+00 BC',
    'infinity',
    '',
  ])('what is no ISO form is refused, never guessed: "%s"', (text) => {
    expect(() => parseTimestamptz(text)).toThrow(RangeError)
  })

  test('agrees with PostgreSQL over ten thousand random times, in UTC and elsewhere', async () => {
    await withClient(database.adminUrl, async (client) => {
      for (const zone of ['UTC', 'Asia/Kolkata', 'America/St_Johns', 'Europe/Berlin']) {
        await client.query(`set timezone = '${zone}'`)
        const { rows } = await client.query<{ at: number; ms: string }>(
          `select at, floor(extract(epoch from at) * 1000)::text as ms
             from (select timestamptz '1950-01-01 00:00:00+00' + random() * interval '250 years' as at
                     from generate_series(1, 2500)) as times`,
        )
        for (const row of rows) expect(row.at, `${zone} ${row.ms}`).toBe(Number(row.ms))
      }
    })
  })
})

test('an array literal is read as the array it was made of', async () => {
  const words = ['', 'NULL', 'a"b', 'back\\slash', '{x,y}', ' padded ', 'ü', null]
  expect(await read('select $1::text[] as value', [arrayLiteral(words)])).toEqual(words)
  expect(await read('select $1::bigint[] as value', [arrayLiteral([1, null, -3])])).toEqual([1, null, -3])
  expect(await read('select $1::boolean[] as value', [arrayLiteral([true, false])])).toEqual([true, false])
  expect(await read('select $1::text[] as value', [arrayLiteral([])])).toEqual([])
})
