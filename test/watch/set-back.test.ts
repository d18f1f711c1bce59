/**
 * A data directory is set back under a running watch. At the end no mirror has what the copy lacks, whether the service runs on or
 * is started anew, and whether another process writes meanwhile.
 */
import { execFileSync } from 'node:child_process'
import { afterAll, expect, onTestFinished, test } from 'vitest'
import { createClient, type IpledgerClient, LeaseMirror, watchLeases } from '../../src/client/client.ts'
import type { Lease } from '../../src/gen/ipledger/v1/types_pb.ts'
import { serve, stop } from '../e2e/commands.ts'
import { withClient } from '../support/database.ts'
import { freePort } from '../support/prometheus.ts'
import { startTestServer } from '../support/server.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'
import { waitFor } from '../support/wait-for.ts'

const server = await startTestServer()
afterAll(() => server.stop())
const usual = server.url('set_back')
const { port } = new URL(usual)

const copy = (from: string, to: string) => {
  execFileSync('rm', ['-rf', to])
  execFileSync('cp', ['-a', from, to])
}

const lines = (leases: readonly Lease[]) =>
  leases
    .map(({ address, leaseId, version, owner }) => `${address} ${leaseId} ${version} ${owner?.name}`)
    .sort()

const reserve = ({ leases }: IpledgerClient, name: string) => leases.reserve({ owner: { kind: 'vm', name } })

type Started = Awaited<ReturnType<typeof serve>>

/** Runs on the database that was set back. `start` and `end` are for processes of the service. */
type After = (world: {
  readonly service: Started
  readonly start: (env?: object) => Promise<Started>
  readonly setBack: (port?: number) => Promise<void>
}) => Promise<Started>

const writesMore = async (service: Started) => {
  const client = createClient(service)
  for (const n of [1, 2, 3, 4, 5]) await reserve(client, `other-${n}`)
  await stop(service)
}
const atItsPort = ({ url }: Started) => ({ IPLEDGER_PORT: new URL(url).port })

test.each<[string, After]>([
  [
    'the service runs on, and nobody writes',
    async ({ service, setBack }) => {
      await setBack()
      return service
    },
  ],
  [
    'the service is started anew, and nobody writes',
    async ({ service, start, setBack }) => {
      await stop(service)
      await setBack()
      return start(atItsPort(service))
    },
  ],
  [
    'the service is started anew, and gives out more numbers than were lost before the watch is there again',
    async ({ service, start, setBack }) => {
      await stop(service)
      await setBack()
      await writesMore(await start())
      return start(atItsPort(service))
    },
  ],
  [
    'the service runs on, and another process gives out more numbers than were lost before it sees the database again',
    async ({ service, start, setBack }) => {
      await setBack(await freePort())
      await writesMore(await start())
      await server.restart(() => {}, Number(port))
      return service
    },
  ],
])('%s', async (_, after) => {
  await withClient(server.url('postgres'), async (admin) => {
    await admin.query('drop database if exists set_back with (force)')
    await admin.query('create database set_back')
  })
  const start = (env = {}) =>
    serve({ DATABASE_URL: server.url('set_back'), IPLEDGER_LOG_LEVEL: 'fatal', ...env }, '--no-worker')
  const service = await start()
  const client = createClient(service)
  await client.pools.createPool({ name: 'web', cidr: '10.0.0.0/24' })
  const { leases: kept } = await reserve(client, 'kept')
  await reserve(client, 'moved')
  const backup = `${temporaryDirectory()}/copy`
  await server.restart((directory) => copy(directory, backup))

  const mirror = new LeaseMirror()
  const end = new AbortController()
  const watch = (async () => {
    for await (const one of watchLeases(client, { sendInitialState: true }, { signal: end.signal }))
      mirror.follow(one)
  })()
  onTestFinished(async () => {
    end.abort()
    await watch
  })
  await client.leases.confirm({ leaseId: kept[0]!.leaseId })
  const { leases: ghost } = await reserve(client, 'ghost')
  await waitFor(() => mirror.ofOwner({ kind: 'vm', name: 'ghost' }).length > 0)

  const setBack = (port?: number) => server.restart((directory) => copy(backup, directory), port)
  const last = createClient(await after({ service, start, setBack }))
  const table = async () => lines((await last.leases.listLeases({ pageSize: 1_000 })).leases)
  await waitFor(async () => JSON.stringify(lines(mirror.all())) === JSON.stringify(await table()), {
    what: 'the mirror to be the ledger’s own table',
  })
  const lost = mirror
    .all()
    .some(({ leaseId, owner }) => leaseId === ghost[0]!.leaseId && owner?.name === 'ghost')
  expect(lost).toBe(false)
  expect(mirror.ofOwner({ kind: 'vm', name: 'kept' })).toMatchObject([{ version: kept[0]!.version }])
})
