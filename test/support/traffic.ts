/** Commands of every kind at random, many at once, as a busy network gets them. What is refused is refused. */
import type { Claim, Command, LeaseView } from '../../src/core/command.ts'
import type { Owner } from '../../src/core/owner.ts'
import {
  claim,
  confirm,
  createPool,
  deletePool,
  owner,
  quarantine,
  reap,
  release,
  releaseOf,
  removed,
  reserve,
  updateLabels,
  updatePool,
} from './commands.ts'
import type { TestLedger } from './ledger.ts'
import type { Random } from './random.ts'

export const TRAFFIC_POOLS = [
  { name: 'small', cidr: '10.1.0.0/25', cooldownMs: 0, ownerLimit: 8 },
  {
    name: 'slow',
    cidr: '10.3.0.0/22',
    exclude: ['10.3.1.0-10.3.1.99', '10.3.3.7'],
    labels: { b: '1', a: '2' },
  },
  { name: 'blocks', cidr: '10.2.0.0/20', prefixLength: 28, gateway: '10.2.0.1', cooldownMs: 0 },
  { name: 'six', cidr: 'fd00::/120', cooldownMs: 0, options: { routes: [], dns: ['fd00::53'], mtu: 1400 } },
  { name: 'wide', cidr: 'fd01::/48', cooldownMs: 0 },
] as const

export type Traffic = {
  /** So many commands, so many at a time. */
  run(commands: number, together?: number): Promise<void>
  /** Until the signal, by so many callers, each waiting for its answer. */
  hammer(callers: number, signal: AbortSignal): Promise<number>
  /** No more pool edits: projections that are lost would let them through. */
  settle(): void
}

export async function makeTraffic(ledger: TestLedger, network: string, random: Random): Promise<Traffic> {
  for (const pool of TRAFFIC_POOLS) await ledger.accept(createPool(pool, { network }))
  const held: LeaseView[] = []
  const names: readonly string[] = TRAFFIC_POOLS.map(({ name }) => name)
  let passing = 0
  let settled = false

  const anyone = (): Owner =>
    owner({
      name: `ns/w${random.below(120)}`,
      ...(random.chance(0.5) ? { uid: `u${random.below(200)}` } : {}),
      incarnation: random.chance(0.7) ? `i${random.below(4)}` : '',
    })
  const claims = (): readonly Claim[] => {
    if (random.chance(0.1)) return [claim({ pool: 'small' }), claim({ pool: 'six' })]
    const pool = random.pick(names)
    if (pool === 'slow' && random.chance(0.3))
      return [claim({ pool, address: `10.3.${random.below(4)}.${random.below(256)}` })]
    return [claim({ pool, preferPrevious: random.chance(0.3) })]
  }
  const one = (): LeaseView | undefined => held[random.below(held.length)]

  function next(): Command {
    const lease = one()
    const kind = random.below(100)
    if (lease === undefined || kind < 45) {
      return reserve({
        network,
        owner: anyone(),
        claims: claims(),
        placement: { node: `n${random.below(5)}`, boot: '', labels: random.chance(0.2) ? { x: 'y' } : {} },
        confirmWithinMs: random.chance(0.2) ? 60_000 : null,
        confirmed: random.chance(0.3),
        reopen: random.chance(0.2),
        supersedes: random.chance(0.1) ? removed({}) : null,
        liveAddresses: random.chance(0.05) ? [`10.1.0.${1 + random.below(120)}`] : [],
        requestId: random.chance(0.1) ? `r${random.below(1_000_000)}` : null,
        fingerprint: 'f',
      })
    }
    if (kind < 60) return confirm(lease.fencingToken, { network })
    if (kind < 78) return release(lease.fencingToken, { network, removalConfirmed: random.chance(0.9) })
    if (kind < 84) return releaseOf(anyone(), { network, removalConfirmed: random.chance(0.8) })
    if (kind < 87) return quarantine({ address: `10.3.0.${random.below(256)}` }, { network })
    if (kind < 92) return reap(lease.fencingToken, lease.version, { network })
    if (kind < 96) return updateLabels(lease.fencingToken, { round: String(kind) }, { network })
    return settled ? confirm(lease.fencingToken, { network }) : shape()
  }

  function shape(): Command {
    switch (random.below(6)) {
      case 0:
        return updatePool(
          'small',
          { exclude: random.chance(0.5) ? [] : ['10.1.0.64-10.1.0.127'] },
          { network },
        )
      case 1:
        return updatePool('blocks', { cidr: random.pick(['10.2.0.0/20', '10.2.0.0/21']) }, { network })
      case 2:
        return updatePool('slow', { labels: { n: String(random.below(9)) } }, { network })
      case 3:
        passing += 1
        return createPool({ name: `passing${passing}`, cidr: '10.9.0.0/28', cooldownMs: 0 }, { network })
      case 4:
        return deletePool(`passing${passing}`, { network })
      default:
        return updatePool('six', { exclude: [`fd00::${random.below(10)}0/124`] }, { network })
    }
  }

  async function submit(): Promise<void> {
    const outcome = await ledger.submit(next())
    if (!outcome.ok) return
    for (const lease of outcome.answer.leases) {
      const at = held.findIndex(({ fencingToken }) => fencingToken === lease.fencingToken)
      if (at >= 0) held.splice(at, 1)
      if (lease.state !== 'RELEASED' && lease.state !== 'REAPED') held.push(lease)
    }
    if (held.length > 2_000) held.splice(0, 500)
  }

  return {
    settle() {
      settled = true
    },
    async run(commands, together = 32) {
      for (let done = 0; done < commands; done += together) {
        await Promise.all(Array.from({ length: Math.min(together, commands - done) }, submit))
      }
    },
    async hammer(callers, signal) {
      let answered = 0
      await Promise.all(
        Array.from({ length: callers }, async () => {
          while (!signal.aborted) {
            await submit()
            answered += 1
          }
        }),
      )
      return answered
    },
  }
}
