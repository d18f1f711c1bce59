/** A caller in a network namespace: `caller.ts URL`. Reserves until it is killed, and prints a line for each answer. */
import { setTimeout as delay } from 'node:timers/promises'
import { ask, NETWORK } from './callers.ts'

export type Answer = {
  /** Of the machine's clock. */
  readonly begun: number
  readonly ended: number
  readonly reason: string
  readonly owner: string
  /** Null: it was refused. */
  readonly lease: { readonly leaseId: string; readonly address: string } | null
}

const [, , url] = process.argv
for (let turn = 0; ; turn += 1) {
  const begun = Date.now()
  const owner = `beside-${begun}-${turn}`
  const message = {
    ...{ network: NETWORK, owner: { kind: 'pod', name: owner, incarnation: 'i' } },
    ...{ claims: [{ pool: 'web' }], confirmed: true },
  }
  const told = await ask(url!, 'Reserve', message, { 'connect-timeout-ms': '1000' })
  const lease = told.status === 200 ? told.body.leases[0] : null
  console.log(
    JSON.stringify({ begun, ended: Date.now(), reason: told.reason, owner, lease } satisfies Answer),
  )
  await delay(50)
}
