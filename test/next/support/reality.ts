/**
 * What really runs in a network, apart from all books: live workloads and the addresses they use. Whoever starts a
 * workload says here what it was given, and two live ones that share an address are remembered for ever, however
 * short it was. Only a scenario that has another allocator or a false statement in it makes any.
 */
import { expect } from 'vitest'

export type Workload = {
  readonly kind: string
  readonly name: string
  readonly uid: string
  readonly incarnation: string
  readonly interface: string
  /** Several while it moves from one to the other. */
  nodes: readonly string[]
  addresses: readonly string[]
  /** The word of whoever lists it; only `terminal` is not alive. */
  state: string
}

export type Identity = Pick<Workload, 'kind' | 'name' | 'uid'>
type Given = Partial<Workload> & Pick<Workload, 'name'> & { readonly node?: string }

export type Reality = {
  /** Makes it live; its addresses are in use from now on. */
  start(given: Given): Workload
  end(workload: Workload): void
  /** The node and everything on it. */
  crash(node: string): readonly Workload[]
  readonly live: ReadonlySet<Workload>
  on(node: string): readonly Workload[]
  /** By (kind, uid), where it runs. */
  find(identity: Identity, node: string): Workload | undefined
  at(address: string): readonly Workload[]
  /** What this scenario is about made it so, and not the ledger. */
  excuse(address: string): void
  expectApart(): void
}

export function createReality(): Reality {
  const live = new Set<Workload>()
  const shared: string[] = []
  const excused = new Set<string>()
  const at = (address: string) => [...live].filter((one) => one.addresses.includes(address))

  return {
    live,
    start({ node, ...given }) {
      const workload: Workload = {
        kind: 'sandbox',
        uid: `uid-${given.name}`,
        incarnation: '1',
        interface: 'eth0',
        nodes: node === undefined ? [] : [node],
        addresses: [],
        state: 'running',
        ...given,
      }
      for (const address of workload.addresses) {
        for (const other of at(address)) shared.push(`${address}: ${other.name} and ${workload.name}`)
      }
      live.add(workload)
      return workload
    },
    end(workload) {
      live.delete(workload)
    },
    crash(node) {
      const gone = [...live].filter(({ nodes }) => nodes.includes(node))
      for (const workload of gone) {
        workload.nodes = workload.nodes.filter((one) => one !== node)
        if (workload.nodes.length === 0) live.delete(workload)
      }
      return gone
    },
    on: (node) => [...live].filter(({ nodes }) => node === '' || nodes.includes(node)),
    find: ({ kind, uid }, node) =>
      [...live].find(
        (one) => one.kind === kind && one.uid === uid && (node === '' || one.nodes.includes(node)),
      ),
    at,
    excuse(address) {
      excused.add(address)
    },
    expectApart() {
      const unexcused = shared.filter((one) => !excused.has(one.slice(0, one.indexOf(': '))))
      expect(unexcused, 'no two live workloads of the world share an address').toEqual([])
    },
  }
}
