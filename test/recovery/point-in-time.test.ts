/**
 * "Base backups and a point in time" of docs/operating.md, pasted line by line: with Debian's PostgreSQL, at a cluster of the test's
 * own. Between the blocks leases are made, before and after the moment that is restored. No address is given twice.
 */
import { execFileSync } from 'node:child_process'
import { chownSync, mkdirSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { MAIN, serve, stop } from '../e2e/commands.ts'
import { createAgent } from '../support/agent.ts'
import { withClient } from '../support/database.ts'
import { textOf } from '../support/docs.ts'
import { freePort } from '../support/free-port.ts'
import { createReality } from '../support/reality.ts'
import { type Rpc, rpc } from '../support/rpc.ts'
import { openShell } from '../support/shell.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'
import { expectVerified } from '../support/verified.ts'
import { waitFor } from '../support/wait-for.ts'

const BIN = `/usr/lib/postgresql/${process.env.IPLEDGER_TEST_POSTGRES}/bin`
const AS_POSTGRES = 'setpriv --reuid=postgres --regid=postgres --clear-groups'

/** Its blocks, each as the commands that somebody types. */
function blocksOf(title: string): readonly (readonly string[])[] {
  const page = textOf('docs/operating.md')
  const from = page.indexOf(`\n## ${title}\n`)
  expect(from, title).toBeGreaterThan(0)
  const section = page.slice(from, page.indexOf('\n## ', from + 1))
  return [...section.matchAll(/^```sh\n(.*?)^```$/gms)].map(([, body]) => body!.trimEnd().split(/(?<!\\)\n/))
}

/** Debian's cluster `main`, in a directory of the test's own, and the programs that a page names as they are for it. */
async function cluster() {
  const directory = temporaryDirectory()
  const [main, path] = [join(directory, '15', 'main'), join(directory, 'path')]
  mkdirSync(join(directory, '15'))
  mkdirSync(path)
  const postgres = Number(execFileSync('id', ['-u', 'postgres'], { encoding: 'utf8' }))
  const { gid } = statSync(directory)
  chownSync(join(directory, '15'), postgres, gid)
  const password = join(directory, 'password')
  writeFileSync(password, 'secret')
  const port = await freePort()
  const run = (command: string) => execFileSync('/bin/sh', ['-c', command], { cwd: '/', stdio: 'pipe' })
  run(
    `${AS_POSTGRES} ${BIN}/initdb --pgdata=${main} --username=postgres --pwfile=${password} --auth=scram-sha-256 --encoding=UTF8`,
  )
  const programs = {
    sudo: `[ "$1" = -u ] && { shift 2; exec ${AS_POSTGRES} "$@"; }; exec "$@"`,
    systemctl: `[ "$2" = postgresql@15-main ] || exit 1
exec ${AS_POSTGRES} ${BIN}/pg_ctl "$1" -w -D ${main} -l ${join(directory, '15', 'log')} -m fast \\
  -o "-p ${port} -c listen_addresses=127.0.0.1 -c unix_socket_directories=''" </dev/null >/dev/null 3<&-`,
    ipledger: `exec ${process.execPath} ${MAIN} "$@"`,
  }
  for (const [name, body] of Object.entries(programs))
    writeFileSync(join(path, name), `#!/bin/sh\n${body}\n`, { mode: 0o755 })
  run(`${path}/systemctl start postgresql@15-main`)
  onTestFinished(() => void run(`${path}/systemctl stop postgresql@15-main`))
  return {
    directory,
    url: (database: string) => `postgresql://postgres:secret@127.0.0.1:${port}/${database}`,
    path: `${path}:${BIN}:${process.env.PATH}`,
  }
}

const owner = (name: string) => ({ kind: 'container', name, uid: name, incarnation: '1', interface: 'eth0' })
const asked = (name: string) => ({ owner: owner(name), claims: [{ pools: ['web'] }], confirmed: true })
type Lease = { readonly address: string; readonly fencingToken: string; readonly owner: { name: string } }
const reserve = async (call: Rpc, name: string): Promise<Lease> =>
  (await call.ok('LeaseService/Reserve', asked(name))).leases[0]

test.runIf(process.getuid?.() === 0)('a base backup, restored to a moment', async () => {
  const { directory, url, path } = await cluster()
  await withClient(url('postgres'), (admin) => admin.query('create database ledger'))
  const env = { DATABASE_URL: url('ledger') }
  await using shell = openShell(directory, { ...env, PATH: path, HOME: directory })
  let moment = ''
  const paste = async (lines: readonly string[]) => {
    for (const line of lines) {
      const typed = line
        .replaceAll('/var/lib/postgresql/15', join(directory, '15'))
        .replaceAll('/var/backups/ipledger', join(directory, 'backups'))
        .replace('2026-11-24 03:10:00+00', moment)
      const { printed, code } = await shell.run(typed)
      expect({ code, printed }, line).toMatchObject({ code: 0 })
    }
  }
  const [archive, backUp, restore, end, ...more] = blocksOf('Base backups and a point in time')
  expect(more).toEqual([])
  await paste(archive!)

  let service = await serve(env)
  let call = rpc(service.url)
  await call.ok('PoolService/CreatePool', { name: 'web', cidr: '10.0.0.0/24' })
  const of = { call, network: 'default', reality: createReality() }
  const agent = await createAgent(of, 'n1', { ownerKinds: ['container'] })
  const before = await reserve(call, 'before')
  await paste(backUp!)
  const between = await reserve(call, 'between')
  moment = await withClient(url('ledger'), async (admin) => {
    const { rows } = await admin.query<{ at: string }>('select clock_timestamp()::text as at')
    return rows[0]!.at
  })
  const after = await reserve(call, 'after')
  await stop(service)
  await paste(restore!)

  service = await serve(env)
  call = rpc(service.url)
  await shell.run(`export IPLEDGER_URL=${service.url}`)
  expect((await call('LeaseService/Reserve', asked('early'))).reason).toBe('NETWORK_RECOVERING')
  const { leases } = await call.ok('LeaseService/ListLeases', {})
  expect(leases.map((lease: Lease) => lease.address)).toEqual([before.address, between.address])
  agent.speaksTo(call)
  const listed = (...some: readonly Lease[]) =>
    some.map((lease) => ({ ...owner(lease.owner.name), address: lease.address }))
  // What a source lists for the first time once it is warm counts at once.
  for (const some of [
    [before, between],
    [before, between],
    [before, between, after],
  ])
    await agent.report({ entries: listed(...some) })
  const adopted = await waitFor(
    async () =>
      (await call.ok('LeaseService/ListLeases', {})).leases.find(
        (lease: Lease) => lease.address === after.address,
      ),
    { what: 'the lease that the restore lost' },
  )
  expect(adopted).toMatchObject({ state: 'ACTIVE', owner: { name: 'after' } })
  expect((await call('LeaseService/Reserve', asked('early'))).reason).toBe('NETWORK_RECOVERING')
  await paste(end!)

  const later = await reserve(call, 'later')
  expect(new Set([before, between, after, later].map(({ address }) => address)).size).toBe(4)
  expect(Number(later.fencingToken)).toBeGreaterThan(Number(after.fencingToken))
  await stop(service)
  await expectVerified({ adminUrl: url('ledger') })
})
