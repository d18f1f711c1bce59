/** A request of each method in each way to name its network, `default`; in order but for what there is not. */
import { SERVICES } from '../../src/api/rpc-server.ts'

/** All methods but streams, which have tests of their own. */
export const UNARY = SERVICES.flatMap(({ methods }) => methods).filter(
  ({ methodKind }) => methodKind === 'unary',
)

const owner = { kind: 'pod', name: 'a', incarnation: 'i', interface: 'eth0', node: 'n' }
const network = 'default'
const lease = { leaseId: 'default/1' }
const reserve = { network, owner, claims: [{ pools: ['web'], address: '10.0.0.5' }] }
const batch = (item: object) => ({ network, atomic: true, requests: [item] })
const why = 'w'

export const REQUESTS: Readonly<Record<string, readonly object[]>> = {
  CreateNetwork: [{ name: 'n' }],
  UpdateNetwork: [{ name: network, description: 'd' }],
  GetNetwork: [{ name: network }],
  ListNetworks: [{}],
  BeginRecovery: [{ network, why }],
  EndRecovery: [{ network, why }],
  CreatePool: [{ network, name: 'web', cidr: '10.0.0.0/24' }],
  UpdatePool: [{ network, name: 'web', newName: 'web2' }],
  DeletePool: [{ network, name: 'web' }],
  GetPool: [{ network, name: 'web' }],
  ListPools: [{ network }],
  ListPoolTrends: [{ network }],
  Reserve: [reserve],
  BatchReserve: [batch(reserve)],
  Confirm: [lease, { network, owner }],
  BatchConfirm: [batch(lease)],
  Release: [lease, { network, owner }],
  BatchRelease: [batch(lease)],
  Quarantine: [
    { network, address: '10.0.0.5', why },
    { ...lease, why },
  ],
  Reap: [
    { ...lease, version: 1, why },
    { network, node: 'n', head: 1, why },
  ],
  UpdateLabels: [{ ...lease, labels: { a: 'b' } }],
  GetLease: [{ network, address: '10.0.0.5' }, lease],
  ListLeases: [{ network }],
  GetRequest: [{ network, requestId: 'r' }],
  ListEvents: [{ network }, lease],
  GetAddressHistory: [{ network, address: '10.0.0.5' }],
  GetLeaseHistory: [lease],
  ListLeasesAsOf: [{ network }],
  ExplainAddress: [{ network, address: '10.0.0.5' }],
  GetAddressMap: [{ network, cidr: '10.0.0.0/24' }],
  Find: [{ network, text: 'web' }],
  VerifyNetwork: [{ network }],
  GetServer: [{}],
  RegisterSource: [{ network, id: 's', sight: { node: 'n', ownerKinds: ['pod'] } }],
  EnableSource: [{ network, id: 's' }],
  RetireSource: [{ network, id: 's' }],
  GetSource: [{ network, id: 's' }],
  ListSources: [{ network }],
  ListSightings: [{ network }],
  BeginSnapshot: [{ network, source: 's' }],
  ReportSnapshot: [
    { network, source: 's', sequence: 1, head: 1, begunAt: '2030-01-01T00:00:00Z', epoch: 'e', entries: [] },
  ],
  ReportVerdicts: [{ network, source: 's', epoch: 'e', verdicts: [{ id: 'v', answer: 'GONE' }] }],
  Reconcile: [{ network }],
  ResumeHold: [{ network, why }],
  ListAttention: [{ network }],
}
