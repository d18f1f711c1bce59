/** What sources reported, and what they see. */

import { type Command, InvalidArgumentError } from 'commander'
import {
  ListSightingsResponseSchema,
  ListSnapshotsResponseSchema,
  type Sighting,
  type Snapshot,
} from '../gen/ipledger/v1/liveness_pb.ts'
import { type Connection, connect } from './connection.ts'
import { Unclear } from './failure.ts'
import { type CallOptions, given, seq, withJson, withNetwork, withPage } from './options.ts'
import { printAnswer, printMore, sheet, table, time } from './print.ts'

type PageOptions = CallOptions & Readonly<{ pageSize?: number; pageToken?: string }>
type SightingOptions = PageOptions &
  Readonly<{ source?: string; address?: string; vanished?: boolean; sequence?: bigint }>

/** Sightings shown with a snapshot. */
const SHOWN = 100

export function snapshotCommands(program: Command): void {
  const snapshot = program.command('snapshot').description('what sources reported')

  withPage(withJson(withNetwork(snapshot.command('list'))))
    .argument('<source>')
    .description('reports that changed something, the latest first')
    .action(async (source: string, options: PageOptions) => {
      const { network, pageSize, pageToken } = options
      const answer = await connect().liveness.listSnapshots({
        source,
        ...given({ network, pageSize, pageToken }),
      })
      printAnswer(options, ListSnapshotsResponseSchema, answer, ({ snapshots }) => snapshotTable(snapshots))
      printMore(options, answer.nextPageToken)
    })

  withJson(withNetwork(snapshot.command('show')))
    .argument('<source>')
    .argument('<sequence>', 'its number', numberOf)
    .description('one report, and what it began and ended')
    .addHelpText(
      'after',
      `
--json prints the report alone. What it began and ended, page by page:
  ipledger sighting list --source SOURCE --sequence N --vanished`,
    )
    .action(async (source: string, sequence: bigint, { network, ...options }: CallOptions) => {
      const client = connect()
      const answer = await client.liveness.listSnapshots({ source, sequence, ...given({ network }) })
      if (answer.snapshots.length === 0) {
        throw new Unclear(
          `No report ${sequence} of ${source} is kept: it changed nothing, is too old, or never was.`,
        )
      }
      const { sightings, more } = options.json
        ? { sightings: [], more: false }
        : await sightingsOf(client, { source, sequence, network })
      printAnswer(options, ListSnapshotsResponseSchema, answer, ({ snapshots }) =>
        [...snapshots.map(snapshotSheet), sightingTable(sightings)].join('\n\n'),
      )
      if (more) {
        console.error(
          `There is more: ipledger sighting list --source ${source} --sequence ${sequence} --vanished`,
        )
      }
    })

  const sighting = program.command('sighting').description('what sources see')

  withPage(withJson(withNetwork(sighting.command('list').description('who is seen where, by address'))))
    .option('--source <id>', 'only by this source')
    .option('--address <address>', 'only there; of a block that is leased as one, anywhere in it')
    .option('--vanished', 'also what is listed no more')
    .option('--sequence <n>', 'only what this report of --source began or ended', numberOf)
    .action(async (options: SightingOptions) => {
      const { network, source, address, vanished, sequence, pageSize, pageToken } = options
      const answer = await connect().liveness.listSightings(
        given({ network, source, address, vanished, sequence, pageSize, pageToken }),
      )
      printAnswer(options, ListSightingsResponseSchema, answer, ({ sightings }) => sightingTable(sightings))
      printMore(options, answer.nextPageToken)
    })
}

/** The API's 0 means all of them. */
function numberOf(text: string): bigint {
  const number = seq(text)
  if (number === 0n) throw new InvalidArgumentError('Snapshots are numbered from 1.')
  return number
}

/** The first of them. A page that is not the last may be empty. */
async function sightingsOf(
  { liveness }: Connection,
  of: Readonly<{ source: string; sequence: bigint; network: string | undefined }>,
): Promise<Readonly<{ sightings: readonly Sighting[]; more: boolean }>> {
  const { source, sequence, network } = of
  const asked = { source, sequence, vanished: true, pageSize: SHOWN, ...given({ network }) }
  const sightings: Sighting[] = []
  let pageToken = ''
  do {
    const page = await liveness.listSightings({ ...asked, pageToken })
    sightings.push(...page.sightings)
    pageToken = page.nextPageToken
  } while (pageToken !== '' && sightings.length < SHOWN)
  return { sightings, more: pageToken !== '' }
}

function snapshotTable(snapshots: readonly Snapshot[]): string {
  if (snapshots.length === 0) return 'no snapshots'
  return table(
    ['SEQUENCE', 'REPORTED', 'BEGUN', 'AT', 'EPOCH', 'ENTRIES', 'BEGAN', 'ENDED', 'TAKEN AS'],
    snapshots.map((one) => [
      String(one.sequence),
      time(one.reportedAt),
      time(one.begunAt),
      headOf(one),
      one.epoch,
      String(one.entries),
      String(one.appeared),
      String(one.vanished),
      takenAs(one),
    ]),
  )
}

function snapshotSheet(snapshot: Snapshot): string {
  return sheet([
    ['snapshot', String(snapshot.sequence)],
    ['source', snapshot.source],
    ['taken as', takenAs(snapshot)],
    ['reported', time(snapshot.reportedAt)],
    ['begun', time(snapshot.begunAt)],
    ['at number', headOf(snapshot)],
    ['era', String(snapshot.era)],
    ['epoch', snapshot.epoch],
    ['entries', String(snapshot.entries)],
    ['unreadable', snapshot.unreadable === 0 ? '' : String(snapshot.unreadable)],
    ['ignored', snapshot.ignored === 0 ? '' : String(snapshot.ignored)],
    ['began', String(snapshot.appeared)],
    ['ended', String(snapshot.vanished)],
  ])
}

function headOf({ head }: Snapshot): string {
  return head === 0n ? '' : String(head)
}

function takenAs({ complete, counted, because }: Snapshot): string {
  if (!complete) return `partial: ${because.join(', ')}`
  if (counted) return 'complete, counted'
  return because.length === 0 ? 'complete' : `complete, not counted: ${because.join(', ')}`
}

function sightingTable(sightings: readonly Sighting[]): string {
  if (sightings.length === 0) return 'no sightings'
  return table(
    ['ADDRESS', 'SOURCE', 'OWNER', 'UID', 'INTERFACE', 'NODE', 'STATE', 'SINCE', 'UNTIL'],
    sightings.map(({ owner, ...one }) => [
      one.address,
      one.source,
      owner === undefined ? '' : `${owner.kind} ${owner.name}`,
      owner === undefined || owner.uid === owner.name ? '' : owner.uid,
      owner?.interface ?? '',
      owner?.node ?? '',
      one.state,
      time(one.appearedAt),
      time(one.vanishedAt),
    ]),
  )
}
