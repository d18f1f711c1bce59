/** What a command line says to the server: each option where it belongs in the request, and nothing dropped. */
import { execFile, execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { fileURLToPath } from 'node:url'
import { promisify, styleText } from 'node:util'
import { type DescMethod, fromBinary, fromJson, type JsonObject, toBinary, toJson } from '@bufbuild/protobuf'
import { afterAll, beforeAll, beforeEach, expect, test, vi } from 'vitest'
import { SERVICES } from '../../src/api/rpc-server.ts'
import { createProgram, runCli } from '../../src/cli/program.ts'
import { ReserveRequestSchema } from '../../src/gen/ipledger/v1/lease_pb.ts'
import { OwnerSchema } from '../../src/gen/ipledger/v1/types_pb.ts'
import { ROOT } from '../support/root.ts'

const methods = new Map<string, DescMethod>(
  SERVICES.flatMap(({ typeName, methods: all }) =>
    all.map((method) => [`/${typeName}/${method.name}`, method] as const),
  ),
)
/** Takes down what it is asked, and answers what is next in `answers`, or as if there were nothing. */
const server = createServer(async (request, response) => {
  const method = methods.get(request.url!)!
  const body = fromBinary(method.input, Buffer.concat(await request.toArray()))
  asked.push([method.name, toJson(method.input, body)])
  const answer = toBinary(method.output, fromJson(method.output, answers.shift() ?? {}))
  response.writeHead(200, { 'content-type': 'application/proto' }).end(answer)
})
let answers: JsonObject[] = []
let asked: [string, unknown][] = []
let printed = ''

beforeAll(async () => {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  vi.stubEnv('IPLEDGER_URL', `http://127.0.0.1:${(server.address() as AddressInfo).port}`)
})
afterAll(() => {
  server.closeAllConnections()
  server.close()
})
beforeEach(() => {
  asked = []
  answers = []
  printed = ''
  const keep = (text: unknown) => {
    printed += `${text}\n`
    return true
  }
  vi.spyOn(console, 'log').mockImplementation(keep)
  vi.spyOn(console, 'error').mockImplementation(keep)
  vi.spyOn(process.stderr, 'write').mockImplementation(keep)
  vi.spyOn(process.stdout, 'write').mockImplementation(keep)
})

const words = (line: string) =>
  [...line.matchAll(/'([^']*)'|(\S+)/g)].map(([, quoted, bare]) => quoted ?? bare!)

const SAID: readonly (readonly [line: string, method: string, request: object])[] = [
  [
    'network create n --description d --label a=b=c',
    'CreateNetwork',
    { name: 'n', description: 'd', labels: { a: 'b=c' } },
  ],
  [
    'network list --label a=b --page-size 5 --page-token t',
    'ListNetworks',
    { labels: { a: 'b' }, pageSize: 5, pageToken: 't' },
  ],
  ['network get', 'GetNetwork', {}],
  ['network show n', 'GetNetwork', { name: 'n' }],
  [
    "network update n --description '' --no-labels --version 7",
    'UpdateNetwork',
    { name: 'n', description: '', version: '7', updateMask: 'description,labels' },
  ],
  ['network update n --closed', 'UpdateNetwork', { name: 'n', closed: true }],
  ['network update n --no-closed', 'UpdateNetwork', { name: 'n', closed: false }],
  ['network update n --label a=b --label c=d', 'UpdateNetwork', { name: 'n', labels: { a: 'b', c: 'd' } }],
  [
    'network resume n --cause too-many-reaps --why w',
    'ResumeHold',
    { network: 'n', cause: 'TOO_MANY_REAPS', why: 'w' },
  ],
  ['recover n --why w --above n/7', 'BeginRecovery', { network: 'n', why: 'w', above: '7' }],
  ['recover n --end --why w', 'EndRecovery', { network: 'n', why: 'w' }],
  [
    'pool create p --network n --cidr 10.0.0.0/24 --prefix-length 28 --subnet 10.0.0.0/16 --gateway 10.0.0.1 ' +
      '--exclude 10.0.0.2-10.0.0.9,10.0.0.20 --exclude 10.0.0.30 --cooldown 1h30m --confirm-within 30s --liveness strict ' +
      '--owner-limit 7 --default --draining --route 0.0.0.0/0=10.0.0.1 --route 10.9.0.0/16 --dns 1.1.1.1,9.9.9.9 --mtu 9000 ' +
      '--label a=b --misses 4 --minimum-age 10m --unwitnessed-age 2h --terminal-grace 30s --confirm-grace 90s --request-id r',
    'CreatePool',
    {
      network: 'n',
      name: 'p',
      cidr: '10.0.0.0/24',
      prefixLength: 28,
      subnet: '10.0.0.0/16',
      gateway: '10.0.0.1',
      exclude: ['10.0.0.2-10.0.0.9', '10.0.0.20', '10.0.0.30'],
      cooldown: '5400s',
      confirmWithin: '30s',
      liveness: 'STRICT',
      ownerLimit: 7,
      default: true,
      draining: true,
      options: {
        routes: [{ destination: '0.0.0.0/0', gateway: '10.0.0.1' }, { destination: '10.9.0.0/16' }],
        dns: ['1.1.1.1', '9.9.9.9'],
        mtu: 9000,
      },
      labels: { a: 'b' },
      requestId: 'r',
      reapPolicy: {
        ...{
          misses: 4,
          minimumAge: '600s',
          unwitnessedAge: '7200s',
          terminalGrace: '30s',
          confirmGrace: '90s',
        },
      },
    },
  ],
  ['pool list --cidr 10.0.0.0/8', 'ListPools', { cidr: '10.0.0.0/8' }],
  ['pool get p', 'GetPool', { name: 'p' }],
  [
    'pool update p --new-name q --no-gateway --no-exclude --no-confirm-within --no-default --no-draining --no-options --no-labels',
    'UpdatePool',
    {
      ...{
        name: 'p',
        newName: 'q',
        gateway: '',
        confirmWithin: '0s',
        updateMask: 'newName,gateway,exclude,confirmWithin,isDefault,draining,options,labels',
      },
      default: false,
      draining: false,
      options: {},
    },
  ],
  [
    'pool update p --exclude 10.0.0.9 --label a=b --mtu 1',
    'UpdatePool',
    { name: 'p', exclude: ['10.0.0.9'], labels: { a: 'b' }, options: { mtu: 1 } },
  ],
  ['pool delete p --version 3', 'DeletePool', { name: 'p', version: '3' }],
  [
    'reserve --kind pod --name a/b --uid u --incarnation i --interface net1 --node n1 --label a=b --pool p --prefer q,r ' +
      '--prefer-previous --live 10.0.0.1,10.0.0.2 --confirm-within 30s --confirmed --dry-run',
    'Reserve',
    {
      owner: {
        kind: 'pod',
        name: 'a/b',
        uid: 'u',
        incarnation: 'i',
        interface: 'net1',
        node: 'n1',
        labels: { a: 'b' },
      },
      claims: [
        { pools: ['p'], preferPrevious: true },
        { pools: ['q', 'r'], preferPrevious: true },
      ],
      ...{
        liveAddresses: ['10.0.0.1', '10.0.0.2'],
        confirmWithin: '30s',
        confirmed: true,
        validateOnly: true,
      },
    },
  ],
  [
    'reserve --kind vm --name v --address 10.0.0.1,10.0.0.2',
    'Reserve',
    { owner: { kind: 'vm', name: 'v' }, claims: [{ address: '10.0.0.1' }, { address: '10.0.0.2' }] },
  ],
  [
    'reserve --kind vm --name v --pool p --address 10.0.0.1',
    'Reserve',
    { owner: { kind: 'vm', name: 'v' }, claims: [{ pools: ['p'], address: '10.0.0.1' }] },
  ],
  ['confirm default/42', 'Confirm', { leaseId: 'default/42' }],
  ['release default/42 --removal-unconfirmed', 'Release', { leaseId: 'default/42', removal: 'UNCONFIRMED' }],
  [
    'release --kind pod --uid u --incarnation i --interface eth0',
    'Release',
    { owner: { kind: 'pod', uid: 'u', incarnation: 'i', interface: 'eth0' } },
  ],
  ['quarantine 10.0.0.7 --network n --why w', 'Quarantine', { address: '10.0.0.7', network: 'n', why: 'w' }],
  ['quarantine default/42 --why w', 'Quarantine', { leaseId: 'default/42', why: 'w' }],
  ['reap default/42 --version 57 --why w', 'Reap', { leaseId: 'default/42', version: '57', why: 'w' }],
  [
    'lease list --state reserved,active --state quarantined --kind pod --name o --uid u --node n --label a=b --pool p,q --cidr 10.0.0.0/8 --quarantine-reason released-but-live',
    'ListLeases',
    {
      ...{
        states: ['RESERVED', 'ACTIVE', 'QUARANTINED'],
        ownerKind: 'pod',
        ownerName: 'o',
        ownerUid: 'u',
        node: 'n',
      },
      ...{
        labels: { a: 'b' },
        pools: ['p', 'q'],
        cidr: '10.0.0.0/8',
        quarantineReasons: ['RELEASED_BUT_LIVE'],
      },
    },
  ],
  ['lease get 10.0.0.7', 'GetLease', { address: '10.0.0.7' }],
  [
    'lease labels default/42 --label a=b --version 3',
    'UpdateLabels',
    { leaseId: 'default/42', labels: { a: 'b' }, version: '3' },
  ],
  ['lease labels default/42 --no-labels', 'UpdateLabels', { leaseId: 'default/42' }],
  ['request get r-1 --node n1', 'GetRequest', { requestId: 'r-1', node: 'n1' }],
  [
    'source register s --owner-kinds pod,vm --kind docker --node n --families 4,6 --interval 45s --settings \'{"network":"x"}\'',
    'RegisterSource',
    {
      id: 's',
      kind: 'DOCKER',
      sight: { ownerKinds: ['pod', 'vm'], node: 'n', families: [4, 6], interval: '45s' },
      settings: { network: 'x' },
    },
  ],
  ['source enable s', 'EnableSource', { id: 's' }],
  ['source enable s --accept-unlisted', 'EnableSource', { id: 's', acceptUnlisted: true }],
  ['source enable s --dry-run', 'EnableSource', { id: 's', validateOnly: true }],
  ['source retire s --request-id r', 'RetireSource', { id: 's', requestId: 'r' }],
  ['source list --node n --state enabled', 'ListSources', { node: 'n', states: ['ENABLED'] }],
  ['source show s', 'GetSource', { id: 's' }],
  [
    'sighting list --source s --address 10.0.0.7 --vanished',
    'ListSightings',
    { source: 's', address: '10.0.0.7', vanished: true },
  ],
  [
    'reconcile --dry-run --pool p --address 10.0.0.7 --source s --kept',
    'Reconcile',
    { pool: 'p', address: '10.0.0.7', source: 's', kept: true },
  ],
  ['attention --code HELD,SOURCE_SILENT', 'ListAttention', { codes: ['HELD', 'SOURCE_SILENT'] }],
  ['attention --source s --each', 'ListAttention', { source: 's', each: true }],
  [
    'events --from 5 --to 2026-11-20 --address 10.0.0.7 --kind pod --name o --lease-id default/42 --type lease.reaped --include-sources --descending',
    'ListEvents',
    {
      afterSeq: '4',
      to: '2026-11-20T00:00:00Z',
      address: '10.0.0.7',
      ownerKind: 'pod',
      ownerName: 'o',
      leaseId: 'default/42',
      types: ['lease.reaped'],
      includeSources: true,
      descending: true,
    },
  ],
  ['version', 'GetServer', {}],
  [
    'history 10.0.0.7 --from 5 --to 9',
    'GetAddressHistory',
    { address: '10.0.0.7', afterSeq: '4', beforeSeq: '10', descending: true },
  ],
  [
    'history 10.0.0.0/28 --page-size 5',
    'GetAddressHistory',
    { cidr: '10.0.0.0/28', pageSize: 5, descending: true },
  ],
  ['lease history default/42', 'GetLeaseHistory', { leaseId: 'default/42', descending: true }],
  ['explain 10.0.0.7 --at 12', 'ExplainAddress', { address: '10.0.0.7', seq: '12' }],
  ['as-of 2026-11-20T03:12:00Z --pool p', 'ListLeasesAsOf', { time: '2026-11-20T03:12:00Z', pool: 'p' }],
  ['map 10.0.0.0/24 --at 12', 'GetAddressMap', { cidr: '10.0.0.0/24', seq: '12' }],
  ['find web-', 'Find', { text: 'web-' }],
  ['pool trend', 'ListPoolTrends', {}],
  [
    'pool trend web --samples 5 --from 2026-11-20 --to 2026-11-21',
    'ListPoolTrends',
    { pool: 'web', samples: 5, from: '2026-11-20T00:00:00Z', to: '2026-11-21T00:00:00Z' },
  ],
  ['verify --server --network n', 'VerifyNetwork', { network: 'n' }],
]

test.each(SAID)('%s', async (line, method, request) => {
  await runCli(words(line))
  expect(asked).toEqual([[method, request]])
})

test('every command has help', () => {
  const all = [createProgram()]
  for (const command of all) {
    expect(command.helpInformation()).toContain('Usage: ')
    all.push(...command.commands)
  }
  expect(all.length).toBeGreaterThan(40)
})

test('every method has its command, but for those of programs', () => {
  const forPrograms = [
    'BatchReserve',
    'BatchConfirm',
    'BatchRelease',
    'BeginSnapshot',
    'ReportSnapshot',
    'ReportVerdicts',
    // Of commands with tests of their own: `watch`, `version`.
    'WatchLeases',
    'GetServer',
  ]
  expect(new Set([...SAID.map(([, method]) => method), ...forPrograms])).toEqual(
    new Set([...methods.values()].map(({ name }) => name)),
  )
})

test('every field of Reserve and of its owner has an option', () => {
  const [, , said] = SAID.find(([, method]) => method === 'Reserve')! as [string, string, { owner: object }]
  const given = ['network', 'requestId', ...Object.keys(said), ...Object.keys(said.owner)]
  const wanted = [ReserveRequestSchema, OwnerSchema].flatMap(({ fields }) => fields)
  expect(wanted.map(({ jsonName }) => jsonName).filter((name) => !given.includes(name))).toEqual([])
})

test.each([
  ['pool create x', "required option '--cidr <cidr>' not specified"],
  ['pool create x --cidr 10.0.0.0/24 --cooldown soon', 'A duration is a number with'],
  [
    'pool create x --cidr 10.0.0.0/24 --route a=b=c',
    'A route is written destination or destination=gateway.',
  ],
  ['reap default/1', "required option '--why <text>' not specified"],
  ['lease list --state lost', 'It must be one of RESERVED, ACTIVE, QUARANTINED, ENDED.'],
  ['lease list --state unspecified', 'It must be one of'],
  ['lease list --page-size -1', 'It must be a whole number.'],
  ['lease list --label x', 'A label is written key=value.'],
  ['lease labels default/1', 'Say which --label it shall have, or --no-labels.'],
  [
    'reserve --kind vm --name v --pool p --pool q --address 10.0.0.1',
    '--address goes with one --pool, or without any.',
  ],
  ['reserve --kind vm --name v --prefer-previous', '--prefer-previous needs --pool or --prefer.'],
  ['source register s --owner-kinds vm --settings []', 'It must be a JSON object.'],
  ['pool update p --add-exclude 10.0.0.9 --exclude 10.0.0.10', 'say all of it'],
  ['pool update p --add-exclude 10.0.0.9 --request-id r', 'need no --request-id'],
  ['reconcile', 'Say --dry-run to see what it would do.'],
  ['history', 'missing required argument'],
  ['as-of --josn', 'It must be a time'],
  ['explain 10.0.0.7 --at 2026-02-30', 'It must be a time'],
  // Without its zone it would be another time.
  ['explain 10.0.0.7 --at 2026-11-20T03:12:00+0100', 'It must be a time'],
  ['explain 10.0.0.7 --at 2026-11-20T03:12:00[Europe/Berlin]', 'It must be a time'],
  ['verify --server --against 3:00', 'It must be a number and 64 hexadecimal digits'],
  ['recover --end --why w', 'Say which network'],
  ['recover n --end --database --why w', '--end asks the server'],
  ['reap --why w', 'Name a lease, or --node.'],
  ['reap default/4 --why w', 'Say --version'],
  ['release default/4 --sort state', "unknown option '--sort'"],
  ['recover --why w --above 9', 'Say which network'],
  ['recover n --why w --above nine', 'It must be a lease id or a number.'],
  ['no-such-command', "unknown command 'no-such-command'"],
  ['pool list --no-such-option', "unknown option '--no-such-option'"],
])('%s is refused before anything is sent', async (line, said) => {
  expect(await runCli(words(line))).toBe(2)
  expect(asked).toEqual([])
  expect(printed).toContain(said)
  expect(printed).not.toMatch(/\bat .*\.ts:\d+/)
})

test('what the program is', async () => {
  expect(await runCli(['--version'])).toBe(0)
  expect(printed).toBe(`${JSON.parse(readFileSync(new URL('package.json', ROOT), 'utf8')).version}\n\n`)
})

test.each([
  ['qu', 'quarantine'],
  ['pool cr', 'create'],
  ['pool create web --ci', '--cidr'],
  ['completion ', 'bash zsh fish'],
  ['completion zsh ', ''],
  ['pool create web --liveness s', 'strict'],
  ['lease list --state active,q', 'active,quarantined'],
  ['lease list -o j', 'json'],
  ['pool get ', 'web work'],
  ['pool get web ', ''],
  ['reserve --name --pool wo', ''],
  ['reserve --pool web,wo', 'web,work'],
  ['source retire n', 'node-1'],
  ['recover d', 'default'],
  ['events --network ', 'default prod'],
])('completes %s', async (line, wanted) => {
  const asking = {
    networks: [{ name: 'default' }, { name: 'prod' }],
    pools: [{ name: 'web' }, { name: 'work' }],
  }
  const lists = {
    pool: 'pools',
    reserve: 'pools',
    source: 'sources',
    recover: 'networks',
    events: 'networks',
  }
  const list = lists[line.split(' ')[0] as keyof typeof lists]
  answers = [{ [list]: { ...asking, sources: [{ id: 'node-1' }] }[list] ?? [] }]
  expect(await runCli(['__complete', '--', ...line.split(' ')])).toBe(0)
  expect(printed.trim().split('\n').join(' ')).toBe(wanted)
})

test('bash, zsh and fish ask with the words so far', async () => {
  for (const shell of ['bash', 'zsh', 'fish']) expect(await runCli(['completion', shell])).toBe(0)
  printed = ''
  await runCli(['completion', 'bash'])
  const asked = execFileSync('bash', [
    '-c',
    `${printed}
     ipledger() { printf '%s|' "$@" >&3; printf 'one\\ntwo\\n'; }
     COMP_WORDS=(ipledger pool get '') COMP_CWORD=3
     _ipledger 3>&1; echo; echo "\${COMPREPLY[*]}"`,
  ])
  expect(asked.toString()).toBe('__complete|--|pool|get||\none two\n')
})

test('a page that came out short is filled from the next ones', async () => {
  const lease = (leaseId: string) => ({ leaseId, address: '10.0.0.1' })
  answers = [
    { nextPageToken: 'a' },
    { leases: [lease('n/1')], nextPageToken: 'b' },
    { leases: [lease('n/2'), lease('n/3')], nextPageToken: 'c' },
    { leases: [lease('n/4')] },
  ]
  expect(await runCli(words('lease list --kind vm --page-size 3'))).toBe(0)
  const pages = [{}, { pageToken: 'a' }, { pageToken: 'b', pageSize: 2 }]
  expect(asked).toEqual(pages.map((page) => ['ListLeases', { ownerKind: 'vm', pageSize: 3, ...page }]))
  expect(printed).toMatch(/n\/1(.|\n)*n\/2(.|\n)*n\/3(.|\n)*There is more: .*--page-token c /)
})

test('an exclusion more or less is written to the version that was read', async () => {
  for (const [option, changed] of [
    ['--add-exclude 10.8.1.32', { exclude: ['10.8.1.9', '10.8.1.32'] }],
    ['--remove-exclude 10.8.1.9', { updateMask: 'exclude' }],
  ] as const) {
    asked = []
    answers = [{ pool: { name: 'two', exclude: ['10.8.1.9'], version: '7' } }]
    expect(await runCli(words(`pool update two ${option}`))).toBe(0)
    expect(asked).toEqual([
      ['GetPool', { name: 'two' }],
      ['UpdatePool', { name: 'two', version: '7', ...changed }],
    ])
  }
})

test('a list is sorted by what it shows, with or without titles, and with the age of each', async () => {
  const made = (name: string, size: string, minutes: number) => ({
    ...{ name, cidr: '10.0.0.0/24', usage: { size, free: size, cooling: '0' } },
    createdAt: new Date(Date.now() - minutes * 60_000 - 100).toISOString(),
  })
  const pools = [
    made('b', String(2n ** 64n - 3n), 5),
    made('c', '9', 3_000),
    made('a', '256', 60),
    made('d', String(2n ** 80n), 0),
  ]
  for (const [line, wanted] of [
    ['--sort pool', ['a', 'b', 'c', 'd']],
    ['--sort -size', ['d', 'b', 'a', 'c']],
    ['--sort FREE', ['c', 'a', 'b', 'd']],
    ['--sort age', ['d', 'b', 'a', 'c']],
    ['--sort name -o wide', ['a', 'b', 'c', 'd']],
    ['', ['b', 'c', 'a', 'd']],
  ] as const) {
    printed = ''
    answers = [{ pools }]
    expect(await runCli(words(`pool list --no-headers ${line}`))).toBe(0)
    expect(
      printed
        .trim()
        .split('\n')
        .map((row) => /(?:^|default {2})([a-d]) /.exec(row)?.[1] ?? row),
    ).toEqual(wanted)
  }
  expect(printed).toMatch(/^b .* 2\^64-3 .* 5m/m)
  expect(printed).toMatch(/^c .* 9 .* 2d/m)
  expect(printed).toMatch(/^d .* 2\^80 .* 0s/m)
  answers = [{ pools }]
  expect(await runCli(words('pool list --sort colour'))).toBe(2)
  expect(printed).toContain('There is no column COLOUR to sort by: name one of POOL, CIDR,')
})

test('what changes something says where, if it is not the default; what only looks does not', async () => {
  const said = async (line: string) => {
    printed = ''
    await runCli(words(line))
    return /^ipledger .*: http:\/\/127.*$/m.exec(printed)?.[0]
  }
  const here = process.env.IPLEDGER_URL!
  expect(await said('release default/4')).toBe(`ipledger release: ${here}, network default`)
  expect(await said('pool delete p --network n')).toBe(`ipledger pool delete: ${here}, network n`)
  expect(await said('network update n --description d')).toBe(`ipledger network update: ${here}, network n`)
  expect(await said('release default/4 -o json')).toBeUndefined()
  expect(await said('lease list')).toBeUndefined()
  vi.stubEnv('IPLEDGER_NETWORK', 'prod')
  expect(await said('pool delete p')).toBe(`ipledger pool delete: ${here}, network prod`)
  expect(asked.at(-1)).toEqual(['DeletePool', { name: 'p', network: 'prod' }])
  expect(await said('network resume n --why w')).toBe(`ipledger network resume: ${here}, network n`)
  expect(asked.at(-1)).toEqual(['ResumeHold', { network: 'n', why: 'w' }])
  expect(await said('network resume --why w')).toBe(`ipledger network resume: ${here}, network prod`)
  expect(await said('release other/4')).toBe(`ipledger release: ${here}, network other`)
  expect(asked.at(-1)).toEqual(['Release', { leaseId: 'other/4' }])
  await said('network get')
  expect(asked.at(-1)).toEqual(['GetNetwork', { name: 'prod' }])
  await said('lease get other/4')
  expect(asked.at(-1)).toEqual(['GetLease', { leaseId: 'other/4' }])
  vi.stubEnv('IPLEDGER_NETWORK', undefined)
  vi.stubEnv('IPLEDGER_PORT', new URL(here).port)
  vi.stubEnv('IPLEDGER_URL', undefined)
  expect(await said('release default/4')).toBeUndefined()
  expect(await said('pool delete p --network n')).toBe(`ipledger pool delete: ${here}, network n`)
  expect(await said('network resume --why w')).toBe(`ipledger network resume: ${here}, network default`)
  answers = [{}]
  expect(await said('reap --node n1 --head 5 --yes --why w')).toBe(
    `ipledger reap: ${here}, network default, node n1`,
  )
  expect(await said(`release default/4 --url ${here}`)).toBe(`ipledger release: ${here}, network default`)
  vi.stubEnv('IPLEDGER_URL', here)
})

test('usage lines name what is required', () => {
  const usage = (...path: readonly string[]) =>
    path
      .reduce((at, name) => at.commands.find((one) => one.name() === name)!, createProgram())
      .helpInformation()
  expect(usage('pool', 'create')).toMatch(/^Usage: ipledger pool create <name> --cidr <cidr> \[options\]\n/)
  expect(usage('quarantine')).toMatch(
    /^Usage: ipledger quarantine <lease-id\|address> --why <text> \[options\]\n/,
  )
  expect(usage('lease', 'list')).toMatch(/^Usage: ipledger lease list \[options\]\n/)
})

test('a terminal gets colours, unless NO_COLOR is set; a pipe gets none', async () => {
  const styled = (colour: 'green' | 'red', text: string) => styleText(colour, text, { validateStream: false })
  const main = fileURLToPath(new URL('src/main.ts', ROOT))
  const listed = async (terminal: boolean, more: Readonly<Record<string, string>> = {}) => {
    answers = [{ sources: [{ id: 'agent', state: 'ENABLED', status: 'SILENT' }] }]
    const line = `${process.execPath} ${main} source list`
    const [file, ...args] = terminal ? ['script', '-qec', line, '/dev/null'] : line.split(' ')
    // Node.js takes CI for a terminal without colours.
    const { CI, FORCE_COLOR, NO_COLOR, ...env } = process.env
    return (await promisify(execFile)(file!, args, { env: { ...env, TERM: 'xterm-256color', ...more } }))
      .stdout
  }
  expect(await listed(true)).toContain(`${styled('green', 'ENABLED')} `)
  expect(await listed(true)).toContain(`${styled('red', 'SILENT')}\r\n`)
  expect(await listed(true, { NO_COLOR: '1' })).toMatch(/ENABLED +.* SILENT\r\n$/)
  expect(await listed(false)).toMatch(/ENABLED +.* SILENT\n$/)
})

test('without a server the sentence says so', async () => {
  vi.stubEnv('IPLEDGER_URL', 'http://127.0.0.1:1')
  expect(await runCli(['lease', 'list'])).toBe(3)
  expect(printed).toBe(
    'ipledger: nothing listens at http://127.0.0.1:1. Start it with "ipledger serve", or set IPLEDGER_URL.\n',
  )
})
