import type { Config } from '../config.ts'
import { type NetworkVerified, verify } from '../ledger/verify.ts'
import { place } from '../postgres/connect.ts'
import { findDatabase } from '../postgres/database.ts'
import { keptDigests } from './export-file.ts'
import { Unclear } from './failure.ts'
import { endProgress, onDatabase, showProgress } from './on-database.ts'
import { table } from './print.ts'

/** True when something was looked at and nothing was found. */
export async function runVerify(
  options: Readonly<{ network?: string; full?: boolean; seals?: boolean; against?: string; json?: boolean }>,
): Promise<boolean> {
  const { network, full } = options
  const against = options.against === undefined ? [] : await keptDigests(options.against)
  const seals = options.seals === true || options.against !== undefined
  return onDatabase(
    async (config, log) => ({ ...(await findDatabase(config, { log })), where: whereOf(config) }),
    async ({ url, where }, signal) => {
      const report = await verify({
        url,
        network,
        full,
        seals,
        against,
        signal,
        onProgress: (progress) => showProgress(`${progress.network}: ${progress.what}`, progress),
      })
      endProgress()
      if (report.networks.length === 0) throw new Unclear(`There is no network in ${where}.`)
      const { networks } = report
      console.log(
        options.json === true
          ? JSON.stringify({ ...report, database: where }, null, 2)
          : `${verified(networks)}\n\nThis is ${where}.`,
      )
      return report.networks.every(({ findings }) => findings.length === 0)
    },
  )
}

/** Another terminal may have another DATABASE_URL, and books in order there say nothing about these. Never a password. */
function whereOf({ databaseUrl, directory }: Config): string {
  return databaseUrl === undefined ? `the embedded PostgreSQL in ${directory}` : place(databaseUrl)
}

/** For people: what was looked at, and what was found. */
export function verified(networks: readonly NetworkVerified[]): string {
  const summary = table(
    ['NETWORK', 'HEAD', 'FROM', 'EVENTS', 'SEALED', 'KEPT DIGESTS', 'FINDINGS'],
    networks.map((one) => [
      one.network,
      String(one.head),
      String(one.from),
      String(one.eventsChecked),
      one.seals === null ? '' : `${one.seals.events} in ${one.seals.seals} seals`,
      one.exported === 0 ? '' : String(one.exported),
      one.findings.length === 0 ? 'none' : String(one.findings.length + one.omitted),
    ]),
  )
  const findings = networks.flatMap((one) => [
    ...one.findings.map(({ what, message }) => `${one.network}: ${what}: ${message}`),
    ...(one.omitted === 0 ? [] : [`${one.network}: and ${one.omitted} more`]),
  ])
  return [summary, ...(findings.length === 0 ? [] : ['', ...findings])].join('\n')
}
