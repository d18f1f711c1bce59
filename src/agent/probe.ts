/**
 * Whether a host on the link answers for an address: by ARP as RFC 5227 has it (`arping -D`: the sender's address is zero, so no
 * cache is changed), by neighbour solicitation for IPv6 (`ndisc6`).
 */
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import type { IpledgerClient } from '../client/client.ts'
import { CniError } from '../cni/cni-error.ts'
import { type Lease, Removal } from '../gen/ipledger/v1/types_pb.ts'

const run = promisify(execFile)

/**
 * The programs that a probe needs. Two packages have an `arping`; their exit codes mean the opposite of each other.
 *
 * @throws Error if one is missing
 */
export async function checkProbe(): Promise<void> {
  for (const [program, by, from] of [
    ['arping', 'iputils', 'iputils-arping'],
    ['ndisc6', 'ndisc6', 'ndisc6'],
  ] as const) {
    const { stdout } = await run(program, ['-V']).catch(() => ({ stdout: '' }))
    if (!stdout.includes(by)) throw new Error(`--probe needs the ${program} of ${by} (Debian: ${from})`)
  }
}

/** A lease whose address another host answers for ends at once, and the address is quarantined. @throws CniError inUse */
export async function probe(leases: readonly Lease[], bridge: string, client: IpledgerClient): Promise<void> {
  for (const { address, leaseId } of leases) {
    if (!(await isAnsweredFor(address, bridge))) continue
    await client.leases.release({ leaseId, removal: Removal.IN_USE_BY_ANOTHER })
    const message = `another host on ${bridge} answers for ${address}; it is quarantined. Try again`
    throw new CniError('inUse', message)
  }
}

/** @throws Error if the link can't be asked */
export async function isAnsweredFor(address: string, bridge: string): Promise<boolean> {
  const [program, args, answered, silent] = address.includes(':')
    ? (['ndisc6', ['-q', '-1', '-r', '2', '-w', '500', address, bridge], 0, 2] as const)
    : (['arping', ['-D', '-q', '-c', '2', '-w', '1', '-I', bridge, address], 1, 0] as const)
  const code = await run(program, args).then(
    () => 0,
    (failed: { readonly code: number }) => failed.code,
  )
  if (code !== answered && code !== silent) throw new Error(`${program} ${args.join(' ')}: exit code ${code}`)
  return code === answered
}
