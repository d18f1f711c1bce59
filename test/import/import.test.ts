/** Leases of other allocators, from files as those write them. */
import { execFileSync } from 'node:child_process'
import { mkdirSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, onTestFinished, test } from 'vitest'
import { createClient } from '../../src/client/client.ts'
import { exportLines, importRows } from '../../src/import/import.ts'
import { keaRows } from '../../src/import/kea.ts'
import {
  csvRows,
  hostLocalRows,
  type LeftOut,
  netboxRows,
  type Row,
  whereaboutsRows,
} from '../../src/import/rows.ts'
import { ipledger } from '../e2e/commands.ts'
import { useService } from '../support/service.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

const service = await useService()
const client = createClient({ url: service.url })
for (const [name, cidr] of [
  ['ten', '10.0.0.0/16'],
  ['six', 'fd00:5::/64'],
]) {
  await service.call.ok('PoolService/CreatePool', { name, cidr })
}

const fileOf = (text: string): string => {
  const path = join(temporaryDirectory(), 'file')
  writeFileSync(path, text)
  return path
}
const attachments = (rows: readonly (Row | LeftOut)[]) =>
  rows.flatMap((row) => {
    if (!('owner' in row)) return []
    const { kind, name, uid, incarnation, interface: on } = row.owner
    return [[row.address, kind, name, uid, incarnation, on].filter((one) => one !== undefined).join(' ')]
  })
const leftOut = (rows: readonly (Row | LeftOut)[], path = '') =>
  rows.flatMap((row) =>
    'outcome' in row ? [`${row.where.replace(path, '')} ${row.address} ${row.outcome}: ${row.why}`] : [],
  )

