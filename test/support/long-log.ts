/**
 * A long log of a network that nobody has to wait for: leases that are reserved, confirmed and released, round after
 * round over one pool, the last of them still held. Only events are written; `rebuild` makes the projections.
 */
import { createNetwork, createPool } from './commands.ts'
import { withClient } from './database.ts'
import type { TestLedger } from './ledger.ts'

const EVENTS = `
  insert into ipledger.event (network_id, seq, type, at, actor, cause, pool_id, address, prefix_length, fencing_token,
    state, owner_kind, owner_name, owner_uid, owner_uid_named, owner_incarnation, owner_interface, node, boot, labels,
    witness, reserved_at, confirmed_at, available_at, removal_confirmed)
  select $1, $2 + 3 * n + step, (array['lease.reserved', 'lease.confirmed', 'lease.released'])[step], w.at, 'long log', 'Test',
    $3, '10.0.0.1'::inet + n % $6, 32, $2 + 3 * n + 1, case step when 1 then 'RESERVED' else 'ACTIVE' end,
    'pod', 'ns/w' || n, 'u' || n, true, 'i' || n, 'eth0', 'n' || n % 100, '', '{"app": "test"}',
    '', w.at, case when step > 1 then w.at end, case when step = 3 then w.at end, case when step = 3 then true end
  from generate_series($4::bigint, $5::bigint - 1) as n
  cross join generate_series(1, 3) as step
  cross join lateral (
    select (select max(at) from ipledger.event where network_id = $1 and seq <= $2) + n * interval '1 millisecond' as at) as w
  where step < 3 or n < $7`

/** Three events a lease, two for those still held. Answers the head. */
export async function writeLongLog(
  database: Readonly<{ adminUrl: string }>,
  ledger: TestLedger,
  network: string,
  log: { readonly leases: number; readonly held: number; readonly over: number },
): Promise<number> {
  await ledger.accept(createNetwork(network))
  const { poolId } = await ledger.accept(
    createPool({ name: 'long', cidr: '10.0.0.0/12', cooldownMs: 0 }, { network }),
  )
  const ended = log.leases - log.held
  return withClient(database.adminUrl, async (admin) => {
    await admin.query(EVENTS, [network, 2, poolId, 0, ended, log.over, ended])
    // Behind the last that ended, two numbers a lease.
    await admin.query(EVENTS.replaceAll('3 * n', `3 * $7 + 2 * (n - $7)`), [
      network,
      2,
      poolId,
      ended,
      log.leases,
      log.over,
      ended,
    ])
    await admin.query('vacuum (analyze) ipledger.event')
    const { rows } = await admin.query<{ head: number }>(
      'select max(seq) as head from ipledger.event where network_id = $1',
      [network],
    )
    return rows[0]!.head
  })
}
