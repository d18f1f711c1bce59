/**
 * Messages are read and judged where the ledger works, so the largest legal ones hold up a batch that has its network's
 * lock (DESIGN §2, traps; ops/decisions/0004-large-messages.md). Not so long that the database takes the lock away,
 * which would cost a connection and send the batch back to its queue.
 */
import { fromJson, type JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { MOST_REQUEST_BYTES } from '../../src/api/dispatch.ts'
import { BatchReserveRequestSchema, LeaseService } from '../../src/gen/ipledger/v1/lease_pb.ts'
import { waitFor } from '../support/wait-for.ts'
import { clientOf, type Protocol, post, useServer } from './running.ts'

const running = await useServer()
await post(running, 'PoolService/CreatePool', { name: 'web', cidr: '10.0.0.0/12', cooldown: '0s' })

const LABELS = Object.fromEntries(Array.from({ length: 64 }, (_, index) => [`k${index}`, 'v']))
const ADDRESSES = Array.from({ length: 4_096 }, () => '::1')
const LONG = 'x'.repeat(230)

/** Items of a batch, each kind slow in its own way: much text, many labels, many addresses to be read. */
const KINDS: readonly ((name: string) => JsonObject)[] = [
  (name) => ({
    owner: { name, uid: name.padEnd(230, 'x'), incarnation: LONG, node: LONG, boot: LONG },
    witness: LONG,
  }),
  (name) => ({ owner: { name, labels: LABELS } }),
  (name) => ({ owner: { name }, liveAddresses: ADDRESSES }),
]

/** As many items as the limits let through. */
function largest(kind: (typeof KINDS)[number], batch: string, atomic: boolean): JsonObject[] {
  const requests: JsonObject[] = []
  let bytes = JSON.stringify({ atomic, requests }).length
  for (let index = 0; index < 1_000; index += 1) {
    const item = kind(`${batch}/${index}`)
    const request = {
      ...item,
      owner: { kind: 'pod', ...(item.owner as JsonObject) },
      claims: [{ pool: 'web' }],
    }
    bytes += JSON.stringify(request).length + 1
    if (bytes > MOST_REQUEST_BYTES) break
    requests.push(request)
  }
  return requests
}

/** Sends them all at once, in every protocol, and resolves with the number of items that were not reserved. */
async function send(): Promise<number> {
  const calls = KINDS.flatMap((kind, which) =>
    (['connect json', 'connect binary', 'grpc'] satisfies Protocol[]).flatMap((protocol) =>
      [false, true].map(async (atomic) => {
        const requests = largest(kind, `${which} ${protocol} ${atomic}`, atomic)
        const message = fromJson(BatchReserveRequestSchema, { atomic, requests })
        const { results } = await clientOf(LeaseService, running, protocol).batchReserve(message)
        expect(results).toHaveLength(requests.length)
        return results.filter(({ result }) => result.case !== 'response').length
      }),
    ),
  )
  return (await Promise.all(calls)).reduce((sum, refused) => sum + refused, 0)
}

test('the largest messages, all at once and in every protocol, cost the other callers no connection and no call', async () => {
  let done = false
  let served = 0
  const others = Promise.all(
    Array.from({ length: 8 }, async (_, caller) => {
      for (let turn = 0; !done; turn += 1) {
        const owner = { kind: 'pod', name: `small ${caller} ${turn}` }
        const made = await post(running, 'LeaseService/Reserve', { owner, claims: [{ pool: 'web' }] })
        expect(made.status, JSON.stringify(made.body)).toBe(200)
        const { leaseId } = made.body.leases[0]
        expect((await post(running, 'LeaseService/Release', { leaseId })).status).toBe(200)
        served += 1
      }
    }),
  )
  await waitFor(() => served > 50)
  const before = served
  try {
    expect(await send()).toBe(0)
  } finally {
    done = true
    await others
  }
  expect(served).toBeGreaterThan(before)
  // No batch failed: no time-out of the database's, no connection lost.
  expect(running.ledger.logged).toEqual([])
}, 60_000)
