/** What the plugin reads and prints, as the specification has it. */

import { create } from '@bufbuild/protobuf'
import { describe, expect, test } from 'vitest'
import { addresses, failure } from '../../src/cni/answer.ts'
import { readCall, versionOf } from '../../src/cni/call.ts'
import { CniError, VERSIONS } from '../../src/cni/cni-error.ts'
import { LeaseSchema } from '../../src/gen/ipledger/v1/types_pb.ts'

const ENV = {
  CNI_COMMAND: 'ADD',
  CNI_CONTAINERID: 'c1',
  CNI_NETNS: '/run/netns/c1',
  CNI_IFNAME: 'eth0',
  CNI_ARGS: '',
}
const configured = (more: object = {}) =>
  JSON.stringify({
    cniVersion: '1.0.0',
    name: 'blue',
    type: 'bridge',
    ipam: { type: 'ipledger-cni' },
    ...more,
  })

function refusal(env: object, stdin: string): CniError {
  try {
    readCall({ ...ENV, ...env }, stdin)
  } catch (error) {
    return error as CniError
  }
  throw new Error('it was read')
}

describe('whose it is', () => {
  test('a container is known by its id, and may come again', () => {
    expect(readCall(ENV, configured()).owner).toEqual({
      kind: 'container',
      name: 'c1',
      uid: 'c1',
      incarnation: '',
      interface: 'eth0',
    })
  })

  test("a pod is known by Kubernetes' uid, its sandbox is one life of it", () => {
    const args = 'IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;K8S_POD_UID=7c1e'
    expect(readCall({ ...ENV, CNI_ARGS: args }, configured()).owner).toEqual({
      kind: 'pod',
      name: 'shop/web-0',
      uid: '7c1e',
      incarnation: 'c1',
      interface: 'eth0',
    })
  })
})

describe('what is wanted', () => {
  const claimsOf = (env: object, more: object = {}) => readCall({ ...ENV, ...env }, configured(more)).claims

  test('nothing said: the default pools', () => expect(claimsOf({})).toEqual([]))

  test('one of each pool, in the list within the list of the first that has one', () => {
    const ipam = { type: 'ipledger-cni', pools: ['web', ['web6', 'spare6']] }
    expect(claimsOf({}, { ipam })).toEqual([{ pools: ['web'] }, { pools: ['web6', 'spare6'] }])
  })

  test.each([
    [{ CNI_ARGS: 'IP=10.0.0.9' }, {}],
    [{}, { runtimeConfig: { ips: ['10.0.0.9/24'] } }],
    [{}, { args: { cni: { ips: ['10.0.0.9'] } } }],
    [{ CNI_ARGS: 'IP=10.0.0.9' }, { runtimeConfig: { ips: ['10.0.0.9'] }, args: {} }],
  ])('requested addresses are all that it gets: %j %j', (env, more) => {
    const ipam = { type: 'ipledger-cni', pools: ['web6'] }
    expect(claimsOf(env, { ipam, ...more })).toEqual([{ address: '10.0.0.9' }])
  })

  test('both families may be requested', () => {
    expect(claimsOf({ CNI_ARGS: 'IP=10.0.0.9, fd00::9' })).toEqual([
      { address: '10.0.0.9' },
      { address: 'fd00::9' },
    ])
  })
})

