/**
 * Whether somebody on the link answers for an address: by ARP as RFC 5227 has it (`arping -D`: the sender's address is zero, so
 * nobody's cache is changed), by neighbour solicitation for IPv6 (`ndisc6`).
 */
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'

const run = promisify(execFile)

/** The programs that a probe needs. @throws Error if one is missing */
export async function checkProbe(): Promise<void> {
  for (const [program, from] of [
    ['arping', 'iputils-arping'],
    ['ndisc6', 'ndisc6'],
  ] as const)
    await run('sh', ['-c', `command -v ${program}`]).catch(() => {
      throw new Error(`--probe needs ${program} (Debian: ${from})`)
    })
}

/** @throws Error if it can't be told */
export async function isAnsweredFor(address: string, bridge: string): Promise<boolean> {
  const [program, args, { answered, silent }] = address.includes(':')
    ? (['ndisc6', ['-q', '-1', '-r', '2', '-w', '500', address, bridge], { answered: 0, silent: 2 }] as const)
    : ([
        'arping',
        ['-D', '-q', '-c', '2', '-w', '1', '-I', bridge, address],
        { answered: 1, silent: 0 },
      ] as const)
  const code = await run(program, args).then(
    () => 0,
    (failed: { readonly code: number }) => failed.code,
  )
  if (code !== answered && code !== silent) throw new Error(`${program} ${args.join(' ')}: exit code ${code}`)
  return code === answered
}
