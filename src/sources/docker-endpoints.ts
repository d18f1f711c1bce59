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
import type { Engine } from './docker-engine.ts'
import { draftOf, type LookUp, type PulledSource } from './source.ts'

const UID = /^(.*)\/([^/]+\/\d+)\/([0-9a-f]{2}(?::[0-9a-f]{2}){5})$/

const text = z.string().nullish()
const addressed = z.looseObject({ IPv4Address: text, IPv6Address: text })
const listed = z.object({ Containers: z.record(z.string(), addressed) })
const endpoint = z.object({
  Name: z.string().min(1),
  MacAddress: z.string().regex(/^[0-9a-f:]{17}$/i),
  /** With the length of its subnet; the list has an item for each. */
  Address: z.union([z.cidrv4(), z.cidrv6()]),
})
const networks = z.array(
  z.object({
    Id: z.string().min(1),
    IPAM: z.object({ Config: z.array(z.object({ Subnet: text })).nullish() }),
  }),
)
const withMacs = z.object({ Containers: z.record(z.string(), z.object({ MacAddress: z.string() })) })

export function openEndpoints(node: string, engine: Engine): PulledSource {
  return {
    list: (signal) =>
      engine.list(signal, async (found) => {
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
        for (const one of Object.values(listed.parse(found).Containers)) {
          const addresses = [one.IPv4Address, one.IPv6Address].filter((address) => address)
          // Of an endpoint that has none, one that cannot be read.
          for (const Address of addresses.length === 0 ? [null] : addresses) draft.add({ ...one, Address })
        }
        return draft
      }),

    async lookUp({ owner, epoch }, signal) {
      const unknown = (detail: string): LookUp => ({ answer: 'unknown', detail })
      const [, at, subnet, mac] = UID.exec(owner.uid) ?? []
      if (at !== node) return unknown(`${owner.uid} names no endpoint of node ${node}`)
      for (const { Id, IPAM } of await engine.get(networks, '/networks', signal)) {
        if (!IPAM.Config?.some(({ Subnet }) => Subnet === subnet)) continue
        const { Containers } = await engine.get(withMacs, `/networks/${Id}`, signal)
        if (Object.values(Containers).some(({ MacAddress }) => MacAddress.toLowerCase() === mac))
          return { answer: 'live', detail: `in network ${Id}` }
      }
      // An engine that was set up anew since the last list knows nothing of it.
      const id = await engine.identify(signal)
      if (id !== epoch) return unknown(`the engine was ${epoch} and is ${id}, and has no such endpoint`)
      return { answer: 'gone', detail: `no endpoint in ${subnet} has ${mac}` }
    },
  }
}

function subnetOf(address: string): string {
  const [text = '', length] = address.split('/')
  const { family, value } = readAddress(text)!
  return `${formatValue(family, blockBase(family, value, Number(length)))}/${length}`
}
