import { type RebuildReport, rebuild } from '../ledger/rebuild.ts'
import { type RebuildTenureReport, rebuildTenure } from '../ledger/rebuild-tenure.ts'
import { findDatabase } from '../postgres/database.ts'
import { endProgress, onDatabase, showProgress } from './on-database.ts'
import { sheet } from './print.ts'

/** True when nothing differs, or what differed was replaced. */
export async function runRebuild(
  options: Readonly<{ network: string; dryRun?: boolean; json?: boolean }>,
): Promise<boolean> {
  const { network, dryRun } = options
  return onDatabase(
    (config, log) => findDatabase(config, { log }),
    async ({ adminUrl }, signal) => {
      const report = await rebuild({
        adminUrl,
        network,
        dryRun,
        signal,
        onProgress: (progress) => showProgress(`${progress.network}: ${progress.what}`, progress),
      })
      endProgress()
      console.log(options.json === true ? JSON.stringify(report, null, 2) : rebuilt(report))
      return dryRun !== true || Object.values(report.counts).every((count) => count === 0)
    },
  )
}

/** False when the log itself has two at one address. */
export async function runRebuildTenure(
  options: Readonly<{ network: string; json?: boolean }>,
): Promise<boolean> {
  const { network } = options
  return onDatabase(
    (config, log) => findDatabase(config, { log }),
    async ({ adminUrl }, signal) => {
      const report = await rebuildTenure({
        adminUrl,
        network,
        signal,
        onProgress: (progress) => showProgress(`${progress.network}: ${progress.what}`, progress),
      })
      endProgress()
      console.log(options.json === true ? JSON.stringify(report, null, 2) : remade(report))
      return report.overlaps === 0
    },
  )
}

function remade({ network, events, tenures, overlaps, checkpoints, restored }: RebuildTenureReport): string {
  return sheet([
    ['network', network],
    ['events', String(events)],
    ['tenures', String(tenures)],
    ['overlaps', overlaps === 0 ? 'none' : `${overlaps}, see ipledger_audit.tenure_overlaps`],
    ['checkpoints', String(checkpoints)],
    ['constraints put back', restored.length === 0 ? 'none' : restored.join(', ')],
  ])
}

function rebuilt(report: RebuildReport): string {
  const differing = Object.entries(report.counts).filter(([, count]) => count > 0)
  return [
    sheet([
      ['network', report.network],
      ['head', String(report.head)],
      ['events', String(report.events)],
      ['addresses', String(report.addresses)],
      [
        'differing',
        differing.length === 0 ? 'none' : differing.map(([name, count]) => `${count} of ${name}`).join(', '),
      ],
      ['replaced', `${report.replaced} rows`],
      ['longest lock', `${Math.round(report.longestLockMs)} ms`],
    ]),
    ...report.differences.map(
      ({ table: name, about, what, columns }) =>
        `${name} ${about}: ${what}${columns.length === 0 ? '' : ` (${columns.join(', ')})`}`,
    ),
  ].join('\n')
}
