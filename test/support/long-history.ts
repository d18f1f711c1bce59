/**
 * A history with everything in it that the past is asked about: v4, v6 and blocks, quarantines that lose their holder,
 * pools that are deleted and made again over the same space with leases of another size, eras.
 */
import { clearDropped } from '../../src/jobs/clear-dropped.ts'
import {
  beginEra,
  claim,
  createPool,
  deletePool,
  owner,
  quarantine,
  reap,
  release,
  reserve,
} from './commands.ts'
import type { TestLedger } from './ledger.ts'
import type { Random } from './random.ts'
import type { TestJobs } from './run-jobs.ts'
import { makeTraffic } from './traffic.ts'

const SPACE = [
  { cidr: '10.8.0.0/26', prefixLengths: [32, 30, 28] },
  { cidr: 'fd08::/120', prefixLengths: [128, 126, 124] },
] as const

export async function writeLongHistory(
  { ledger, jobs, random }: { readonly ledger: TestLedger; readonly jobs: TestJobs; readonly random: Random },
  network: string,
  rounds: { readonly rounds: number; readonly commands: number },
): Promise<void> {
  const traffic = await makeTraffic(ledger, network, random)
  for (let round = 0; round < rounds.rounds; round += 1) {
    await traffic.run(rounds.commands)
    if (round % 3 === 2)
      await ledger.accept(beginEra(Math.floor(round / 3) + 1, { network, recovering: false }))
    for (const [index, { cidr, prefixLengths }] of SPACE.entries()) {
      const name = `again${index}`
      const prefixLength = prefixLengths[(round + index) % prefixLengths.length]!
      await ledger.accept(createPool({ name, cidr, prefixLength, cooldownMs: 0 }, { network }))
      const leases = await Promise.all(
        Array.from({ length: 2 + random.below(3) }, (_, n) =>
          ledger.take(
            reserve({
              network,
              owner: owner({ name: `again/${round}-${n}`, uid: `a${round}-${n}`, incarnation: '1' }),
              claims: [claim({ pool: name })],
            }),
          ),
        ),
      )
      const [first] = leases
      await ledger.accept(quarantine({ address: first!.address }, { network }))
      // Its holder lets go of it, and it stays held.
      const kept = await ledger.take(release(first!.fencingToken, { network }))
      await ledger.accept(reap(kept.fencingToken, kept.version, { network }))
      await Promise.all(
        leases.slice(1).map(({ fencingToken }) => ledger.accept(release(fencingToken, { network }))),
      )
      await ledger.accept(deletePool(name, { network }))
      await clearDropped(jobs.context)
    }
  }
}
