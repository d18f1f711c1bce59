/** A request of each method, of the network `default`, in order but for what there is not. */
import { SERVICES } from '../../src/api/rpc-server.ts'

/** All methods but streams, which have tests of their own. */
export const UNARY = SERVICES.flatMap(({ methods }) => methods).filter(
  ({ methodKind }) => methodKind === 'unary',
)

const labels = { a: 'b' }
const owner = {
  kind: 'pod',
  name: 'a',
  uid: 'u',
  incarnation: 'i',
  interface: 'eth0',
  node: 'n',
  labels,
}
const named = { leaseId: 'default/1', network: 'default', owner, requestId: '' }
const reserve = {
  network: 'default',
  owner,
  claims: [{ pools: ['web'], address: '10.0.0.5' }, { pool: 'six' }],
  liveAddresses: ['10.0.0.9'],
  requestId: '',
}
const options = { routes: [{ destination: '10.9.0.0/16', gateway: '10.0.0.1' }], dns: ['10.0.0.2'] }
const space = { cidr: '10.0.0.0/24', subnet: '10.0.0.0/16', gateway: '10.0.0.1', options }
const batch = (item: object) => ({ network: 'default', requestId: 'r', atomic: true, requests: [item] })
const page = { pageToken: '' }
const at = { network: 'default', source: 's', sequence: 1, head: 1, begunAt: '2030-01-01T00:00:00Z' }

/** Requests that are in order, with every string field there is; several where two exclude each other. */
export const REQUESTS: Readonly<Record<string, readonly object[]>> = {
  CreateNetwork: [{ name: 'n', description: 'd', labels, requestId: 'r' }],
  UpdateNetwork: [{ name: 'default', description: 'd', labels, requestId: 'r' }],
  GetNetwork: [{ name: 'default' }],
  ListNetworks: [{ labels, ...page }],
  BeginRecovery: [{ network: 'default', why: 'w', requestId: 'r' }],
  EndRecovery: [{ network: 'default', why: 'w', requestId: 'r' }],
  CreatePool: [{ ...space, network: 'default', name: 'web', exclude: ['10.0.0.7'], labels, requestId: 'r' }],
  UpdatePool: [
    {
      ...space,
      network: 'default',
      name: 'web',
      newName: 'web2',
      exclude: ['10.0.0.7'],
      labels,
      requestId: 'r',
    },
  ],
  DeletePool: [{ network: 'default', name: 'web', requestId: 'r' }],
  GetPool: [{ network: 'default', name: 'web' }],
  ListPools: [{ network: 'default', labels, cidr: '10.0.0.0/24', ...page }],
  Reserve: [reserve],
  BatchReserve: [batch(reserve)],
  Confirm: [named],
  BatchConfirm: [batch(named)],
  Release: [named],
  BatchRelease: [batch(named)],
  Quarantine: [
    { network: 'default', address: '10.0.0.5', why: 'w', requestId: 'r' },
    { network: 'default', leaseId: 'default/1', why: 'w', requestId: 'r' },
  ],
  Reap: [
    { leaseId: 'default/1', version: 1, network: 'default', why: 'w', requestId: 'r' },
    { node: 'n', head: 1, network: 'default', why: 'w' },
  ],
  UpdateLabels: [{ leaseId: 'default/1', labels, requestId: 'r' }],
  GetLease: [{ network: 'default', address: '10.0.0.5' }, { leaseId: 'default/1' }],
  ListLeases: [
    {
      network: 'default',
      ownerKind: 'pod',
      ownerName: 'a',
      ownerUid: 'u',
      node: 'n',
      labels,
      pools: ['web'],
      cidr: '10.0.0.0/24',
      ...page,
    },
  ],
  GetRequest: [{ network: 'default', requestId: 'r', node: 'n' }],
  ListEvents: [
    { network: 'default', address: '10.0.0.5', ownerKind: 'pod', ownerName: 'a', ...page },
    { network: 'default', types: ['lease.reserved'] },
    { leaseId: 'default/1' },
  ],
  GetAddressHistory: [
    { network: 'default', address: '10.0.0.5', ...page },
    { network: 'default', cidr: '10.0.0.0/24' },
  ],
  GetLeaseHistory: [{ leaseId: 'default/1', ...page }],
  ListLeasesAsOf: [{ network: 'default', pool: 'web', ...page }],
  ExplainAddress: [{ network: 'default', address: '10.0.0.5' }],
  VerifyNetwork: [{ network: 'default' }],
  RegisterSource: [
    {
      network: 'default',
      id: 's',
      kind: 'HTTP',
      sight: { node: 'n', ownerKinds: ['pod'] },
      settings: { listUrl: 'https://o/list', lookUpUrl: 'https://o/{uid}' },
      requestId: 'r',
    },
  ],
  EnableSource: [{ network: 'default', id: 's', requestId: 'r' }],
  RetireSource: [{ network: 'default', id: 's', requestId: 'r' }],
  ListSources: [{ network: 'default', id: 's', node: 'n', ...page }],
  ListSightings: [{ network: 'default', source: 's', address: '10.0.0.5', ...page }],
  BeginSnapshot: [{ network: 'default', source: 's' }],
  ReportSnapshot: [
    {
      ...at,
      epoch: 'e',
      entries: [
        {
          address: '10.0.0.5',
          network: 'default',
          kind: 'pod',
          name: 'a',
          uid: 'u',
          incarnation: 'i',
          interface: 'eth0',
          node: 'n',
          state: 'running',
        },
      ],
    },
    { ...at, epoch: 'e', unchanged: 'd' },
  ],
  ReportVerdicts: [
    { network: 'default', source: 's', epoch: 'e', verdicts: [{ id: 'v', answer: 'GONE', detail: 'd' }] },
  ],
  Reconcile: [{ network: 'default', pool: 'web', address: '10.0.0.5', source: 's', ...page }],
  ResumeHold: [{ network: 'default', why: 'w', requestId: 'r' }],
  ListAttention: [{ network: 'default', codes: ['HELD'], source: 's', each: true, ...page }],
}
