/** What the callers of the bench send, and what they read of an answer. */
import { POOL } from './history.ts'
import type { Reply } from './keep-alive.ts'

export const BATCH = 100

/** Of an owner as an orchestrator would name it: all of it given, and long enough to be one. */
export function reserveOf(network: string, name: string, more = ''): string {
  return `{"network":"${network}","owner":{"kind":"container","name":"bench/${name}","uid":"${name}","incarnation":"1","node":"node-${name.length}"},"claims":[{"pool":"${POOL}"}]${more}}`
}

export function batchOf(network: string, name: string): string {
  const all = Array.from({ length: BATCH }, (_, item) => reserveOf(network, `${name}-${item}`))
  return `{"network":"${network}","requests":[${all.join()}]}`
}

export const pathOf = (method: string): string => `/ipledger.v1.LeaseService/${method}`

const LEASE_ID = /"leaseId":"([^"]+)"/g

/** @throws Error of an answer that has none, or any error. */
export function leaseIdsIn({ status, body }: Reply): readonly string[] {
  const ids = Array.from(body.matchAll(LEASE_ID), ([, id]) => id!)
  if (status === 200 && ids.length > 0 && !body.includes('"error":{')) return ids
  throw new Error(`a call was answered ${status}: ${body.slice(0, 500)}`)
}
