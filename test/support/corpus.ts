/** The corpus of incidents as the tests cite it: which are automated first, which requirements there are, and who cites what. */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

/** In the order in which they were to be automated. */
export const FIRST_FORTY: Readonly<Record<string, string>> = {
  '1.1': 'stale-index-orphan-verdict',
  '2.1': 'pending-workload-reaped',
  '2.2': 'list-order',
  '4.1': 'stale-write-after-delete',
  '5.1': 'empty-map-after-restart',
  '4.3': 'late-delete-hits-successor',
  '6.1': 'warn-and-continue',
  '7.1': 'restart-forgets-running-workloads',
  '5.3': 'allocate-before-synced',
  '8.6': 'check-then-insert',
  '3.2': 'failure-after-allocate',
  '3.1': 'crash-loop-drains-pool',
  '1.2': 'async-status-as-live-set',
  '9.1': 'name-reused-by-successor',
  '5.2': 'presumed-stale-then-erased',
  '4.2': 'late-add-after-delete',
  '10.2': 'cooling-forgotten-on-restart',
  '12.1': 'backup-older-than-reality',
  '5.4': 'only-one-family-visible',
  '2.3': 'repair-loop-between-two-writes',
  '8.2': 'swallowed-timeout',
  '16.3': 'watch-skips-events',
  '16.2': 'session-lock-lies',
  '13.1': 'second-family-fails',
  '8.8': 'quarantine-as-denial-of-service',
  '12.2': 'reboot-wipes-half',
  '9.2': 'wrong-location-recorded',
  '7.4': 'two-allocators-one-range',
  '6.3': 'terminating-on-unreachable-node',
  '12.4': 'failover-loses-acknowledged-commit',
  '14.1': 'shrink-under-live-leases',
  '14.2': 'overlap',
  '8.3': 'deadline-consumed-waiting-for-lock',
  '8.4': 'materialised-range',
  '8.5': 'optimistic-retry-starvation',
  '11.2': 'unparseable-address',
  '11.6': 'lost-update',
  '15.1': 'no-history',
  '16.5': 'legitimate-double-presence',
  '16.9': 'vacuous-tests',
}

/** How many requirements each founding incident has. */
const FOUNDING = { M: 26, K: 12, A: 10, W: 8, N: 8 } as const

export const REQUIREMENTS: readonly string[] = Object.entries(FOUNDING).flatMap(([letter, count]) =>
  Array.from({ length: count }, (_, at) => `${letter}-${String(at + 1).padStart(2, '0')}`),
)

/** Requirements of how people work, which no test of the product can show. */
export const OF_PEOPLE: Readonly<Record<string, string>> = {
  'K-12': 'a report names its neighbours: done in the notes of each change',
  'N-06': 'libraries are kept, not copied: graphile-worker, dockerode, @kubernetes/client-node',
  'M-25': 'findings of reviews are checked against the code before they are followed',
  'M-26': 'a typo that was told of is mended',
}

export type Shown = {
  readonly incident: string
  readonly slug: string
  readonly what: string
  /** Below test/incidents. */
  readonly file: string
  readonly covers: readonly string[]
  /** Where in the source, and what it is called there. */
  readonly guards: readonly { readonly file: string; readonly name: string }[]
}

const TEST =
  /\/\*\*\n((?: *\* .*\n)+?) *\*\/\n *(?:incident|test)\(\s*(['`])(\d+\.\d+) ([a-z0-9-]+): ([^\n]*?)\2,/g

/** What `covers:` and `guard:` say above each test of an incident. */
export function shownBy(file: string, source: string): readonly Shown[] {
  return [...source.matchAll(TEST)].map(([, comment, , incident, slug, what]) => {
    const line = (key: string) => new RegExp(`\\* ${key}: (.*)`).exec(comment!)?.[1] ?? ''
    return {
      incident: incident!,
      slug: slug!,
      // Of one that runs with several values: what it is about.
      what: what!.replaceAll(/,? ?\$\{[^}]*\}/g, ''),
      file,
      covers: line('covers').split(' ').filter(Boolean),
      guards: line('guard')
        .split('; ')
        .map((guard) => {
          const [path = '', name = ''] = guard.split(' ')
          return { file: path, name }
        }),
    }
  })
}

export function readIncidents(directory: string): readonly Shown[] {
  return readdirSync(directory)
    .filter((name) => name.endsWith('.test.ts'))
    .sort()
    .flatMap((name) => shownBy(name, readFileSync(join(directory, name), 'utf8')))
}

/** Ids of requirements that a file of tests names anywhere. */
export function citedIn(source: string): readonly string[] {
  return [...source.matchAll(/\b[MKAWN]-\d\d\b/g)].map(([id]) => id)
}

const INTRODUCTION = `# Incidents

Real failures of other allocators, replayed against the real service over HTTP and a real PostgreSQL: the first forty of
the corpus (\`incidents.md\`, end of section 5), each with the assertions of its own scenario on *that* lease and *that*
address. Beside the books runs a world (\`test/support/reality.ts\`): after each scene no two live workloads of it have
ever shared an address, and \`verify\` finds nothing. Agents report over the API (\`test/support/agent.ts\`), jobs run when
the scene says so, and time passes by moving everything that was into the past (\`test/support/past.ts\`).

This table is written from the \`covers:\` and \`guard:\` lines above the tests by \`test/unit/incidents.test.ts\`, which also
fails when an incident or a requirement (M, K, A, W, N of section 3) is cited by no test. Update it with
\`npx vitest run --project unit test/unit/incidents.test.ts --update\`. What is taken out of the
source, one guard at a time, and which test misses it: \`npm run guards\` (\`test/mutation/guards.ts\`).
`

export function renderReadme(
  shown: readonly Shown[],
  citedBy: ReadonlyMap<string, readonly string[]>,
): string {
  const rows = [...new Set(shown.map(({ incident }) => incident))].sort(byNumber).flatMap((incident) =>
    shown
      .filter((one) => one.incident === incident)
      .map(({ slug, what, file, guards, covers }) => {
        const code = guards.map(({ file: path, name }) => `[${name}](../../${path})`).join(', ')
        return `| ${incident} ${slug} | ${what} | [${file.replace('.test.ts', '')}](${file}) | ${code} | ${covers.join(' ')} |`
      }),
  )
  const requirements = REQUIREMENTS.map((id) => {
    const all = citedBy.get(id) ?? []
    const incidents = all.filter((file) => file.startsWith('test/incidents/'))
    // Others come and go; where an incident shows it, that is enough.
    const files = incidents.length > 0 ? incidents : all
    const named = files.slice(0, 4).map((file) => `[${file}](../../${file})`)
    const more = files.length > 4 ? `, and ${files.length - 4} more` : ''
    return `| ${id} | ${files.length > 0 ? `${named.join(', ')}${more}` : `– ${OF_PEOPLE[id] ?? ''}`} |`
  })
  return [
    INTRODUCTION,
    '| incident | what is shown | test | guard | covers |\n|---|---|---|---|---|',
    ...rows,
    '\n## Requirements of the founding incidents, and the tests that cite them\n',
    '| requirement | tests |\n|---|---|',
    ...requirements,
    '',
  ].join('\n')
}

function byNumber(a: string, b: string): number {
  const [aGroup = 0, aNumber = 0] = a.split('.').map(Number)
  const [bGroup = 0, bNumber = 0] = b.split('.').map(Number)
  return aGroup - bGroup || aNumber - bNumber
}