describe('errors name what is wrong, with the code of the specification', () => {
  test.each([
    [{ CNI_COMMAND: 'EAT' }, configured(), 4, 'CNI_COMMAND'],
    [{ CNI_NETNS: '', CNI_IFNAME: '' }, configured(), 4, 'CNI_NETNS, CNI_IFNAME'],
    [{ CNI_COMMAND: 'DEL', CNI_CONTAINERID: '' }, configured(), 4, 'CNI_CONTAINERID'],
    [{ CNI_ARGS: 'nonsense' }, configured(), 4, 'nonsense'],
    [{}, '{"cniVersion": ', 6, 'not JSON'],
    [{}, configured({ cniVersion: '0.2.0' }), 1, '0.2.0'],
    [{}, configured({ ipam: { type: 'ipledger-cni', pool: 'web' } }), 7, 'pool'],
    [{}, configured({ ipam: { type: 'ipledger-cni', pools: 'web' } }), 7, 'ipam.pools'],
    [{}, configured({ ipam: { type: 'ipledger-cni', routes: [{}] } }), 7, 'ipam.routes.0.dst'],
    [{}, configured({ runtimeConfig: { ips: '10.0.0.9' } }), 7, 'runtimeConfig.ips'],
    [{ CNI_ARGS: 'IP=ten' }, configured(), 7, '"ten"'],
  ])('%j %s', (env, stdin, code, words) => {
    const error = refusal(env, stdin)
    expect(error).toBeInstanceOf(CniError)
    expect(error).toMatchObject({ code, message: expect.stringContaining(words) })
  })

  test.each(['DEL', 'CHECK', 'GC', 'STATUS'])(
    '%s ignores unknown keys of ipam: an upgrade may have dropped them',
    (one) => {
      const stdin = configured({ ipam: { type: 'ipledger-cni', pool: 'web', network: 'blue' } })
      expect(readCall({ ...ENV, CNI_COMMAND: one }, stdin).config.ipam).toEqual({
        type: 'ipledger-cni',
        network: 'blue',
        stateDir: '/var/lib/ipledger',
      })
    },
  )

  test('DEL needs no namespace and no ipam, GC no attachment', () => {
    const { netns, config } = readCall(
      { ...ENV, CNI_COMMAND: 'DEL', CNI_NETNS: undefined },
      '{"cniVersion":"1.0.0"}',
    )
    expect([netns, config.ipam.network]).toEqual(['', 'default'])
    expect(readCall({ CNI_COMMAND: 'GC' }, configured()).owner).toBeNull()
  })

  test.each([
    ['{ "cniVersion" : "0.4.0", ', new CniError('tryAgain', 'later'), '0.4.0', 11, 'later'],
    ['nonsense', new Error('odd'), '1.0.0', 100, 'internal error: Error: odd'],
  ])('in the version of the call: %s', (stdin, error, cniVersion, code, msg) => {
    const { exitCode, stdout } = failure(versionOf(stdin), error)
    expect(exitCode).toBe(1)
    expect(JSON.parse(stdout)).toEqual({ cniVersion, code, msg })
  })
})

describe('results', () => {
  const leases = [
    create(LeaseSchema, {
      address: '10.0.0.9',
      subnet: '10.0.0.0/24',
      gateway: '10.0.0.1',
      options: {
        routes: [{ destination: '10.9.0.0/16', gateway: '10.0.0.2' }, { destination: '10.8.0.0/16' }],
        dns: ['10.0.0.53'],
      },
    }),
    create(LeaseSchema, { address: 'fd00::9', subnet: 'fd00::/64', options: { dns: ['10.0.0.53'] } }),
  ]
  const told = (cniVersion: string, ipam: object = {}, of = leases) => {
    const { config } = readCall(ENV, configured({ cniVersion, ipam: { type: 'ipledger-cni', ...ipam } }))
    return JSON.parse(addresses(config, of).stdout)
  }

  test.each(VERSIONS)('%s', (version) => {
    const before1 = version.startsWith('0.')
    expect(told(version, { routes: [{ dst: '0.0.0.0/0' }] })).toEqual({
      cniVersion: version,
      ips: [
        { ...(before1 && { version: '4' }), address: '10.0.0.9/24', gateway: '10.0.0.1' },
        { ...(before1 && { version: '6' }), address: 'fd00::9/64' },
      ],
      routes: [{ dst: '0.0.0.0/0' }, { dst: '10.9.0.0/16', gw: '10.0.0.2' }, { dst: '10.8.0.0/16' }],
      dns: { nameservers: ['10.0.0.53'] },
    })
  })

  test('nothing said of routes and resolvers', () => {
    const plain = create(LeaseSchema, { address: '10.0.0.9', subnet: '10.0.0.0/24' })
    expect(told('1.0.0', {}, [plain])).toMatchObject({ routes: [], dns: {} })
    expect(told('1.0.0', {}, [plain]).dns).toEqual({})
  })

  test("the configuration's resolvers go before the pool's", () => {
    expect(told('1.0.0', { dns: { nameservers: ['10.0.0.54'] } }).dns).toEqual({ nameservers: ['10.0.0.54'] })
  })
})