describe('formats', () => {
  test('whereabouts: the offset counts from the first address of the range, and stays in it', () => {
    const path = fileOf(`
apiVersion: v1
kind: List
items:
  - apiVersion: whereabouts.cni.cncf.io/v1alpha1
    kind: IPPool
    metadata: { name: 10.0.8.0-24 }
    spec:
      range: 10.0.8.0/24
      allocations:
        "1": { id: 8af1, podref: shop/web-0, ifname: net1 }
        "255": { id: 77c2, podref: shop/web-1 }
        "256": { id: 77c3, podref: shop/web-2 }
        "-1": { id: 77c4, podref: shop/web-3 }
        "3": { id: "", podref: "" }
        "4":
        "5": [1]
  - metadata: { name: six }
    spec: { range: "fd00:5::/64", allocations: { "16": { id: aa, podref: shop/db-0, ifname: net1 } } }
  - metadata: { name: seven }
    spec: { range: "10.0.9.0/33", allocations: { "1": { id: aa, podref: shop/db-1 } } }
  - metadata: { name: empty }
    spec: { range: 10.0.10.0/24 }
  - nonsense
`)
    const rows = whereaboutsRows(path)
    expect(attachments(rows)).toEqual([
      '10.0.8.1 pod shop/web-0 shop/web-0 8af1 net1',
      '10.0.8.255 pod shop/web-1 shop/web-1 77c2 eth0',
      'fd00:5::10 pod shop/db-0 shop/db-0 aa net1',
    ])
    const lost = leftOut(rows, `${path}: `)
    expect(lost.sort().map((line) => line.replace(/: must be.*|: Invalid.*/, ''))).toEqual([
      'item 4  unreadable: ',
      'pool 10.0.8.0-24, allocation -1  unreadable: it is not in the range 10.0.8.0/24',
      'pool 10.0.8.0-24, allocation 256  unreadable: it is not in the range 10.0.8.0/24',
      'pool 10.0.8.0-24, allocation 3  unreadable: it has no podref or no id',
      'pool 10.0.8.0-24, allocation 4  unreadable: it has no podref or no id',
      'pool 10.0.8.0-24, allocation 5  unreadable: it has no podref or no id',
      expect.stringMatching(/^pool seven .*"10\.0\.9\.0\/33" has a wrong prefix length/),
    ])
    const page = fileOf(JSON.stringify({ metadata: { continue: 'abc' }, items: [] }))
    expect(() => whereaboutsRows(page)).toThrow('get all of them with kubectl')
  })

  // Written by Kea 2.2.0 of Debian 12: leases that udhcpc got, one of which it declined, and what lease4-add and lease6-add made.
  // Kept in its file, and again in PostgreSQL 15.
  const KEA = new URL('kea/', import.meta.url).pathname
  const THEN = 1_795_476_900_000

  test.each([
    ['its file', 'kea-leases4.csv'],
    ['kea-admin lease-dump', 'lease-dump4.csv'],
    ['its table', 'lease4.csv'],
    ['its control agent', 'lease4-get-all.json'],
  ])('Kea, IPv4, as %s has it: infinite leases are brought over, and what is not is named', (_, file) => {
    const rows = keaRows(join(KEA, file), THEN)
    expect(attachments(rows)).toEqual([
      '192.0.2.10 host desk.example.org/02:00:00:00:00:0a 02:00:00:00:00:0a',
      '192.0.2.11 host rack.example.org/02:00:00:00:00:0b 02:00:00:00:00:0b',
      '192.0.2.12 host rack/02:00:00:00:00:0c 02:00:00:00:00:0c',
      '192.0.2.50 host café/02:00:00:00:00:50 02:00:00:00:00:50',
    ])
    expect(leftOut(rows).map((line) => line.replace(/^.* (?=192)/, ''))).toEqual([
      '192.0.2.13 declined: its client found that somebody else uses the address',
      expect.stringMatching(/^192\.0\.2\.51 ended: it expired at 2026-11-23T23:1\d:/),
    ])
  })

  test.each([
    ['its file', 'kea-leases6.csv'],
    ['kea-admin lease-dump', 'lease-dump6.csv'],
    ['its table', 'lease6.csv'],
    ['its control agent', 'lease6-get-all.json'],
  ])('Kea, IPv6, as %s has it', (_, file) => {
    const rows = keaRows(join(KEA, file), THEN)
    const duid = '00:01:00:01:2c:aa:bb:cc:02:00:00:00:00:77'
    expect(attachments(rows)).toEqual([`2001:db8::77 host six,seven/${duid}/7 ${duid}/7`])
    expect(leftOut(rows)).toEqual([
      expect.stringContaining('2001:db8:1:100:: unreadable: it is a delegated prefix'),
    ])
  })

  // Each has its origin in of-kea/NOTICE. When they were written no lease had ended.
  test.each([
    [
      'kea-leases4.csv',
      [
        '192.0.2.1 host host.example.com/06:07:08:09:0a:bc 06:07:08:09:0a:bc',
        '192.0.2.4 host host.example.com/11:22:33:44:55:66 11:22:33:44:55:66',
      ],
      ['192.0.2.2 unreadable', '192.0.2.3 declined', '192.0.2.5 declined'],
    ],
    [
      'kea-leases6.csv',
      [],
      // The line with a cell too many has no address.
      [
        '2001:db8:1::1 declined',
        '2001:db8:2::10 declined',
        ' unreadable',
        '2001:db8:1::2 unreadable',
        '2001:db8:1::3 declined',
      ],
    ],
    [
      'lease4-dump.csv',
      ['0.0.0.10 host one.example.com/32:30 32:30'],
      ['0.0.0.11 declined', '0.0.0.12 ended'],
    ],
    [
      'lease6-dump.csv',
      ['::10 host one.example.com/32:30:33/60 32:30:33/60'],
      ['::11 declined', '::12 ended'],
    ],
  ])("Kea: %s of Kea's own tests", (file, brought, left) => {
    const rows = keaRows(join(KEA, 'of-kea', file), 0)
    expect(attachments(rows)).toEqual(brought)
    expect(leftOut(rows).map((line) => line.replace(/^\S+ (.*?): .*/, '$1'))).toEqual(left)
  })

  test('Kea: the last line of an address counts, and each that is not brought over is named', () => {
    const path =
      fileOf(`address,hwaddr,client_id,valid_lifetime,expire,subnet_id,fqdn_fwd,fqdn_rev,hostname,state,user_context,pool_id
10.0.1.10,08:00:2b:02:3f:4e,01:08:00:2b:02:3f:4e,3600,4102444800,1,0,0,a&#x2cb &#x26&#xc3&#xa9 &#xzz.,0,,0
10.0.1.11,08:00:2b:02:3f:4f,,3600,4102444800,1,0,0,,0,,0
10.0.1.11,08:00:2b:02:3f:4f,,0,4102444800,1,0,0,,0,,0
10.0.1.12,08:00:2b:02:3f:50,,3600,4102444800,1,0,0,,1,,0
10.0.1.13,08:00:2b:02:3f:51,,3600,1000000000,1,0,0,,0,,0
10.0.1.14,,,3600,4102444800,1,0,0,,0,,0
10.0.1.15,08:00:2b:02:3f:52,,4294967295,1000000000,1,0,0,,0,{ "a": "b"&#x2c "c": [ 1 ] },0
10.0.1.16,08:00:2b:02:3f:53,,3600,4102444800,1,0,0,,2,,0
10.0.1.17,08:00:2b:02:3f:54,,3600,4102444800,1,0,0,,4,,0
10.0.1.18,08:00:2b:02:3f:55,,3600,4102444800
ten,08:00:2b:02:3f:56,,3600,4102444800,1,0,0,,0,,0
10.0.1.19,08:00:2b:02:3f:57,,3600,4102444800,1,0,0,"quoted,0,,0
10.0.1.20,,,86400,4102444800,1,0,0,,1,,0
10.0.1.20,,,0,4102444800,1,0,0,,1,,0
10.0.1.21,08:00:2b:02:3f:58,,3600,4102444800,1,0,0,,constructor,,0
`)
    const rows = keaRows(path)
    expect(attachments(rows)).toEqual([
      '10.0.1.10 host a,b &é &#xzz/08:00:2b:02:3f:4e 08:00:2b:02:3f:4e',
      '10.0.1.15 host 08:00:2b:02:3f:52 08:00:2b:02:3f:52',
      '10.0.1.19 host "quoted/08:00:2b:02:3f:57 08:00:2b:02:3f:57',
    ])
    expect(leftOut(rows, path)).toEqual([
      ':4 10.0.1.11 ended: it was released',
      ':5 10.0.1.12 declined: its client found that somebody else uses the address',
      ':6 10.0.1.13 ended: it expired at 2001-09-09T01:46:40.000Z',
      ':7 10.0.1.14 unreadable: it has neither hwaddr, client_id nor duid',
      ':9 10.0.1.16 ended: it expired, and Kea took it back',
      ':10 10.0.1.17 unreadable: state 4 is not known',
      ':11  unreadable: it has 5 cells, and the first line 12',
      ':12  unreadable: "ten" is no address',
      ':15 10.0.1.20 ended: it was released',
      ':16 10.0.1.21 unreadable: state constructor is not known',
    ])
    // Its first version had no states.
    const old = fileOf('address,hwaddr,valid_lifetime,expire\n10.0.1.1,aa:bb,60,4102444800\n')
    expect(attachments(keaRows(old))).toEqual(['10.0.1.1 host aa:bb aa:bb'])
    expect(() => keaRows(fileOf('address,expire\n'))).toThrow('does not name the columns valid_lifetime')
  })

  test('Kea: a time without a zone has not come anywhere yet, and what PostgreSQL has with a sign has none', () => {
    const path = fileOf(`address,duid,iaid,valid_lifetime,expire,state
fd00:5::1,\\x0001aa,-1,60,2026-11-23 23:00:00,0
fd00:5::2,\\x0001ab,1,60,2026-11-23 10:00:00,0
fd00:5::3,\\x,1,60,soon,0
fd00:5::4,00:01:ac,1,60,soon,0
`)
    const rows = keaRows(path, Date.parse('2026-11-24T05:00:00Z'))
    expect(attachments(rows)).toEqual([
      'fd00:5::1 host 00:01:aa/4294967295 00:01:aa/4294967295',
      'fd00:5::4 host 00:01:ac/1 00:01:ac/1',
    ])
    expect(leftOut(rows, path)).toEqual([
      ':3 fd00:5::2 ended: it expired at 2026-11-23T22:00:00.000Z',
      ':4 fd00:5::3 unreadable: it has neither hwaddr, client_id nor duid',
    ])
  })

  test('Kea: what is no answer with all leases is refused', () => {
    const lease = {
      'ip-address': '10.0.1.1',
      state: 0,
      'valid-lft': 60,
      cltt: 4_000_000_000,
      'hw-address': 'aa',
    }
    const given = [lease, { ...lease, 'ip-address': '10.0.1.2', hostname: 7 }, null]
    const path = fileOf(JSON.stringify({ result: 0, arguments: { leases: given } }))
    expect(attachments(keaRows(path))).toEqual(['10.0.1.1 host aa aa'])
    expect(leftOut(keaRows(path), `${path}: answer 0, `)).toEqual([
      expect.stringMatching(/^lease 1 {2}unreadable: hostname: /),
      expect.stringMatching(/^lease 2 {2}unreadable: /),
    ])
    expect(keaRows(join(KEA, 'none.json'))).toEqual([])
    expect(() => keaRows(join(KEA, 'lease4-get-page.json'))).toThrow('lease4-get-all')
    const refused = fileOf(JSON.stringify([{ result: 2, text: "'lease4-get-all' command not supported." }]))
    expect(() => keaRows(refused)).toThrow("Kea answered an error: 'lease4-get-all' command not supported.")
    expect(() => keaRows(fileOf('{"leases": []}'))).toThrow('not an answer of Kea')
  })

  test('NetBox: each address is an owner of its own, whatever it is assigned to', () => {
    const path = fileOf(
      JSON.stringify({
        count: 3,
        results: [
          {
            id: 1,
            address: '10.0.2.1/24',
            dns_name: '',
            assigned_object: { name: 'ge-0', device: { name: 'sw1' } },
          },
          { id: 2, address: '10.0.2.2/24', dns_name: 'a.example.org', assigned_object: null },
          {
            id: 3,
            address: 'fd00:5::3/64',
            dns_name: '',
            assigned_object: { name: 'eth0', virtual_machine: { name: 'vm1' } },
          },
        ],
      }),
    )
    expect(attachments(netboxRows(path))).toEqual([
      '10.0.2.1 device sw1/10.0.2.1 sw1/10.0.2.1 ge-0',
      '10.0.2.2 device a.example.org/10.0.2.2 a.example.org/10.0.2.2 eth0',
      'fd00:5::3 device vm1/fd00:5::3 vm1/fd00:5::3 eth0',
    ])
  })

  test('NetBox: one page of several is refused, and what joins them is read; a faulty entry is named', () => {
    const entry = { id: 7, address: '10.0.2.7/24' }
    for (const page of [
      { count: 1, next: 'http://netbox/api/ipam/ip-addresses/?limit=1&offset=1', previous: null },
      { count: 1, next: null, previous: 'http://netbox/api/ipam/ip-addresses/?limit=1' },
      { count: 2, next: null, previous: null },
    ])
      expect(() => netboxRows(fileOf(JSON.stringify({ ...page, results: [entry] })))).toThrow(
        "jq -s 'map(.results[])'",
      )
    expect(() => netboxRows(fileOf('{"detail": "no"}'))).toThrow('it has no results')
    const joined = fileOf(JSON.stringify([entry, { id: 8 }, null, { ...entry, dns_name: 7 }]))
    expect(attachments(netboxRows(joined))).toEqual([
      '10.0.2.7 device unassigned/10.0.2.7 unassigned/10.0.2.7 eth0',
    ])
    expect(leftOut(netboxRows(joined), `${joined}: `)).toEqual([
      expect.stringMatching(/^result 1 {2}unreadable: address: /),
      expect.stringMatching(/^result 2 {2}unreadable: /),
      expect.stringMatching(/^result 3 {2}unreadable: dns_name: /),
    ])
  })

  test('CSV: a faulty line is named, and takes no other with it', () => {
    const path = fileOf(`\ufeffaddress,kind,name,labels
10.0.2.1,vm,"a, ""b""",
10.0.2.2,vm,"a
10.0.2.3,vm,a"b,
10.0.2.4,vm,c
10.0.2.5,vm,${'x'.repeat(70_000)},
10.0.2.6,vm,d,"{""team"":7}"
10.0.2.7,vm,e,"{""team"":""b""}"\r
`)
    const rows = csvRows(path)
    expect(attachments(rows)).toEqual(['10.0.2.1 vm a, "b" a, "b"', '10.0.2.7 vm e e'])
    expect(leftOut(rows, path)).toEqual([
      ':3  unreadable: a cell with a quote is not quoted as in CSV',
      ':4  unreadable: a cell with a quote is not quoted as in CSV',
      ':5  unreadable: it has 3 cells, and the first line 4',
      ':6  unreadable: the line has more than 65536 characters',
      ':7  unreadable: labels: must be a JSON object of texts, or empty',
    ])
    expect(() => csvRows(fileOf('10.0.2.1,vm,a\n'))).toThrow('does not name the columns address, kind')
  })

  test('a FIFO, a device, a directory and what is too large are refused, and not waited for', () => {
    const dir = temporaryDirectory()
    const fifo = join(dir, 'fifo')
    execFileSync('mkfifo', [fifo])
    const large = join(dir, 'large')
    writeFileSync(large, '')
    truncateSync(large, 64 * 1024 ** 2 + 1)
    for (const read of [csvRows, keaRows, netboxRows, whereaboutsRows]) {
      for (const path of [fifo, '/dev/zero', dir]) expect(() => read(path)).toThrow('not a regular file')
      expect(() => read(large)).toThrow('more than 67108864 bytes')
    }
    const yaml = join(dir, 'yaml')
    writeFileSync(yaml, 'items:')
    truncateSync(yaml, 17 * 1024 ** 2)
    expect(() => whereaboutsRows(yaml)).toThrow('-o json')
  })

  test('host-local: of its directory a FIFO or an endless file is one faulty row', () => {
    const dir = temporaryDirectory()
    writeFileSync(join(dir, '10.0.2.1'), 'c1\r\neth1')
    execFileSync('mkfifo', [join(dir, '10.0.2.2')])
    execFileSync('ln', ['-s', '/dev/zero', join(dir, '10.0.2.3')])
    writeFileSync(join(dir, '10.0.2.4'), 'x'.repeat(5_000))
    mkdirSync(join(dir, '10.0.2.5'))
    const rows = hostLocalRows(dir, { node: 'n', cniCache: dir })
    expect(attachments(rows)).toEqual(['10.0.2.1 container c1 c1 eth1'])
    expect(leftOut(rows, dir).sort()).toEqual([
      '/10.0.2.2  unreadable: it is not a regular file; write the content into one',
      '/10.0.2.3  unreadable: it is not a regular file; write the content into one',
      '/10.0.2.4  unreadable: it has more than 4096 bytes; split it',
      '/10.0.2.5  unreadable: it is not a regular file; write the content into one',
    ])
  })
})

