/**
 * The endpoints of a Docker network whose addresses our driver hands out (`src/docker`), each named by node, subnet and MAC.
 *
 * - An endpoint lives from the start of a container to its stop. Its name is that of the container.
 * - The list is one answer, from the store of the daemon that makes the endpoints.
 * - A look-up asks every network of the engine with that subnet: the network may have been made anew, under another name.
 */
import { z } from 'zod'
import { blockBase, formatValue, readAddress } from '../core/address.ts'
import { ENDPOINT_KIND, endpointUid } from '../core/owner.ts'
import { type Engine, LARGEST_LIST } from './docker-engine.ts'
import { draftOf, type LookUp, type PulledSource } from './source.ts'

/** The driver's name is that of its socket. */
const OUR_DRIVER = /^ipledger/
const UID = /^(.*)\/([^/]+\/\d+)\/([0-9a-f]{2}(?::[0-9a-f]{2}){5})$/

const text = z.string().nullish()
const withEndpoints = z.object({ Containers: z.record(z.string(), z.unknown()) })
const addressed = z.object({ IPv4Address: text, IPv6Address: text })
const endpoint = z.object({
  Name: z.string().min(1),
  MacAddress: z
    .string()
    .toLowerCase()
    .regex(/^[0-9a-f:]{17}$/),
  /** With the length of its subnet; the list has an item for each. */
  Address: z
    .string()
    .regex(/^[^/]+\/\d{1,3}$/)
    .refine((address) => readAddress(address.split('/')[0]!) !== null, 'has no address'),
})
const networks = z.array(
  z.object({
    Id: z.string().min(1),
    IPAM: z.object({ Config: z.array(z.object({ Subnet: text })).nullish() }),
  }),
)

export function openEndpoints(node: string, engine: Engine): PulledSource {
  return {
    async list(signal) {
      const { id, result } = await engine.read(signal, (found) => {
        checkDriver(found.IPAM?.Driver, ENDPOINT_KIND)
        return endpointsOf(found)
      })
      const draft = draftOf(
        endpoint.transform(({ Name, MacAddress, Address }) => ({
          kind: ENDPOINT_KIND,
          name: `${node}/${Name}`,
          uid: endpointUid(node, subnetOf(Address), MacAddress),
          // As Reserve has it: the same endpoint gets its address again at once.
          interface: 'eth0',
        })),
        z.object({ Address: z.string() }).transform(({ Address }) => [Address.split('/')[0]!]),
      )
      result.forEach(draft.add)
      return draft.listing(id)
    },

    async lookUp({ owner, epoch }, signal) {
      const unknown = (detail: string): LookUp => ({ answer: 'unknown', detail })
      const [, at, subnet, mac] = UID.exec(owner.uid) ?? []
      if (at !== node) return unknown(`${owner.uid} names no endpoint of node ${node}`)
      const all = await engine.get(networks, '/networks', signal, LARGEST_LIST)
      const having = all.filter(({ IPAM }) => IPAM.Config?.some(({ Subnet }) => Subnet === subnet))
      for (const { Id } of having) {
        const items = endpointsOf(await engine.get(withEndpoints, `/networks/${Id}`, signal, LARGEST_LIST))
        for (const item of items) {
          const { data } = z.object({ MacAddress: z.string() }).safeParse(item)
          if (data === undefined) return unknown(`an endpoint of network ${Id} has no MAC`)
          if (data.MacAddress.toLowerCase() === mac) return { answer: 'live', detail: `in network ${Id}` }
        }
      }
      // An engine that was set up anew since the last list knows nothing of it.
      const id = await engine.id(signal)
      if (id !== epoch) return unknown(`the engine was ${epoch} and is ${id}, and has no such endpoint`)
      return { answer: 'gone', detail: `no endpoint in ${subnet} has ${mac}` }
    },
  }
}

/** A source of containers would take each endpoint's lease for a conflict. @throws if the network needs the other kind */
export function checkDriver(driver: string | null | undefined, kind: string): void {
  const isOurs = OUR_DRIVER.test(driver ?? '')
  if (isOurs === (kind === ENDPOINT_KIND)) return
  const which = isOurs ? ENDPOINT_KIND : 'container'
  throw new Error(`its IPAM driver is ${driver}: register a source with "kind": "${which}" in its settings`)
}

/** An item for each address. Of an endpoint that has none, one that cannot be read. */
function endpointsOf(found: unknown): readonly unknown[] {
  const { Containers } = withEndpoints.parse(found)
  return Object.values(Containers).flatMap((one): readonly unknown[] => {
    const { IPv4Address, IPv6Address } = addressed.safeParse(one).data ?? {}
    const all = [IPv4Address, IPv6Address].filter((address) => address)
    return all.length === 0 ? [one] : all.map((Address) => ({ ...(one as object), Address }))
  })
}

function subnetOf(address: string): string {
  const [text = '', length] = address.split('/')
  const { family, value } = readAddress(text)!
  return `${formatValue(family, blockBase(family, value, Number(length)))}/${length}`
}
