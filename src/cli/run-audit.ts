/** What of `ipledger audit` goes to the database, or to a file alone. */
import { once } from 'node:events'
import { checkExport, type ExportChecked } from '../ledger/check-export.ts'
import { exportLog, sealLine } from '../ledger/export-log.ts'
import { readSeals, type Seal } from '../ledger/seals.ts'
import { networksInLog } from '../ledger/shape-rows.ts'
import { connect } from '../postgres/connect.ts'
import { findDatabase } from '../postgres/database.ts'
import { keptDigests, withExport } from './export-file.ts'
import { Unclear } from './failure.ts'
import { onDatabase } from './on-database.ts'
import { sheet, table } from './print.ts'

export async function runSeals(options: Readonly<{ network?: string; json?: boolean }>): Promise<void> {
  await onLog(async (client, signal) => {
    const networks = options.network === undefined ? await networksInLog(client) : [options.network]
    const shown: Seal[] = []
    for (const network of networks) {
      for await (const seal of readSeals(client, network, { after: 0, upTo: Number.MAX_SAFE_INTEGER })) {
        signal.throwIfAborted()
        if (options.json === true) await write(sealLine(seal, null))
        else shown.push(seal)
      }
    }
    if (options.json !== true) console.log(sealTable(shown))
  })
}

export async function runExport(
  network: string,
  range: Readonly<{ from: number; to: number | null }>,
): Promise<void> {
  await onLog(async (client, signal) => {
    let lines = 0
    for await (const line of exportLog(client, network, range)) {
      signal.throwIfAborted()
      await write(line)
      lines += 1
    }
    if (lines === 0) throw new Unclear(`There is no event of network ${network}.`)
  })
}

/** True when nothing was found. */
export async function runCheck(
  file: string,
  options: Readonly<{ against?: string; json?: boolean }>,
): Promise<boolean> {
  const kept = options.against === undefined ? [] : await keptDigests(options.against)
  const checked = await withExport(file, (bytes) => checkExport(bytes, kept))
  if (options.against !== undefined && checked.against === 0 && checked.findings.length === 0)
    throw new Unclear(`${options.against} has no digest of a stretch that ${file} has.`)
  console.log(options.json === true ? JSON.stringify(checked, null, 2) : checkedText(checked))
  return checked.findings.length === 0
}

function checkedText(checked: ExportChecked): string {
  const { network, seals, events, unsealed, against, findings, omitted } = checked
  return [
    sheet([
      ['network', network],
      ['seals', String(seals)],
      ['events', String(events)],
      ['not sealed', unsealed === 0 ? '' : `${unsealed}: nothing is known of them`],
      ['held against', against === 0 ? '' : `${against} digests that were kept`],
      ['findings', findings.length === 0 ? 'none' : String(findings.length + omitted)],
    ]),
    ...(findings.length === 0 ? [] : ['', ...findings.map(({ what, message }) => `${what}: ${message}`)]),
    ...(omitted === 0 ? [] : [`and ${omitted} more`]),
  ].join('\n')
}

function sealTable(seals: readonly Seal[]): string {
  if (seals.length === 0) return 'no seals'
  return table(
    ['NETWORK', 'FIRST', 'LAST', 'EVENTS', 'SEALED', 'DIGEST'],
    seals.map(({ network, first, last, sealedAt, digest }) => [
      network,
      String(first),
      String(last),
      String(last - first + 1),
      new Date(sealedAt).toISOString().replace(/\.\d+Z$/, 'Z'),
      digest,
    ]),
  )
}

/** Past the service, on the database that DATABASE_URL names or the embedded one. */
async function onLog(
  work: (client: Awaited<ReturnType<typeof connect>>, signal: AbortSignal) => Promise<void>,
): Promise<void> {
  await onDatabase(
    (config, log) => findDatabase(config, { log }),
    async ({ url }, signal) => {
      const client = await connect({ url, applicationName: 'ipledger audit' })
      try {
        await work(client, signal)
      } finally {
        await client.end()
      }
    },
  )
}

/** As fast as it is read. */
async function write(line: string): Promise<void> {
  if (!process.stdout.write(`${line}\n`)) await once(process.stdout, 'drain')
}
