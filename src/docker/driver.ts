/**
 * Docker's IPAM driver: addresses of Docker networks are leases of the ledger. Docker asks it for each network and each endpoint, as
 * libnetwork/docs/ipam.md of moby/moby has it. All that it holds is in the ledger, and it may be killed at any time.
 *
 * An endpoint is named by node, subnet and MAC (`endpointUid`). A daemon that starts tells what its networks and endpoints have
 * (`RequiresRequestReplay`): what is held is answered once to such a daemon, and never to another endpoint with the same MAC.
 */
import { randomUUID } from 'node:crypto'
import { z } from 'zod'
import { CallFailed } from '../client/call-failed.ts'
import type { IpledgerClient } from '../client/client.ts'
import { formatCidr, isMalformed, maxPrefix, parseCidr } from '../core/address.ts'
import { ENDPOINT_KIND, endpointUid } from '../core/owner.ts'
import type { Pool } from '../gen/ipledger/v1/pool_pb.ts'
import type { Lease } from '../gen/ipledger/v1/types_pb.ts'
import type { Logger } from '../telemetry.ts'

export type DriverOptions = { readonly network: string; readonly node: string }

/** Docker waits for each answer as long as it takes, and lets nothing else happen to its network meanwhile. */
const PATIENCE = { timeoutMs: 10_000 }
const LOCAL_SPACE = 'ipledger'
/** What Swarm asks for. */
const GLOBAL_SPACE = 'ipledger-swarm'
const GATEWAY = 'com.docker.network.gateway'
const MAC = 'com.docker.network.endpoint.macaddress'
const INFRASTRUCTURE = 'infrastructure'

const text = z.string().nullish()
const poolWanted = z.object({ AddressSpace: text, Pool: text, SubPool: text })
const poolReleased = z.object({ PoolID: z.string() })
const addressWanted = z.object({
  PoolID: z.string(),
  Address: text,
  Options: z.record(z.string(), z.string()).nullish(),
})
const addressReleased = z.object({ PoolID: z.string(), Address: z.string() })

/** What Docker is told instead of an answer; it prints it. */
class Refused extends Error {}

type DockerNetwork = {
  /** Addresses that Docker has asked for by name, or was given. */
  readonly asked: Set<string>
  /** Leases of infrastructure that were made for it, by address. */
  readonly made: Map<string, string>
}
type Holder = {
  readonly kind: string
  readonly name: string
  readonly uid: string
  readonly interface: string
}

