import type { Labels } from './owner.ts'

/** READY; REBUILDING while projections are being replaced; RECOVERING while a new era has not been observed yet. */
export type NetworkState = 'READY' | 'REBUILDING' | 'RECOVERING'

export type NetworkSettings = {
  readonly description: string
  readonly labels: Labels
}

/** An address space in which an address is unique. Its name is its key and never changes. */
export type Network = NetworkSettings & {
  readonly network: string
  readonly state: NetworkState
  readonly era: number
  readonly createdAt: number
  readonly updatedAt: number
  readonly version: number
}
