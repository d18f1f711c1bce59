/** history, explain, as-of, events and verify --server at the command line: what is printed, what is refused. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { expectVerified } from '../support/verified.ts'
import { type Finished, ipledger, ipledgerJson, type Service, startService, stopService } from './service.ts'

let database: TestDatabase
let service: Service

beforeAll(async () => {
  database = await createTestDatabase({ empty: true })
  service = await startService({ DATABASE_URL: database.adminUrl })
  await json('pool', 'create', 'web', '--cidr', '10.8.64.0/24', '--cooldown', '0s')
  const named = ['--kind', 'pod', '--incarnation', '1', '--pool', 'web', '--address', '10.8.64.2']
  await json('reserve', '--name', 'default/web-0', '--node', 'n1', ...named)
  await json('confirm', 'default/3')
  await json('release', 'default/3')
  await json('reserve', '--name', 'default/web-1', ...named)
  await json('quarantine', '10.8.64.2', '--why', 'answers ping on two nodes')
})
afterAll(async () => {
  await stopService(service)
  await expectVerified(database)
  await database.drop()
})

type Seqs = Readonly<{ entries: readonly Readonly<{ event: Readonly<{ seq: string }>; what: string }>[] }>

const json = <T>(...args: readonly string[]): Promise<T> => ipledgerJson<T>(service, args)
const run = (...args: readonly string[]): Promise<Finished> => ipledger(service, args)
const printed = async (...args: readonly string[]): Promise<string> => {
  const { code, stdout, stderr } = await run(...args)
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
  return stdout
}

test('history of an address: its holders drawn, its events told, in the order in which they were', async () => {
  const stdout = await printed('history', '10.8.64.2')
  expect(stdout).toMatch(/^10\.8\.64\.2 of network default, \S+Z to \S+Z\n\nLEASE {6}OWNER/)
  expect(stdout).toMatch(/default\/3 {2}pod default\/web-0 .*[[|]/)
  expect(stdout).toMatch(/default\/7 {2}pod default\/web-1 .*>$/m)
  expect([...stdout.matchAll(/^(\d+) {4}2/gm)].map((found) => found[1])).toEqual(['3', '4', '5', '7', '8'])
  expect(stdout).toContain('answers ping on two nodes')
  expect(Math.max(...stdout.split('\n').map((line) => line.length))).toBeLessThanOrEqual(100)
  const answer = await json<Seqs>('history', '10.8.64.2')
  expect(answer.entries.map(({ event }) => event.seq)).toEqual(['8', '7', '5', '4', '3'])
  expect(answer).toMatchObject({ head: '8', holders: [{ leaseId: 'default/3' }, { leaseId: 'default/7' }] })
})

test('by pages, from the newest back', async () => {
  const first = await run('history', '10.8.64.0/24', '--page-size', '2')
  expect(first.code).toBe(0)
  expect([...first.stdout.matchAll(/^(\d+) {4}2/gm)].map((found) => found[1])).toEqual(['7', '8'])
  const token = /^There is more: --page-token (\S+)$/m.exec(first.stderr)![1]!
  const next = await printed('history', '10.8.64.0/24', '--page-token', token)
  expect([...next.matchAll(/^(\d+) {4}2/gm)].map((found) => found[1])).toEqual(['3', '4', '5'])
})

test('of a lease, of an owner, of a stretch', async () => {
  expect(await printed('history', 'default/3')).toMatch(/^lease default\/3, [\s\S]*was released/)
  const owner = (await printed('history', '--owner', 'default/web-0')).replace(/\s+/g, ' ')
  expect(owner).toMatch(/^owners default\/web-0 of network default, /)
  expect(owner).toContain('10.8.64.2 of pool web (lease default/3) was reserved for pod default/web-0')
  expect(owner).toContain('Late calls for pod default/web-0 incarnation 1 are refused in pool web')
  expect(owner).not.toContain('web-1')
  const stretch = await json<Seqs>('history', '10.8.64.2', '--from', '4', '--to', '5')
  expect(stretch.entries.map(({ event }) => event.seq)).toEqual(['5', '4'])
  const recent = await json<Seqs>('history', '10.8.64.2', '--from', '-1h')
  expect(recent.entries).toHaveLength(5)
  expect(await printed('history', '10.8.64.2', '--to', '2020-01-01')).toBe(
    'Nothing happened to 10.8.64.2 of network default, and nobody held it.\n',
  )
})

test('explain: the answer, and what led there', async () => {
  const now = await printed('explain', '10.8.64.2')
  expect(now).toMatch(/^QUARANTINED at number 8\nAt .* 10\.8\.64\.2 of pool web is set aside/)
  expect(now).toContain('lease default/7')
  expect(await printed('explain', '10.8.64.2', '--at', '4')).toMatch(/^ACTIVE at number 4\n[\s\S]*default\/3/)
  expect(await json('explain', '10.8.64.77')).toMatchObject({
    state: 'FREE',
    seq: '8',
    steps: [{ seq: '2' }],
  })
})

test('as-of: by number, by time, ago', async () => {
  expect(await printed('as-of', '4')).toMatch(
    /^Network default at number 4, \S+Z\n\nLEASE .*\ndefault\/3 {2}10\.8\.64\.2 +ACTIVE/,
  )
  expect(await printed('as-of', '-0s', '--pool', 'web')).toContain('default/7')
  expect(await printed('as-of', '-1d')).toBe('Network default before its first event\n\nno leases\n')
  expect(await json('as-of', '2030-01-01')).toMatchObject({ seq: '8', leases: [{ leaseId: 'default/7' }] })
})

test('events of a stretch of time', async () => {
  expect(await printed('events', '--from', '-1h', '--type', 'lease.released')).toMatch(
    /\n5 .*lease\.released/,
  )
  expect(await printed('events', '--to', '-1h')).toBe('no events\n')
})

test('verify --server', async () => {
  expect(await printed('verify', '--server')).toMatch(/^NETWORK .*\ndefault +8 +\d +8 +none\n$/)
  expect(await json('verify', '--server')).toMatchObject({ complete: true, verifiedSeq: '8', findings: [] })
})

test('what is unclear is refused, with what to say instead', async () => {
  for (const [args, words] of [
    [['history'], 'Name an address, a CIDR or a lease id, or --owner with a name: one of them.'],
    [['history', '10.8.64.2', '--owner', 'x'], 'one of them.'],
    [['history', 'default/3', '--from', '1'], 'leave --from and --to away'],
    [['history', '10.8.64.300'], 'INVALID_FIELD'],
    [['history', 'default/9999'], 'VERSION_MISMATCH'],
    [['history', 'default/2'], 'LEASE_NOT_FOUND'],
    [['as-of', 'yesterday'], 'It must be a time'],
    [['as-of', '--josn'], 'It must be a time'],
    [['as-of', '9999'], 'VERSION_MISMATCH'],
    [['explain', '10.8.64.2', '--at', '2026-02-30'], 'It must be a time'],
    [['verify', '--server', '--full'], 'A server looks at what is new only'],
  ] as const) {
    const { code, stdout, stderr } = await run(...args)
    expect({ args, code, stdout }).toEqual({ args, code: 1, stdout: '' })
    expect(stderr).toContain(words)
  }
})
