/** Leases of other allocators, from files as those write them. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { createClient } from '../../src/client/client.ts'
import { exportLines, importRows } from '../../src/import/import.ts'
import { csvRows, keaRows, netboxRows, type Row, whereaboutsRows } from '../../src/import/rows.ts'
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
const attachments = (rows: readonly object[]) =>
  (rows as Row[]).map(({ address, owner: { kind, name, uid, incarnation, interface: on } }) =>
    [address, kind, name, uid, incarnation, on].filter((one) => one !== undefined).join(' '),
  )

describe('formats', () => {
  test('whereabouts: the offset counts from the first address of the range', () => {
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
        "260": { id: 77c2, podref: shop/web-1 }
        "3": { id: "", podref: "" }
  - metadata: { name: six }
    spec: { range: "fd00:5::/64", allocations: { "16": { id: aa, podref: shop/db-0, ifname: net1 } } }
`)
    const rows = whereaboutsRows(path)
    expect(attachments(rows.filter((row) => 'address' in row))).toEqual([
      '10.0.8.1 pod shop/web-0 shop/web-0 8af1 net1',
      '10.0.9.4 pod shop/web-1 shop/web-1 77c2 eth0',
      'fd00:5::10 pod shop/db-0 shop/db-0 aa net1',
    ])
    expect(rows.filter((row) => 'unreadable' in row)).toEqual([
      { where: `${path}: pool 10.0.8.0-24, allocation 3`, unreadable: 'it has no podref or no id' },
    ])
  })

  test('Kea: a later line replaces an earlier one, and only what is in use is brought over', () => {
    const path =
      fileOf(`address,hwaddr,client_id,valid_lifetime,expire,subnet_id,fqdn_fwd,fqdn_rev,hostname,state,user_context,pool_id
10.0.1.10,08:00:2b:02:3f:4e,01:08:00:2b:02:3f:4e,3600,4102444800,1,0,0,desk.example.org.,0,,0
10.0.1.11,08:00:2b:02:3f:4f,,3600,4102444800,1,0,0,,0,,0
10.0.1.11,08:00:2b:02:3f:4f,,0,4102444800,1,0,0,,0,,0
10.0.1.12,08:00:2b:02:3f:50,,3600,4102444800,1,0,0,,1,,0
10.0.1.13,08:00:2b:02:3f:51,,3600,1000000000,1,0,0,,0,,0
10.0.1.14,,,3600,4102444800,1,0,0,,0,,0
`)
    expect(attachments(keaRows(path).filter((row) => 'address' in row))).toEqual([
      '10.0.1.10 host desk.example.org/08:00:2b:02:3f:4e 08:00:2b:02:3f:4e',
    ])
    expect(keaRows(path).filter((row) => 'unreadable' in row)).toMatchObject([{ where: `${path}:7` }])
  })

  test('Kea: the tables of its databases', () => {
    const four = fileOf(
      `address,hwaddr,valid_lifetime,expire,state
167772431,08002b023f4e,3600,2099-12-31 00:00:00+00,0
167772432,08002b023f4f,3600,2001-12-31 00:00:00+00,0
`,
    )
    expect(attachments(keaRows(four))).toEqual(['10.0.1.15 host 08002b023f4e 08002b023f4e'])
    const prefix = fileOf(
      'address,duid,iaid,lease_type,prefix_len,expire,state\nfd00:5::,00:01:aa,7,2,56,4102444800,0\n',
    )
    expect(keaRows(prefix)).toEqual([{ where: `${prefix}:2`, unreadable: 'it is a delegated prefix' }])
    const six = fileOf(
      'address,duid,iaid,valid_lifetime,expire,state,hostname\nfd00:5::9,00:01:aa,7,60,4102444800,0,\n',
    )
    expect(attachments(keaRows(six))).toEqual(['fd00:5::9 host 00:01:aa/7 00:01:aa/7'])
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

  test('the command ends with 1 when something was not imported', async () => {
    const { code, stdout } = await ipledger(service, ['import', 'csv', path()])
    expect(code).toBe(1)
    expect(stdout).toContain('0 to import, 2 already held, 5 not imported')
    const labelled = csvRows(fileOf('address,kind,name,labels\n10.0.0.1,vm,a,{}\n10.0.0.2,vm,b,team=a\n'))
    expect(labelled).toMatchObject([
      { address: '10.0.0.1' },
      { unreadable: expect.stringContaining('labels') },
    ])
    const missing = await ipledger(service, ['import', 'kea', '/nowhere'])
    expect(missing).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('/nowhere cannot be read as kea'),
    })
  })
})
