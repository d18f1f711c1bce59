import type { Labels } from './owner.ts'

/** READY; REBUILDING while projections are being replaced; RECOVERING while a new era has not been observed yet. */
export type NetworkState = 'READY' | 'REBUILDING' | 'RECOVERING'

/** 1 to 63 bytes; the table `network` checks the same. */
export const NETWORK_NAME = /^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$/

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
