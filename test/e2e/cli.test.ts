/** The command line on a service: what is printed, what is refused, what becomes of it. */
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { parse } from 'yaml'
import { Reads } from '../../src/ledger/reads.ts'
import { createPool } from '../../src/postgres/connect.ts'
import { serverOn, urls } from '../api/running.ts'
import { useIncidents } from '../support/incident.ts'
import { useService } from '../support/service.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'
import { type Finished, ipledger, ipledgerJson, words } from './commands.ts'

type Lease = {
  readonly leaseId: string
  readonly address: string
  readonly state: string
  readonly version: string
  readonly owner?: { readonly labels?: Record<string, string> }
}
type Leases = { readonly leases: readonly Lease[] }

const service = await useService()
const incident = useIncidents(service)
const json = <T = Leases>(line: string): Promise<T> => ipledgerJson<T>(service, words(line))
const run = (line: string): Promise<Finished> => ipledger(service, words(line))

await json('pool create web --cidr 10.0.0.0/24 --gateway 10.0.0.1 --cooldown 0s')

async function reserved(name: string, more = ''): Promise<Lease> {
  return (await json(`reserve --kind pod --name ${name} --pool web ${more}`)).leases[0]!
}

test('a pool as people read it', async () => {
  await json('pool create shown --cidr 10.9.1.0/24 --gateway 10.9.1.1 --confirm-within 30s --draining')
  const { stdout } = await run('pool get shown')
  expect(stdout).toMatch(/^network +default\nname +shown\n/)
  expect(stdout).toMatch(/\nmisses +3\nminimum age +5m\nunwitnessed age +1h\n/)
  expect(stdout).toMatch(/\nusage +256 = 253 free \+ 0 cooling \+ 0 reserved/)
  expect((await run('pool list --cidr 10.9.0.0/16')).stdout).toMatch(
    /^POOL +CIDR .* DRAINING\nshown +10\.9\.1\.0\/24 +\/32 +256 +253 .* AVAILABLE +\d+s +yes\n$/,
  )
  await json('pool delete shown')
  expect((await run('pool get shown')).stderr).toMatch(/^ipledger: POOL_NOT_FOUND: /)
})

test('an exclusion more or less leaves the others as they are', async () => {
  type One = { readonly pool: { readonly exclude: readonly string[]; readonly version: string } }
  const get = async () => (await json<One>('pool get some')).pool
  const { pool: made } = await json<One>(
    'pool create some --cidr 10.8.0.0/24 --exclude 10.8.0.1-10.8.0.9,10.8.0.200',
  )
  expect(await run('pool update some --add-exclude 10.8.0.10-10.8.0.15,10.8.0.128/25')).toMatchObject({
    code: 0,
  })
  const all = ['10.8.0.1-10.8.0.9', '10.8.0.200', '10.8.0.10-10.8.0.15', '10.8.0.128-10.8.0.255']
  expect((await get()).exclude).toEqual(all)
  expect((await json('reserve --kind pod --name first --pool some')).leases[0]!.address).toBe('10.8.0.16')
  expect(await run('pool update some --remove-exclude 10.8.0.200 --add-exclude 10.8.0.128/25')).toMatchObject(
    {
      code: 0,
    },
  )
  const { exclude, version } = await get()
  expect(exclude).toEqual(all.toSpliced(1, 1))
  for (const [line, said, code] of [
    ['--remove-exclude 10.8.0.50', /^ipledger: 10\.8\.0\.50 is not among the exclusions of pool some, /, 2],
    ['--add-exclude 10.8.0.16', /^ipledger: POOL_IN_USE: .*10\.8\.0\.16 RESERVED default\/\d+/, 1],
    ['--add-exclude 10.8.0.300', /^ipledger: "10\.8\.0\.300" .+\.\n$/, 2],
    [`--add-exclude 10.8.0.50 --version ${made.version}`, /^ipledger: VERSION_MISMATCH: /, 1],
  ] as const)
    expect(await run(`pool update some ${line}`)).toMatchObject({
      code,
      stderr: expect.stringMatching(said),
    })
  expect(await get()).toMatchObject({ exclude, version })
})

