/** Moving to ipledger: what other allocators hold is imported; what host-local leaks is removed. */
import { hostname } from 'node:os'
import { Argument, type Command } from 'commander'
import type { SweepOptions } from '../import/host-local-gc.ts'
import type { Finding } from '../import/import.ts'
import type { Row, Unreadable } from '../import/rows.ts'
import { REFUSED, Unclear, Unsuccessful } from './failure.ts'
import { type Format, outputOption, printData, tableOf } from './print.ts'
import { connected } from './verb.ts'

type Options = SweepOptions & { readonly output?: Format }

const FORMATS = ['host-local', 'whereabouts', 'kea', 'netbox', 'csv'] as const

async function read(
  format: (typeof FORMATS)[number],
  path: string,
  options: Options,
): Promise<readonly (Row | Unreadable)[]> {
  const rows = await import('../import/rows.ts')
  const readers = {
    'host-local': () => rows.hostLocalRows(path, options),
    whereabouts: () => rows.whereaboutsRows(path),
    kea: () => rows.keaRows(path),
    netbox: () => rows.netboxRows(path),
    csv: () => rows.csvRows(path),
  }
  try {
    return readers[format]()
  } catch (error) {
    throw new Unclear(`${path} cannot be read as ${format}: ${(error as Error).message}`)
  }
}

const onNode = (command: Command): Command =>
  command
    .option('--network <name>', 'network of the ledger', 'default')
    .option('--node <name>', "where host-local's containers run", hostname())
    .option(
      '--cni-cache <directory>',
      "where the container runtime's library says which are pods",
      '/var/lib/cni',
    )
    .option('--apply', 'do it; without, say what would be done', false)
    .addOption(outputOption())

export function importCommands(program: Command): void {
  onNode(
    program
      .command('import')
      .addArgument(new Argument('<format>').choices(FORMATS))
      .argument('<path>', "host-local: a network's directory; the others: a file")
      .description('bring the leases of another allocator into the ledger'),
  )
    .addHelpText(
      'after',
      `
Says what it would do; --apply does it. Imported leases are ACTIVE and like all others. What somebody else holds is a conflict and
stays as it is. A second run finds what the first one made. Exit code 1: something was not imported.

Examples:
  ipledger import host-local /var/lib/cni/networks/blue --node node-1
  ipledger import kea /var/lib/kea/kea-leases4.csv --apply`,
    )
    .action(async (format: (typeof FORMATS)[number], path: string, options: Options) => {
      const rows = await read(format, path, options)
      const { importRows } = await import('../import/import.ts')
      const findings = await importRows(await connected(), options.network, rows, options)
      if (!(await printData(options.output, findings))) console.log(importText(findings, options))
      if (findings.some(isLeftOut)) throw new Unsuccessful(REFUSED)
    })

  program
    .command('export')
    .description('held leases as CSV, as "import csv" reads them')
    .option('--network <name>', 'network of the ledger', 'default')
    .action(async ({ network }: { readonly network: string }) => {
      const { exportLines } = await import('../import/import.ts')
      for await (const line of exportLines(await connected(), network)) console.log(line)
    })

  const hostLocal = program.command('host-local').description('a node that still uses host-local')
  onNode(hostLocal.command('gc').argument('<directory>', "a network's directory"))
    .description('remove the files whose leases have ended, by Release or by the proof of sources')
    .addHelpText(
      'after',
      `
Files that the ledger does not know are imported first; sources then judge them like all leases. Run it as root on the node, again
and again. Nothing is removed whose address a namespace of this node has. Exit code 1: a file could not be removed or imported.

Example:
  ipledger host-local gc /var/lib/cni/networks/blue --node node-1 --apply`,
    )
    .action(async (directory: string, options: Options) => {
      const { sweepHostLocal } = await import('../import/host-local-gc.ts')
      const { swept, imported } = await sweepHostLocal(await connected(), directory, options)
      if (!(await printData(options.output, { swept, imported }))) {
        console.log(
          tableOf('no leaks', swept, {
            FILE: ({ path }) => path,
            OUTCOME: ({ outcome }) => (options.apply || outcome !== 'removed' ? outcome : 'would be removed'),
            WHY: ({ why }) => why,
          }),
        )
        console.log(`\n${importText(imported, options)}`)
      }
      if (swept.some(({ outcome }) => outcome === 'failed') || imported.some(isLeftOut))
        throw new Unsuccessful(REFUSED)
    })
}

const isLeftOut = ({ outcome }: Finding) => outcome !== 'new' && outcome !== 'held'

function importText(findings: readonly Finding[], { apply }: Options): string {
  const count = (wanted: Finding['outcome']) => findings.filter(({ outcome }) => outcome === wanted).length
  const [made, held] = [count('new'), count('held')]
  const others = findings.filter(isLeftOut)
  const summary = `${made} ${apply ? 'imported' : 'to import'}, ${held} already held, ${others.length} not imported`
  const hint = !apply && made > 0 ? '\nNothing was done: --apply imports.' : ''
  if (others.length === 0) return summary + hint
  const columns = {
    WHERE: ({ where }: Finding) => where,
    ADDRESS: ({ address }: Finding) => address,
    OUTCOME: ({ outcome }: Finding) => outcome,
    WHY: ({ why }: Finding) => why,
  }
  return `${tableOf('', others, columns)}\n\n${summary}${hint}`
}
