/** `verify` and `rebuild`: commands that go to the database, past the service. */

import { readConfig } from '../config.ts'
import { type RebuildReport, rebuild } from '../ledger/rebuild.ts'
import { type NetworkVerified, verify } from '../ledger/verify.ts'
import { type Database, openDatabase } from '../postgres/database.ts'
import { createLogger, type Logger } from '../telemetry.ts'
import { Unsuccessful } from './failure.ts'
import { sheet, table } from './print.ts'

/** As shells count: 128 and the number of SIGINT. */
const INTERRUPTED = 130

/** True when nothing was found. */
export async function runVerify(
  options: Readonly<{ network?: string; full?: boolean; json?: boolean }>,
): Promise<boolean> {
  const { network, full } = options
  return onDatabase(async (database, signal) => {
    const report = await verify({
      url: database.serviceUrl,
      network,
      full,
      signal,
      onProgress: (progress) => showProgress(`${progress.network}: ${progress.what}`, progress),
    })
    endProgress()
    console.log(options.json === true ? JSON.stringify(report, null, 2) : verified(report.networks))
    return report.networks.every(({ findings }) => findings.length === 0)
  })
}

/** True when nothing differs, or what differed was replaced. */
export async function runRebuild(
  options: Readonly<{ network: string; dryRun?: boolean; json?: boolean }>,
): Promise<boolean> {
  const { network, dryRun } = options
  return onDatabase(async (database, signal) => {
    const report = await rebuild({
      adminUrl: database.adminUrl ?? database.serviceUrl,
      network,
      dryRun,
      signal,
      onProgress: (progress) => showProgress(`${progress.network}: ${progress.what}`, progress),
    })
    endProgress()
    console.log(options.json === true ? JSON.stringify(report, null, 2) : rebuilt(report))
    return dryRun !== true || Object.values(report.counts).every((count) => count === 0)
  })
}

/** Ctrl-C ends it between two slices; what it did stays, and another run goes on from there. */
async function onDatabase<T>(
  work: (database: Database, signal: AbortSignal, log: Logger) => Promise<T>,
): Promise<T> {
  const config = readConfig()
  const log = createLogger(config.logLevel)
  const interrupted = new AbortController()
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
    process.once(signal, () => interrupted.abort(new Unsuccessful(INTERRUPTED)))
  }
  await using open = new AsyncDisposableStack()
  const database = await openDatabase(config, { log, embedded: 'share' })
  open.defer(() => database.stop())
  return await work(database, interrupted.signal, log)
}

function verified(networks: readonly NetworkVerified[]): string {
  const summary = table(
    ['NETWORK', 'HEAD', 'FROM', 'EVENTS', 'FINDINGS'],
    networks.map((one) => [
      one.network,
      String(one.head),
      String(one.from),
      String(one.eventsChecked),
      one.findings.length === 0 ? 'none' : String(one.findings.length + one.omitted),
    ]),
  )
  const findings = networks.flatMap((one) => [
    ...one.findings.map(({ what, message }) => `${one.network}: ${what}: ${message}`),
    ...(one.omitted === 0 ? [] : [`${one.network}: and ${one.omitted} more`]),
  ])
  return [summary, ...(findings.length === 0 ? [] : ['', ...findings])].join('\n')
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

/** One line that is written over, where somebody watches. */
function showProgress(what: string, { done, of }: Readonly<{ done: number; of: number | null }>): void {
  if (!process.stderr.isTTY) return
  process.stderr.write(`\r\x1b[K${what} ${done}${of === null ? '' : ` of ${of}`}`)
}

function endProgress(): void {
  if (process.stderr.isTTY) process.stderr.write('\r\x1b[K')
}
