/**
 * Addresses for an outage of the service: leased beforehand, each under a holder of its own, and listed live by this node until
 * the container that got one is gone. They are in files, so that neither an agent that starts in the outage nor one that is
 * killed after it gave one away is in doubt. Files are not synced: after a loss of power there are no containers.
 */
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fromJson, toJson } from '@bufbuild/protobuf'
import type { IpledgerClient } from '../client/client.ts'
import type { Call, CniOwner } from '../cni/call.ts'
import { type Lease, LeaseSchema } from '../gen/ipledger/v1/types_pb.ts'

/** One holder, with an address of each family. */
type Slot = {
  readonly leases: readonly Lease[]
  /** Who got it; null: nobody. */
  readonly taker: CniOwner | null
}

export type Reserve = ReturnType<typeof openReserve>

export const RESERVE_KIND = 'reserve'

type Options = {
  readonly client: IpledgerClient
  readonly network: string
  readonly node: string
  readonly state: string
  /** How many are free while the service is there. */
  readonly size: number
  /** Of which pools: one address of each. None: of the network's default pools. */
  readonly pools: readonly string[]
}

export function openReserve({ client, network, node, state, size, pools }: Options) {
  const dir = join(state, 'reserve')
  mkdirSync(dir, { recursive: true, mode: 0o700 })
  const slots = new Map<number, Slot>()
  for (const file of readdirSync(dir).filter((name) => /^\d+\.json$/.test(name))) {
    const { leases, taker } = JSON.parse(readFileSync(join(dir, file), 'utf8'))
    slots.set(Number.parseInt(file, 10), {
      leases: leases.map((lease: never) => fromJson(LeaseSchema, lease)),
      taker,
    })
  }

  function put(index: number, { leases, taker }: Slot): void {
    const file = join(dir, `${index}.json`)
    const slot = { leases: leases.map((lease) => toJson(LeaseSchema, lease)), taker }
    writeFileSync(`${file}.draft`, JSON.stringify(slot))
    renameSync(`${file}.draft`, file)
    slots.set(index, { leases, taker })
  }

  function drop(index: number): void {
    rmSync(join(dir, `${index}.json`), { force: true })
    slots.delete(index)
  }

  async function release({ leases }: Slot): Promise<void> {
    for (const { leaseId } of leases) await client.leases.release({ leaseId })
  }

  const ownerOf = (index: number) => ({
    kind: RESERVE_KIND,
    name: `${node}/${index}`,
    interface: 'eth0',
    node,
  })
  const entryOf = (owner: CniOwner) =>
    [...slots].find(([, { taker }]) => taker !== null && JSON.stringify(taker) === JSON.stringify(owner))
  const free = () => [...slots].filter(([, { taker }]) => taker === null)

  return {
    of: (owner: CniOwner): readonly Lease[] | null => entryOf(owner)?.[1].leases ?? null,
    /** Requested addresses are none of its; pools that are named must be those of its leases. */
    take({ owner, claims }: Call): readonly Lease[] | null {
      const fits = ({ leases }: Slot) =>
        claims.length === 0 ||
        (claims.length === leases.length &&
          claims.every(({ pools: named }, at) => named?.includes(leases[at]!.pool) === true))
      const [index, slot] = free().find(([, one]) => fits(one)) ?? []
      if (index === undefined) return null
      put(index, { leases: slot!.leases, taker: owner! })
      return slot!.leases
    },
    /** @throws CallFailed: it stays the container's */
    async giveBack(owner: CniOwner): Promise<void> {
      const [index, slot] = entryOf(owner) ?? []
      if (index === undefined) return
      await release(slot!)
      drop(index)
    },
    taken: () =>
      [...slots.values()].flatMap(({ taker, leases }) =>
        taker === null ? [] : [{ owner: taker, addresses: leases.map(({ address }) => address) }],
      ),
    get free(): number {
      return free().length
    },
    /** What to list as live. */
    listed: () =>
      [...slots].flatMap(([index, { leases }]) =>
        leases.map(({ address, owner }) => ({ address, ...ownerOf(index), uid: owner!.uid })),
      ),
    isHolder: (uid: string): boolean => [...slots.keys()].some((index) => ownerOf(index).name === uid),
    /** While the service is there: what the ledger no longer holds is replaced, what is missing added. @throws CallFailed */
    async fill(held: ReadonlySet<string>): Promise<void> {
      for (const [index, slot] of free().slice(size)) {
        // First, so that nobody gets it meanwhile; what can't be released is nobody's, which ends by proof.
        drop(index)
        await release(slot)
      }
      const missing = free()
        .filter(([, { leases }]) => !leases.every(({ leaseId }) => held.has(leaseId)))
        .map(([index]) => index)
      for (let index = 0, wanted = size - free().length; wanted > 0; index += 1) {
        if (slots.has(index)) continue
        missing.push(index)
        wanted -= 1
      }
      for (const index of missing) {
        const claims = pools.map((pool) => ({ pool }))
        const wanted = { network, owner: ownerOf(index), claims, confirmed: true }
        const { leases } = await client.leases.reserve(wanted)
        // Else it was given away while we asked: the file says so.
        if ((slots.get(index)?.taker ?? null) === null) put(index, { leases, taker: null })
      }
    },
  }
}
