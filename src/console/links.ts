/** Links to what rows name. */

import { html } from 'htm/preact'
import type { OwnerJson } from '../gen/ipledger/v1/types_pb.ts'
import { linkTo } from './route.ts'

export const addressLink = (network: string, address = '') =>
  html`<a href=${linkTo(['address', network, address])}>${address}</a>`
export const leaseLink = (network: string, leaseId = '') =>
  html`<a href=${linkTo(['lease', network, leaseId])}>${leaseId}</a>`
export const nodeLink = (network: string, node: string) =>
  html`<a href=${linkTo(['leases', network], { node })}>${node}</a>`
export const ownerLink = (network: string, { kind, name = '' }: OwnerJson) =>
  html`<a href=${linkTo(['owner', network, name], { kind })}>${kind} ${name}</a>`