export class Driver {
  readonly #options: DriverOptions
  readonly #client: IpledgerClient
  readonly #log: Logger
  /** This process has seen the start of the daemon. One whose start it has not seen tells nothing more. */
  #sawStart = false
  /** By subnet, those that were asked for in the life of this process and daemon. */
  readonly #networks = new Map<string, DockerNetwork>()
  readonly #methods: Readonly<Record<string, (body: unknown) => Promise<object>>> = {
    // Once in the life of a daemon, before all else.
    'Plugin.Activate': async () => {
      this.#sawStart = true
      this.#networks.clear()
      return { Implements: ['IpamDriver'] }
    },
    'IpamDriver.GetCapabilities': async () => ({ RequiresMACAddress: true, RequiresRequestReplay: true }),
    'IpamDriver.GetDefaultAddressSpaces': async () => ({
      LocalDefaultAddressSpace: LOCAL_SPACE,
      GlobalDefaultAddressSpace: GLOBAL_SPACE,
    }),
    'IpamDriver.RequestPool': (body) => this.#requestPool(poolWanted.parse(body)),
    'IpamDriver.ReleasePool': (body) => this.#releasePool(poolReleased.parse(body)),
    'IpamDriver.RequestAddress': (body) => this.#requestAddress(addressWanted.parse(body)),
    'IpamDriver.ReleaseAddress': (body) => this.#releaseAddress(addressReleased.parse(body)),
  }

  constructor(options: DriverOptions, client: IpledgerClient, log: Logger) {
    this.#options = options
    this.#client = client
    this.#log = log
  }

  /** A refusal is an answer, too. Undefined: there is no such method. */
  async answer(method: string, body: unknown): Promise<object | undefined> {
    if (!Object.hasOwn(this.#methods, method)) return undefined
    try {
      return await this.#methods[method]!(body)
    } catch (error) {
      const why = sentence(error)
      this.#log.warn({ ...this.#options, method, asked: body, err: error }, why)
      return { Error: why }
    }
  }

  /** The driver makes no pools. A network without a subnet is refused: Docker would ask again and again for another pool. */
  async #requestPool({ AddressSpace, Pool: subnet, SubPool: range }: z.infer<typeof poolWanted>) {
    if (AddressSpace === GLOBAL_SPACE)
      throw new Refused(
        'networks of Swarm are not served: make the network on each node, with a local driver',
      )
    if (!subnet) throw new Refused(`--subnet is required: it must be a pool of ${await this.#known()}`)
    const PoolID = range ? `${canonical(subnet)} ${canonical(range)}` : canonical(subnet)
    const [pool] = await this.#pools(PoolID)
    // If this one fails, Docker would release what the other has.
    if (this.#networks.has(pool.subnet))
      throw new Refused(`another Docker network of this node has --subnet ${pool.subnet}`)
    this.#networks.set(pool.subnet, { asked: new Set(), made: new Map() })
    return { PoolID, Pool: pool.subnet, Data: {} }
  }

  /** Of a network that could not be made whole, Docker does not release the addresses. */
  async #releasePool({ PoolID }: z.infer<typeof poolReleased>) {
    const { made = new Map() } = this.#networks.get(subnetOf(PoolID)) ?? {}
    this.#networks.delete(subnetOf(PoolID))
    for (const leaseId of made.values()) await this.#release(leaseId)
    return {}
  }

  async #requestAddress({ PoolID, Address, Options }: z.infer<typeof addressWanted>) {
    const mac = Options?.[MAC]
    const asking = this.#networks.get(subnetOf(PoolID))
    const isAgain = (address: string) => !this.#sawStart || asking === undefined || asking.asked.has(address)
    const isRepeated = isAgain(Address ?? '')
    // First of all: the endpoint may have it, whatever the answer is.
    if (Address) asking?.asked.add(Address)
    const pools = await this.#pools(PoolID)
    const [{ subnet, gateway }] = pools
    const wanted = Address || (Options?.RequestAddressType === GATEWAY ? gateway : '')
    const answer = (address: string) => ({ Address: `${address}/${subnet.split('/')[1]}`, Data: {} })
    // Every node with this subnet has the router of the pool.
    if (!mac && wanted !== '' && wanted === gateway) return answer(wanted)
    const holder = mac ? this.#endpoint(subnet, mac) : this.#infrastructure(subnet, wanted)
    const held = wanted === '' ? null : await this.#held(wanted)
    const isOwn = held?.owner?.kind === holder.kind && held.owner.uid === holder.uid
    if (isOwn && isRepeated) throw taken(held)
    if (isOwn && !mac) return answer(wanted)
    // One that its source has listed first has the name that the source gave it.
    const name = isOwn ? held.owner!.name : holder.name
    const lease = await this.#reserve({ ...holder, name }, pools, wanted)
    if (wanted === '' && lease.reused && isAgain(lease.address)) throw taken(lease)
    asking?.asked.add(lease.address)
    if (!mac) asking?.made.set(lease.address, lease.leaseId)
    return answer(lease.address)
  }

  /** Docker has removed the address from the endpoint. What is not of this node's network stays as it is. */
  async #releaseAddress({ PoolID, Address }: z.infer<typeof addressReleased>) {
    const subnet = subnetOf(PoolID)
    this.#networks.get(subnet)?.asked.delete(Address)
    this.#networks.get(subnet)?.made.delete(Address)
    const lease = await this.#held(Address)
    const { kind = '', uid = '' } = lease?.owner ?? {}
    const isOwn =
      [ENDPOINT_KIND, INFRASTRUCTURE].includes(kind) && `${uid}/`.startsWith(`${this.#name(subnet)}/`)
    if (isOwn) await this.#release(lease!.leaseId)
    return {}
  }

  async #release(leaseId: string): Promise<void> {
    await this.#client.leases.release({ leaseId, requestId: randomUUID() }, PATIENCE)
  }

  async #reserve(holder: Holder, pools: readonly Pool[], address: string): Promise<Lease> {
    const { network, node } = this.#options
    const request = {
      network,
      owner: { ...holder, node },
      claims: [{ pools: pools.map(({ name }) => name), address }],
      // Docker says to nobody when an address is configured.
      confirmed: true,
      requestId: randomUUID(),
    }
    return (await this.#client.leases.reserve(request, PATIENCE)).leases[0]!
  }

  async #held(address: string): Promise<Lease | null> {
    const { network } = this.#options
    try {
      return (await this.#client.leases.getLease({ network, address }, PATIENCE)).lease!
    } catch (error) {
      if (error instanceof CallFailed && error.reason === 'LEASE_NOT_FOUND') return null
      throw error
    }
  }

  /** Those with this subnet; of an id with a range the one that hands it out. @throws Refused if there is none */
  async #pools(id: string): Promise<readonly [Pool, ...Pool[]]> {
    const { network } = this.#options
    const [subnet = '', range] = id.split(' ')
    const { pools } = await this.#client.pools.listPools({ network, cidr: subnet }, PATIENCE)
    const isSingle = ({ cidr, prefixLength }: Pool) => prefixLength === maxPrefix(cidr.includes(':') ? 6 : 4)
    const [first, ...others] = pools.filter(
      (pool) => pool.subnet === subnet && isSingle(pool) && pool.cidr === (range ?? pool.cidr),
    )
    if (first !== undefined) return [first, ...others]
    const asked = range === undefined ? `--subnet ${subnet}` : `--ip-range ${range} in --subnet ${subnet}`
    throw new Refused(`${asked} must be a pool of ${await this.#known()}`)
  }

  async #known(): Promise<string> {
    const { network } = this.#options
    const { pools } = await this.#client.pools.listPools({ network }, PATIENCE)
    const known = pools.map(({ name, subnet }) => `${subnet} (${name})`).join(', ')
    return `network ${network} of ipledger, which has ${known || 'none'}; "ipledger pool create" makes one`
  }

  #name(subnet: string): string {
    return `${this.#options.node}/${subnet}`
  }

  #endpoint(subnet: string, mac: string): Holder {
    const uid = endpointUid(this.#options.node, subnet, mac)
    return { kind: ENDPOINT_KIND, name: uid, uid, interface: 'eth0' }
  }

  /** A gateway that the pool does not declare, or an auxiliary address: of this node and network, and told apart by address. */
  #infrastructure(subnet: string, address: string): Holder {
    const name = this.#name(subnet)
    return { kind: INFRASTRUCTURE, name, uid: name, interface: address || 'gateway' }
  }
}

function canonical(cidr: string): string {
  const parsed = parseCidr(cidr)
  if (isMalformed(parsed)) throw new Refused(parsed.malformed)
  return formatCidr(parsed)
}

/** Of a pool's id. */
function subnetOf(id: string): string {
  return id.split(' ')[0]!
}

function taken({ address, leaseId, owner }: Lease): Refused {
  const { kind, name } = owner!
  const other =
    kind === ENDPOINT_KIND ? 'container has this MAC, or one with it' : 'network has it, or one that'
  return new Refused(
    `${kind} ${name} has ${address} already (lease ${leaseId}): another ${other} ended while the driver was away. ` +
      `If none has it, "ipledger release ${leaseId}" ends that`,
  )
}

function sentence(error: unknown): string {
  if (error instanceof z.ZodError) return z.prettifyError(error)
  if (!(error instanceof CallFailed)) return (error as Error).message
  const { reason, message } = error
  return reason === undefined ? `ipledger cannot be reached: ${message}` : `${reason}: ${message}`
}
