/**
 * What the pages of alerts say to type, typed on a database that has lived a day: each statement runs with the auditor's
 * rights and settings, and each command that only looks answers.
 */
import { beforeAll, describe, expect, test } from 'vitest'
import { useServer } from '../api/running.ts'
import { ipledger } from '../e2e/service.ts'
import { useAuditor } from '../support/auditor.ts'
import {
  DAY_NETWORK,
  EDGE_NETWORK,
  liveADay,
  SILENT_SOURCE,
  STORIED_ADDRESS,
  STORIED_OWNERS,
} from '../support/day-of-life.ts'
import { filledCommand, filledStatement, type PageValues, readPages } from '../support/runbooks.ts'

const running = await useServer()
const audit = await useAuditor(running.database)
const values: Record<string, string> = {
  network: DAY_NETWORK,
  pool: 'web',
  source: SILENT_SOURCE,
  address: STORIED_ADDRESS,
  owner: STORIED_OWNERS[2],
}

beforeAll(async () => {
  const { storied } = await liveADay(running)
  values.lease = storied[2]!.leaseId
}, 120_000)

/** Of these something happened that day, so that what a person looks for is there to be seen; where it is another network, which. */
const SEEN: Readonly<Record<string, PageValues>> = {
  'conflict-detected': {},
  'fence-contradicted': {},
  'lookups-failing': {},
  'new-era': { network: EDGE_NETWORK },
  'pool-nearly-exhausted': {},
  'quarantine-growing': {},
  'reap-rate': {},
  'reconciliation-held': {},
  'released-but-live': {},
  'sealing-stopped': {},
  'source-silent': {},
  stuck: {},
}

/** Those that ask the server and change nothing; `verify`, `rebuild` and `audit` have tests of their own. */
const LOOKS =
  /^(explain|history|stuck|events|reconcile --dry-run|(hold|lease|source|sighting|snapshot|pool) (list|show|get)|network get) /

for (const { path, statements, commands } of readPages()) {
  const name = /([^/]+)\.md$/.exec(path)![1]!
  // A transcript of another database, and what has nothing to type.
  if (name === 'example-review' || name === 'README') continue
  describe(name, () => {
    if (statements.length > 0) {
      test('statements run as the auditor', async () => {
        const found: number[] = []
        for (const statement of statements) {
          const filled = filledStatement(statement, { ...values, ...SEEN[name] })
          found.push((await audit.ask(filled)).length)
        }
        if (name in SEEN) expect(found[0], 'the first says who it is about').toBeGreaterThan(0)
        expect(Math.max(...found)).toBeLessThanOrEqual(2_000)
      })
    }
    const looks = commands.filter((command) => LOOKS.test(command.replace(/^ipledger /, '')))
    if (looks.length > 0) {
      test('commands that look answer', async () => {
        for (const command of looks) {
          const { code, stderr } = await ipledger(
            running,
            filledCommand(command, { ...values, ...SEEN[name] }),
          )
          expect({ command, code, stderr }).toEqual({ command, code: 0, stderr: '' })
        }
      })
    }
  })
}