describe('import', () => {
  const network = 'default'
  const path = () =>
    fileOf(`address,kind,name,uid,incarnation,interface,node,labels
10.0.3.1,pod,shop/web,9b3c,s1,eth0,n1,"{""team"":""a, b""}"
10.0.3.2,container,c2,,,,n1,
10.0.3.2,container,c3,,,,n1,
10.0.3.9,container,other,,,,,
172.16.0.1,container,c4,,,,,
,container,c5,,,,,
ten,container,c6,,,,,
`)

  test('a dry run writes nothing; a run makes what is new, once; conflicts are named and left alone', async () => {
    await service.call.ok('LeaseService/Reserve', {
      owner: { kind: 'container', name: 'first' },
      claims: [{ address: '10.0.3.9' }],
    })
    const file = path()
    const rows = csvRows(file)
    const outcomes = async (apply: boolean) =>
      (await importRows(client, network, rows, { apply }))
        .map(({ where, address, outcome, why }) => [where.replace(file, ''), address, outcome, why] as const)
        .sort(([a], [b]) => a.localeCompare(b))
    const headOf = async () => (await client.networks.getNetwork({ name: network })).network!.head
    const before = await headOf()
    const wanted = (now: string, said: (lease: string) => unknown) => [
      [':2', '10.0.3.1', now, said('web')],
      [':3', '10.0.3.2', now, said('c2')],
      [':4', '10.0.3.2', 'conflict', `also in ${file}:3`],
      [':5', '10.0.3.9', 'conflict', expect.stringContaining('container first')],
      [':6', '172.16.0.1', 'refused', expect.stringContaining('172.16.0.1')],
      [':7', '', 'unreadable', 'it needs address, kind, and name or uid'],
      [':8', '', 'unreadable', '"ten" is no address'],
    ]
    expect(await outcomes(false)).toEqual(wanted('new', () => ''))
    expect(await headOf()).toBe(before)
    expect(await outcomes(true)).toEqual(wanted('new', () => ''))
    const after = await headOf()
    expect(await outcomes(true)).toEqual(wanted('held', () => expect.stringMatching(/^default\/\d+$/)))
    expect(await headOf()).toBe(after)
    const { lease } = await client.leases.getLease({ network, address: '10.0.3.1' })
    expect(lease).toMatchObject({
      state: 2,
      owner: {
        kind: 'pod',
        name: 'shop/web',
        uid: '9b3c',
        incarnation: 's1',
        node: 'n1',
        labels: { team: 'a, b' },
      },
    })
  })

  test('what is exported is imported elsewhere as it was', async () => {
    const elsewhere = 'elsewhere'
    await service.call.ok('NetworkService/CreateNetwork', { name: elsewhere })
    await service.call.ok('PoolService/CreatePool', { network: elsewhere, name: 'ten', cidr: '10.0.0.0/16' })
    const exported = await Array.fromAsync(exportLines(client, network))
    const findings = await importRows(client, elsewhere, csvRows(fileOf(exported.join('\n'))), {
      apply: true,
    })
    expect(findings.map(({ outcome }) => outcome)).toEqual(findings.map(() => 'new'))
    const again = await Array.fromAsync(exportLines(client, elsewhere))
    // Leases are others, and what was RESERVED is ACTIVE.
    const facts = (lines: readonly string[]) => lines.map((line) => line.split(',').slice(0, -2).join(','))
    expect(facts(again)).toEqual(facts(exported))
  })

  test('a dry run sees what earlier rows of the same name would do, and says what the import then finds', async () => {
    // The second row of a name comes last: with 1,200 others between, they would be in different batches.
    const others = Array.from({ length: 1_200 }, (_, i) => `10.0.${16 + (i >> 8)}.${i & 255},vm,o-${i},n`)
    const file = fileOf(
      ['address,kind,name,node', '10.0.15.1,vm,twice,n', ...others, '10.0.15.2,vm,twice,n'].join('\n'),
    )
    const progress: string[] = []
    const asked = { now: 0, most: 0 }
    const batchReserve: typeof client.leases.batchReserve = async (...args) => {
      asked.now += 1
      asked.most = Math.max(asked.most, asked.now)
      return client.leases.batchReserve(...args).finally(() => {
        asked.now -= 1
      })
    }
    const counting = { ...client, leases: { ...client.leases, batchReserve } }
    const counted = async (apply: boolean) => {
      const findings = await importRows(counting, network, csvRows(file), {
        apply,
        progress: (done, all) => void progress.push(`${done}/${all}`),
      })
      return [
        findings.filter(({ outcome }) => outcome === 'new').length,
        findings.flatMap(({ where, outcome, why }) =>
          outcome === 'new' ? [] : `${where.replace(file, '')} ${outcome} ${why.split(':')[0]}`,
        ),
      ]
    }
    const wanted = [1_201, [':1203 refused ILLEGAL_STATE']]
    const { head } = (await client.networks.getNetwork({ name: network })).network!
    expect(await counted(false)).toEqual(wanted)
    expect((await client.networks.getNetwork({ name: network })).network!.head).toBe(head)
    expect(await counted(true)).toEqual(wanted)
    expect(new Set(progress)).toContain('1202/1202')
    expect(progress.length).toBeGreaterThanOrEqual(6)
    expect(asked.most, 'batches in flight').toBeGreaterThan(1)
  })

  test('a row that the server refuses takes no other with it', async () => {
    const entry = (id: number, name: string) => ({ id, address: `10.0.14.${id}/24`, dns_name: name })
    const long = 'x'.repeat(70_000)
    const results = [entry(1, 'fine'), entry(3, 'a\u0000b'), entry(4, long), entry(5, 'too')]
    const rows = netboxRows(fileOf(JSON.stringify({ results })))
    // Together more than a request may have.
    const big = Array.from({ length: 12 }, (_, i) => entry(20 + i, 'y'.repeat(30_000)))
    const refused = await importRows(client, network, netboxRows(fileOf(JSON.stringify(big))), {
      apply: true,
    })
    expect(refused.map(({ outcome }) => outcome)).toEqual(big.map(() => 'refused'))
    for (const apply of [false, true]) {
      const findings = await importRows(client, network, rows, { apply })
      expect(Object.fromEntries(findings.map(({ address, outcome }) => [address, outcome]))).toEqual({
        '10.0.14.1': 'new',
        '10.0.14.3': 'refused',
        '10.0.14.4': 'unreadable',
        '10.0.14.5': 'new',
      })
    }
  })

  test('names that are not UTF-8 do not become one owner: their rows are named, whatever the format', async () => {
    const latin1 = (text: string) => {
      const path = join(temporaryDirectory(), 'file')
      writeFileSync(path, text, 'latin1')
      return path
    }
    const csv = csvRows(
      latin1('address,kind,name\n10.0.13.1,vm,caf\xe9\n10.0.13.2,vm,caf\xe8\n10.0.13.3,vm,caf\xc3\xa9\n'),
    )
    const kea = keaRows(
      fileOf(
        'address,hwaddr,valid_lifetime,expire,hostname\n' +
          ['e9', 'e8', 'c3&#xa9']
            .map((byte, n) => `10.0.13.${n + 4},aa:b${n},60,4102444800,caf&#x${byte}`)
            .join('\n'),
      ),
    )
    const found = await importRows(client, network, [...csv, ...kea], { apply: false })
    const told = found.map(({ address, outcome, why }) => `${address} ${outcome} ${why}`.trimEnd()).sort()
    expect(told).toEqual([
      '10.0.13.1 unreadable it is not UTF-8',
      '10.0.13.2 unreadable it is not UTF-8',
      '10.0.13.3 new',
      '10.0.13.4 unreadable it is not UTF-8',
      '10.0.13.5 unreadable it is not UTF-8',
      '10.0.13.6 new',
    ])
    expect(attachments([...csv, ...kea]).filter((line) => line.includes('café'))).toHaveLength(2)
  })

  test('many rows that have ended are named, counted, and no failure', async () => {
    const lines = Array.from(
      { length: 150_000 },
      (_, i) => `10.${i >> 16}.${(i >> 8) & 255}.${i & 255},,60,1000000000,0`,
    )
    const path = fileOf(['address,hwaddr,valid_lifetime,expire,state', ...lines].join('\n'))
    const { code, stdout, stderr } = await ipledger(service, ['import', 'kea', path, '--dry-run'])
    const printed = stdout.trimEnd().split('\n')
    expect([code, stderr, printed.length, printed.at(-1)]).toEqual([
      0,
      '',
      150_003,
      '0 to import, 0 already held, 0 not imported, 150000 ended',
    ])
    expect(printed.at(-3)).toMatch(/:150001 +10\.2\.73\.239 +ended +it expired at 2001-09-09T01:46:40\.000Z$/)
  })

  test('the command ends with 1 when something was not imported', async () => {
    const { code, stdout, stderr } = await ipledger(service, ['import', 'csv', path(), '--dry-run'])
    expect(code).toBe(1)
    expect(stderr).toBe('')
    expect(stdout).toContain('0 to import, 2 already held, 5 not imported, 0 ended')
    const isTty = Object.getOwnPropertyDescriptor(process.stderr, 'isTTY')
    Object.defineProperty(process.stderr, 'isTTY', { value: true, configurable: true })
    onTestFinished(() => void Object.defineProperty(process.stderr, 'isTTY', isTty ?? { value: undefined }))
    const rows = Array.from({ length: 600 }, (_, i) => `10.0.${32 + (i >> 8)}.${i & 255},vm,t-${i}`)
    const watched = await ipledger(service, [
      'import',
      'csv',
      '--dry-run',
      fileOf(['address,kind,name', ...rows].join('\n')),
    ])
    expect(watched).toMatchObject({
      code: 0,
      stderr: expect.stringMatching(/^\r.\[Krows \d+ of 600, \d+\/s, \d+s left\r.\[K$/),
    })
    const labelled = csvRows(fileOf('address,kind,name,labels\n10.0.0.1,vm,a,{}\n10.0.0.2,vm,b,team=a\n'))
    expect(labelled).toMatchObject([
      { address: '10.0.0.1' },
      { outcome: 'unreadable', why: expect.stringContaining('labels') },
    ])
    const missing = await ipledger(service, ['import', 'kea', '/nowhere'])
    expect(missing).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('/nowhere cannot be read as kea'),
    })
  })
})