test('a free address and a mistyped lease are told as what they are', async () => {
  expect(await run('lease get 10.0.0.200')).toEqual({
    code: 1,
    stdout: '',
    stderr:
      'ipledger: LEASE_NOT_FOUND: no lease holds 10.0.0.200 in network default\n' +
      '  "ipledger explain 10.0.0.200" says who had it, and how that ended.\n',
  })
  const typed = await run('release default/99999')
  expect(typed.stderr).toMatch(
    /^ipledger: LEASE_NOT_FOUND: lease default\/99999 is beyond the log's head .*\n(?: .*\n)* {2}Check what you typed\. If ipledger did give out /,
  )
  expect(typed.stderr).not.toContain('Read it again')
})

test('networks: changed, listed, held and resumed', async () => {
  await json('network create vpc-1 --description first --label a=b')
  await json('network update vpc-1 --description second --no-labels')
  const { network } = await json<{ network: Record<string, unknown> }>('network get vpc-1')
  expect(network).toMatchObject({ name: 'vpc-1', description: 'second', labels: {}, state: 'READY' })
  const stale = await run('network update vpc-1 --version 1 --description third')
  expect(stale).toMatchObject({ code: 1, stderr: expect.stringMatching(/^ipledger: VERSION_MISMATCH: /m) })
  const envelope = { network: 'vpc-1', actor: { name: 'test', node: null }, cause: 'test', requestId: null }
  await service.ledger.submit({
    ...envelope,
    type: 'hold',
    hold: 'TOO_MANY_REAPS',
    why: 'four of five',
    fingerprint: null,
    traceId: null,
  })
  const shown = await run('network show vpc-1')
  expect(shown.stdout).toMatch(/\nheld +TOO_MANY_REAPS since \S+Z: four of five\n/)
  expect(shown.stdout).toMatch(/\nanchor +3:[0-9a-f]{64}\n/)
  expect((await run('network list')).stdout).toMatch(
    /^NETWORK +STATE +HELD .*\ndefault +READY [\s\S]*\nvpc-1 +READY +TOO_MANY_REAPS /,
  )
  expect((await run('network resume vpc-1 --cause clock --why "not that"')).stdout).toContain('four of five')
  expect((await run('network resume vpc-1 --why "drained"')).stdout).toBe('no holds\n')
  expect((await run('recover vpc-1 --end --why "nothing runs there"')).stdout).toMatch(/^name +vpc-1\n/)
})

test('quarantine and reap say why; a reap names the version that was looked at', async () => {
  const { lease } = await json<{ lease: Lease }>('quarantine 10.0.0.77 --why "answers ping"')
  expect(lease).toMatchObject({
    state: 'QUARANTINED',
    quarantine: { reason: 'OPERATOR', why: 'answers ping' },
  })
  const reap = (version: string) =>
    run(`reap ${lease.leaseId} --version ${version} --why "it was a printer" -o json`)
  const stale = await reap('1')
  expect(stale).toMatchObject({ code: 1, stdout: '' })
  expect(JSON.parse(stale.stderr)).toMatchObject({
    code: 'aborted',
    reason: 'VERSION_MISMATCH',
    metadata: { version: lease.version },
  })
  const looking = await run(`reap ${lease.leaseId} --why w --dry-run`)
  expect(looking).toMatchObject({ code: 0, stdout: expect.stringMatching(/state +ENDED/) })
  expect(await run(`reap ${lease.leaseId} --why w`)).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('Say --version'),
  })
  expect(await reap(lease.version)).toMatchObject({ code: 0 })
  expect((await run('events --type lease.reaped')).stdout).toMatch(/ it was a printer\n$/)

  expect((await run('pool list -o name')).stdout.split('\n')).toContain('web')
  await reserved('lost', '--node gone-1')
  const { network } = await json<{ network: { head: string } }>('network get')
  const late = await reserved('later', '--node gone-1')
  const looked = await run(`reap --node gone-1 --dry-run --head ${network.head} --why "power is off"`)
  expect(looked).toMatchObject({ code: 0, stdout: expect.stringMatching(/ lost\n/) })
  expect(looked.stdout).not.toContain('later')
  const unsure = await run(`reap --node gone-1 --head ${network.head} --why "power is off"`)
  expect(unsure).toMatchObject({ code: 2, stdout: '', stderr: expect.stringContaining('say --yes') })
  expect((await json('lease list --node gone-1')).leases).toHaveLength(2)
  const gone = await run(`reap --node gone-1 --yes --head ${network.head} --why "power is off" -o json`)
  expect(gone.stderr).toContain('If gone-1 was renamed, its new source must list')
  const { leases } = JSON.parse(gone.stdout)
  expect(leases).toMatchObject([{ owner: { name: 'lost' }, state: 'ENDED' }])
  expect((await json('lease list --node gone-1')).leases).toMatchObject([{ leaseId: late.leaseId }])
})

