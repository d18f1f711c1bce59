/** Moving to ipledger: leases of other allocators are imported, leaked files of host-local removed. */
import { hostname } from 'node:os'
import type { SweepOptions } from '../import/host-local-gc.ts'
import type { Finding } from '../import/import.ts'
import { announce, connected } from './ask.ts'
import { SilentExit, UsageError } from './exit.ts'
import { type Format, outputOption, print, progressOf, tableOf } from './print.ts'
import { command, group, networkOptions } from './verb.ts'

type Options = Omit<SweepOptions, 'apply'> & { readonly dryRun: boolean; readonly output?: Format }

const rows = () => import('../import/rows.ts')
const READERS = {
  'host-local': async (path: string, options: Options) => (await rows()).hostLocalRows(path, options),
  whereabouts: async (path: string) => (await rows()).whereaboutsRows(path),
  kea: async (path: string) => (await import('../import/kea.ts')).keaRows(path),
  netbox: async (path: string) => (await rows()).netboxRows(path),
  csv: async (path: string) => (await rows()).csvRows(path),
}

const ON_NODE = [
  ['--node <name>', "where host-local's containers run", hostname()],
  ['--cni-cache <directory>', "where the container runtime's library says which are pods", '/var/lib/cni'],
  ['--dry-run', 'print the plan, and do nothing', false],
  outputOption(['json', 'yaml']),
  ...networkOptions(),
] as const

export const importCommands = [
  command('import <format> <path>', {
    about: 'bring the leases of another allocator into the ledger',
    argument: (format) => format.choices(Object.keys(READERS)),
    options: ON_NODE,
    help: `
<path> is a network's directory for host-local, for the others a file of at most 64 MiB. Look at the plan first: --dry-run.
Imported leases are ACTIVE and like all others. An address that another owner holds is a conflict and stays as it is. A second run
finds the leases of the first. Exit code 1: something was not imported that has not ended.

Examples:
  ipledger import host-local /var/lib/cni/networks/blue --node node-1 --dry-run
  ipledger import kea /var/lib/kea/kea-leases4.csv`,
    async run(options: Options, format: keyof typeof READERS, path: string) {
      const rows = await READERS[format](path, options).catch((error: Error) => {
        throw new UsageError(`${path} cannot be read as ${format}: ${error.message}`)
      })
      if (!options.dryRun) await announce('ipledger import', { network: options.network }, false)
      const progress = progressOf()
      const { importRows } = await import('../import/import.ts')
      const findings = await importRows(await connected(), options.network, rows, {
        apply: !options.dryRun,
        progress: (done, all) => progress('rows', done, all),
      })
      await print(options.output, findings, () => importText(findings, options))
      if (findings.some(isLeftOut)) throw new SilentExit()
    },
  }),
  command('export', {
    about: 'held leases as CSV, as "import csv" reads them',
    options: networkOptions(),
    async run({ network }: { readonly network: string }) {
      const { exportLines } = await import('../import/import.ts')
      const progress = progressOf()
      let lines = 0
      for await (const line of exportLines(await connected(), network)) {
        console.log(line)
        if (++lines % 1_000 === 0) progress('leases', lines)
      }
      progress('')
    },
  }),
  group(
    'host-local',
    'a node that still uses host-local',
    command('gc <directory>', {
      about: 'remove the files whose leases have ended, by Release or by the proof of sources',
      options: ON_NODE,
      help: `
<directory> is that of a network. Files that the ledger does not know are imported first; sources then judge them like all leases.
Run it as root on the node, again and again. A file stays while a namespace of this node has its address. Exit code 1: a file
could not be removed or imported.

Example:
  ipledger host-local gc /var/lib/cni/networks/blue --node node-1`,
      async run(options: Options, directory: string) {
        if (!options.dryRun) await announce('ipledger host-local gc', { network: options.network }, false)
        const { sweepHostLocal } = await import('../import/host-local-gc.ts')
        const { swept, imported } = await sweepHostLocal(await connected(), directory, {
          ...options,
          apply: !options.dryRun,
        })
        const wouldBe = options.dryRun ? 'would be ' : ''
        const files = swept.map(({ path: file, outcome, why }) => {
          return { file, outcome: outcome === 'removed' ? `${wouldBe}removed` : outcome, why }
        })
        const text = () => `${tableOf('no files', files)}\n\n${importText(imported, options)}`
        await print(options.output, { swept, imported }, text)
        if (swept.some(({ outcome }) => outcome === 'failed') || imported.some(isLeftOut))
          throw new SilentExit()
      },
    }),
  ),
]

const isLeftOut = ({ outcome }: Finding) => !['new', 'held', 'ended'].includes(outcome)

function importText(findings: readonly Finding[], { dryRun }: Options): string {
  const count = (wanted: Finding['outcome']) => findings.filter(({ outcome }) => outcome === wanted).length
  const made = count('new')
  const left = findings.filter(isLeftOut).length
  const others = findings.filter(({ outcome }) => outcome !== 'new' && outcome !== 'held')
  return [
    others.length === 0 ? '' : `${tableOf('', others)}\n\n`,
    `${made} ${dryRun ? 'to import' : 'imported'}, ${count('held')} already held, ${left} not imported, ${count('ended')} ended`,
    dryRun && made > 0 ? '\nNothing was done: leave --dry-run away.' : '',
  ].join('')
}
