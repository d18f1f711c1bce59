/** `ipledger demo`: what it tells is what its database says. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import type { Proof } from '../../src/core/judge.ts'
import { openDatabase } from '../../src/postgres/database.ts'
import { createLogger } from '../../src/telemetry.ts'
import { withClient } from '../support/database.ts'
import { rpc } from '../support/rpc.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'
import { waitFor } from '../support/wait-for.ts'
import { MAIN, processesOf, startProcess } from './commands.ts'

type EventRow = {
  readonly seq: number
  readonly type: string
  readonly actor: string
  readonly cause: string
  readonly address: string
  readonly owner_name: string
  readonly quarantine_reason: string | null
  readonly token: number
  readonly details: { readonly proof?: Proof } | null
}

const EVENTS = `
  select seq, type, actor, cause, host(address) as address, owner_name, quarantine_reason, token, details
    from ipledger.event where network_id = 'default' and address is not null order by seq`
const HELD = `
  select host(l.address) as address, l.state, e.owner_name from ipledger.lease l
    join ipledger.event e on e.network_id = l.network_id and e.seq = l.seq where l.state <> 'FREE' order by l.address`

test('MIR-1238: what is told of each address is in its log', async () => {
  const directory = join(temporaryDirectory(), 'data')
  const { code, stdout, stderr } = await startProcess(['demo', '--directory', directory], {}).finished
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
  expect(processesOf(directory)).toEqual([])

  const log = createLogger('error')
  const place = { databaseUrl: undefined, databaseAdminUrl: undefined, directory }
  const database = await openDatabase(place, { log, embedded: 'own' })
  const { events, held, source } = await withClient(database.serviceUrl, async (client) => ({
    events: (await client.query<EventRow>(EVENTS)).rows,
    held: (await client.query(HELD)).rows,
    source: (await client.query(`select warm, counted_total from ipledger.source_report`)).rows[0],
  })).finally(() => database.stop())
  const of = (address: string) => events.filter((event) => event.address === address)
  const story = of('10.8.0.2')

  // Kept while the index did not name it, released by mistake, held while it was live, reaped on proof, handed on.
  expect(story.map(({ type, owner_name }) => `${type} ${owner_name}`)).toEqual([
    'lease.reserved api',
    'lease.confirmed api',
    'lease.released api',
    'lease.quarantined api',
    'lease.reaped api',
    'lease.reserved worker-2',
    'lease.confirmed worker-2',
  ])
  expect(story[2]).toMatchObject({ actor: 'clean-up' })
  expect(story[3]).toMatchObject({ quarantine_reason: 'RELEASED_BUT_LIVE' })
  expect(story[5]!.token).toBeGreaterThan(story[3]!.token)
  for (const [address, name] of [
    ['10.8.0.2', 'api'],
    ['10.8.0.4', 'batch'],
  ] as const) {
    const reaped = of(address).find(({ type }) => type === 'lease.reaped')!
    expect(reaped).toMatchObject({ cause: 'PROVEN_ABSENT', owner_name: name })
    const { witnesses, lookUps, policy } = reaped.details!.proof!
    expect(policy).toMatchObject({ misses: 3, minimumAgeMs: 1_000 })
    expect(lookUps.map((one) => [one.source, one.answer])).toEqual([['orchestrator', 'gone']])
    expect(witnesses[0]!.missed.length).toBeGreaterThanOrEqual(3)
  }
  expect(of('10.8.0.77').map(({ type }) => type)).toEqual(['lease.adopted'])
  expect(held).toEqual([
    { address: '10.8.0.2', state: 'ACTIVE', owner_name: 'worker-2' },
    { address: '10.8.0.3', state: 'ACTIVE', owner_name: 'web' },
    { address: '10.8.0.5', state: 'ACTIVE', owner_name: 'worker' },
    { address: '10.8.0.77', state: 'ACTIVE', owner_name: 'legacy' },
  ])

  // The story is the log, event by event.
  const [, told] = stdout.split('$ ipledger history 10.8.0.2\n')
  const sentences = told!
    .split('$ ipledger verify')[0]!
    .split(/\n +(?=\d+ +10\.8\.0\.2 of pool)/)
    .slice(1)
  expect(sentences.map((one) => Number.parseInt(one, 10))).toEqual(story.map(({ seq }) => seq))
  const plain = sentences.map((one) => one.replace(/\s+/g, ' '))
  for (const [at, { actor, cause }] of story.entries()) expect(plain[at]).toContain(`by ${actor} (${cause})`)
  expect(plain[4]).toMatch(
    /missed it in \d counted reports .* it answered gone .* policy: 3 misses, minimum age 1 s/,
  )

  // Lists that were told are those the source is known for.
  expect(source.warm).toBe(true)
  expect(stdout.match(/^ +\d+ .* yes$/gm)).toHaveLength(source.counted_total)
  expect(stdout).toMatch(
    /\$ ipledger verify\n +NETWORK +HEAD .*\n +default +(\d+) +0 +\1 +none +\1:[0-9a-f]{64}\n/,
  )
  expect(stdout).toContain('At no time did two sandboxes run with one address.')
})

test('on a terminal it stays, so that the story can be seen in the console, until Ctrl-C', async () => {
  const directory = join(temporaryDirectory(), 'data')
  const command = `exec ${process.execPath} ${MAIN} demo --directory ${directory}`
  const env = { PATH: process.env.PATH, SHELL: '/bin/sh' }
  // A terminal of its own. Without it, the demo gets SIGHUP.
  const terminal = spawn('script', ['-qec', command, '/dev/null'], { env })
  onTestFinished(() => void terminal.kill())
  const ended = once(terminal, 'exit')
  let shown = ''
  terminal.stdout.setEncoding('utf8').on('data', (text: string) => {
    shown += text
  })
  await waitFor(() => shown.includes('Ctrl-C ends it.'), { what: 'the end of the play' })
  const [, url, address] = /See it in the browser: +(http:\S+)\/#\/address\/default\/(\S+)/.exec(shown)!
  const [, token] = /Sign in with the token +(\S+)/.exec(shown)!
  expect(address).toBe('10.8.0.2')
  const page = await fetch(`${url}/`, { headers: { accept: 'text/html' } })
  expect(await page.text()).toContain('<title>ipledger</title>')
  const reader = rpc(url!, { token: token! })
  expect((await reader.ok('AuditService/ExplainAddress', { address })).answer).toContain('sandbox worker-2')
  expect((await reader('LeaseService/Release', { leaseId: 'default/1' })).reason).toBe('PERMISSION_DENIED')
  terminal.stdin.write('\x03')
  expect(await ended).toEqual([0, null])
  expect(processesOf(directory)).toEqual([])
})

test('a directory that is in use is left alone', async () => {
  const { code, stderr } = await startProcess(['demo', '--directory', '/'], {}).finished
  expect(code).toBe(1)
  expect(stderr).toBe('ipledger: / is not empty: the demo keeps its data in a directory of its own.\n')
})