incident('cli sources, sightings, findings and attention, as people read them', [], async (scene) => {
  const at = (line: string) => run(`${line} --network ${scene.network}`)
  await scene.pool('10.8.0.0/24')
  const registered = await at(
    'source register agent-n1 --node n1 --owner-kinds pod,vm --families 4 --interval 45s',
  )
  expect(registered.stdout).toMatch(
    /^network +\S+\nid +agent-n1\nkind +PUSH\nnode +n1\nowner kinds +pod, vm\nfamilies +4\ninterval +45s\n/,
  )
  expect(registered.stdout).toMatch(/\nstate +REGISTERED\n[\s\S]*\nstatus +COLD\n/)
  const agent = await scene.agent('n2')
  expect((await at('source list --state enabled')).stdout).toMatch(
    /^SOURCE +KIND +NODE +SEES +STATE +SIZE +AGE +REPORTED +STATUS\nn2 +PUSH +n2 +sandbox +ENABLED +0 +\d+s +\S+Z +GOOD\n$/,
  )
  const { workload, lease } = await scene.start({ name: 'a', node: 'n2' })
  await agent.report()
  expect((await at('sighting list')).stdout).toMatch(
    new RegExp(`^ADDRESS +SOURCE +OWNER .*\n${lease.address} +n2 +sandbox a .* n2 `),
  )
  expect((await at('reconcile --dry-run')).stdout).toBe('nothing to be done\n')
  scene.reality.end(workload)
  await scene.longEnough()
  expect((await at('events --type lease.reaped')).stdout).toMatch(/ job:judge +PROVEN_ABSENT /)
  const judged = await at('audit rejudge')
  expect(judged).toMatchObject({ code: 0 })
  expect(judged.stdout).toMatch(
    /\njudged again +1\nby the policy then +all the same\nby today's policy +all the same\n$/,
  )
  for (const [misses, said] of [
    [8, /\nby today's policy +1 would not have been done\n\nPOLICY +SEQ .*\ntoday +\d+ .* keep +/],
    [3, /\nby today's policy +all the same\n$/],
  ] as const) {
    expect(await at(`pool update ${lease.pool} --misses ${misses}`)).toMatchObject({ code: 0 })
    expect((await at('audit rejudge')).stdout).toMatch(said)
  }
  expect((await at('attention')).stdout).toBe('nothing waits\n')

  const kept = await scene.start({ name: 'b', node: 'n2' })
  const other = await scene.start({ name: 'c', node: 'n2' })
  await agent.report()
  await scene.agent('n3')
  const retired = await at('source retire n2')
  expect(retired.stdout).toMatch(/\nstate +RETIRED\n/)
  expect(retired.stdout).toMatch(/\n\n2 leases lost their last witness: .* reaped by an operator\.\n$/)
  expect((await at('attention --code NO_WITNESS')).stdout).toMatch(
    /^SEVERITY +CODE +COUNT +SINCE .*\nticket +NO_WITNESS +2 .*\n\nEach of them: ipledger attention --code NO_WITNESS --each\n$/,
  )
  const [, ...each] = (await at('attention --code NO_WITNESS --each')).stdout.trim().split('\n')
  for (const [index, { lease: one }] of [kept, other].entries())
    expect(each[index]).toMatch(new RegExp(` ${one.leaseId} +${one.address} +No source watches this lease`))
})

test('a request id gives the same answer again, and can be asked for', async () => {
  const first = await reserved('once', '--request-id r-1')
  expect(await reserved('once', '--request-id r-1')).toEqual(first)
  expect((await run('request get r-1')).stdout).toMatch(
    new RegExp(
      `^request +r-1\nmethod +Reserve\ncommitted +\\S+Z\nevent +\\d+\n\nLEASE .*\n${first.leaseId} `,
    ),
  )
  expect(await run('request get r-0')).toEqual({
    code: 1,
    stdout: 'request r-0 was not committed in the last 24 h\n',
    stderr: '',
  })
  expect(await run('request get r-0 -o json')).toMatchObject({
    code: 1,
    stdout: expect.stringContaining('"committed": false'),
  })
})

test('a server without its database is not reached', async () => {
  const gone = createPool({ url: 'postgresql://nobody@127.0.0.1:1/none', applicationName: 'test', max: 1 })
  const server = await serverOn({ ...service, reads: new Reads(gone), deadlineMs: 300 })
  onTestFinished(async () => {
    await server.close()
    await gone.end()
  })
  expect(await ipledger(urls(server), words('lease list'))).toMatchObject({
    code: 3,
    stderr: expect.stringMatching(/^ipledger: DATABASE_UNAVAILABLE: /),
  })
})

test('a directory or a file that is not there ends in a sentence', async () => {
  const path = join(temporaryDirectory(), 'none')
  for (const [line, env] of [
    [`host-local gc ${path}`, {}],
    ['lease list', { IPLEDGER_CA: path }],
  ] as const)
    expect(await ipledger(service, words(line), env)).toEqual({
      code: 1,
      stdout: '',
      stderr: expect.stringMatching(new RegExp(`^ipledger: ENOENT: .*'${path}'\n$`)),
    })
})

test('a refusal says reason, message, what is known, what to do and when', async () => {
  await json('pool create full --cidr 10.4.0.0/32 --cooldown 1h')
  const { leases } = await json('reserve --kind vm --name f --pool full')
  await json(`release ${leases[0]!.leaseId}`)
  const refused = await run('reserve --kind vm --name g --pool full')
  expect(refused).toMatchObject({ code: 1, stdout: '' })
  expect(refused.stderr).toMatch(/^ipledger: POOL_EXHAUSTED: .*\n/)
  expect(refused.stderr).toMatch(/\n {2}try again in (1h|59m\d+s)\n/)
  expect(refused.stderr).toMatch(/\n {2}Name another pool\. Wait that long: /)
})

test('a refused field is named as it was typed; for programs as the API has it', async () => {
  for (const [line, said] of [
    ['reserve --kind vm --name g --address 10.77.0.1', '--address: 10.77.0.1 is not in'],
    ['reserve --kind Vm! --name g --pool web', '--kind: '],
    ['reserve --kind vm --name g --pool web --live 10.0.0.300', '--live: '],
    ['pool create odd --cidr 10.66.0.0/16 --exclude 10.1.0.1', '--exclude: '],
    ['pool update web --cooldown 90d', '--cooldown: '],
    ['source register s --owner-kinds pod --interval 1ms', '--interval: '],
  ] as const) {
    const { code, stderr } = await run(line)
    expect({ code, stderr }).toEqual({
      code: 1,
      stderr: expect.stringMatching(`^ipledger: INVALID_FIELD: ${said}`),
    })
    const { stderr: json } = await run(`${line} -o json`)
    expect(JSON.parse(json)).toMatchObject({
      reason: 'INVALID_FIELD',
      metadata: { field: expect.not.stringMatching('^--') },
    })
    const { stderr: yaml } = await run(`${line} -o yaml`)
    expect(parse(yaml)).toEqual(JSON.parse(json))
  }
  expect((await run('reserve --kind vm --name h --pool web,web')).stderr).toMatch(
    /: --pool: two claims may not share/,
  )
})

test('version: both ends, the schema, the database, and who one is', async () => {
  expect((await run('version')).stdout).toMatch(
    /^command line +\d\S+\nserver +\d\S+\nschema +0001_ipledger\nserver time +\S+Z\ndatabase +PostgreSQL at \S+, database \S+ \(1\d\.\S+\)\nyou +\S+, admin\n$/,
  )
})

test('every command has help with what it does', async () => {
  const { stdout, code } = await run('--help')
  expect(code).toBe(0)
  expect(stdout).toContain('give a workload its addresses, all or nothing')
  expect((await run('reserve --help')).stdout).toContain('Examples:')
  expect((await run('attention --help')).stdout).toMatch(
    /\nOPERATOR_ONLY +ticket +Only an operator ends this quarantine/,
  )
})
