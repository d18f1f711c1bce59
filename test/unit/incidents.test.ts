/**
 * The corpus is covered, and README of test/incidents is what the tests say: each names what it covers of the corpus, and the
 * rules of core/rules.ts without which it failed when it was written. `--update` writes the table.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { RULES } from '../../src/core/rules.ts'

const INCIDENTS = fileURLToPath(new URL('../incidents/', import.meta.url))
/** Automated first, in the order of the corpus; 16.9, a suite that passes whatever is taken out, is for the simulator and core/rules.test.ts. */
const FIRST_FORTY =
  '1.1 1.2 2.1 2.2 2.3 3.1 3.2 4.1 4.2 4.3 5.1 5.2 5.3 5.4 6.1 6.3 7.1 7.4 8.2 8.3 8.4 8.5 8.6 8.8 9.1 9.2 ' +
  '10.2 11.2 11.6 12.1 12.2 12.4 13.1 14.1 14.2 15.1 16.2 16.3 16.5'

const INTRODUCTION = `# Incidents

Real failures of other allocators, replayed against the real service over HTTP and a real PostgreSQL: the first forty of the
corpus, each with the assertions of its own scenario on *that* lease and *that* address. Beside the books runs a world
(\`../support/reality.ts\`): after each scene no two live workloads of it have ever shared an address, and \`verify\` finds
nothing. Agents report over the API (\`../support/agent.ts\`), jobs run when the scene says so, and time passes by moving the
clock of the service (\`../support/service.ts\`).

This table is written from the line above each test by \`../unit/incidents.test.ts\` (\`--update\`). "Fails without" names
rules of \`core/rules.ts\`: each was taken out by hand when the test was written, and it failed; nothing repeats that. What takes
rules out by name each time are the simulator and \`../core/rules.test.ts\`. A test without a rule shows what follows from no
single one, but from the shape: a constraint, the lock, what is stored.
`

type Shown = {
  readonly incident: string
  readonly slug: string
  readonly what: string
  readonly file: string
  readonly covers: string
  readonly rules: readonly string[]
}

const LINE =
  /\n *\/\/ ([^.\n]+)\.(?: Fails without ([^.\n]+)\.)?\n *(?:incident|test)\(\s*(['`])(\d+\.\d+) ([a-z0-9-]+): ([^\n]*?)\3,/g

const shown: readonly Shown[] = readdirSync(INCIDENTS)
  .filter((name) => name.endsWith('.test.ts'))
  .sort()
  .flatMap((file) =>
    [...readFileSync(INCIDENTS + file, 'utf8').matchAll(LINE)].map(
      ([, covers, rules, , incident, slug, what]) => ({
        incident: incident!,
        slug: slug!,
        // Of one that runs with several values: what it is about.
        what: what!.replaceAll(/,? ?\$\{[^}]*\}/g, ''),
        file,
        covers: covers!,
        rules: rules === undefined ? [] : rules.split(', '),
      }),
    ),
  )

test('the first forty are there, and no test stands without its line', () => {
  const titled = readdirSync(INCIDENTS)
    .filter((name) => name.endsWith('.test.ts'))
    .flatMap((name) => [...readFileSync(INCIDENTS + name, 'utf8').matchAll(/^ *(?:incident|test)\(/gm)])
  expect(shown).toHaveLength(titled.length)
  const numbers = new Set(shown.map(({ incident }) => incident))
  expect(FIRST_FORTY.split(' ').filter((one) => !numbers.has(one))).toEqual([])
})

test('each rule that a test names is one', () => {
  expect(
    shown.flatMap(({ rules }) => rules).filter((one) => !(RULES as readonly string[]).includes(one)),
  ).toEqual([])
})

test('README is what the tests say', async () => {
  const byNumber = ({ incident: a }: Shown, { incident: b }: Shown): number =>
    Number(a.split('.')[0]) - Number(b.split('.')[0]) || Number(a.split('.')[1]) - Number(b.split('.')[1])
  const rows = shown
    .toSorted(byNumber)
    .map(
      ({ incident, slug, what, file, rules, covers }) =>
        `| ${incident} ${slug} | ${what} | [${file.replace('.test.ts', '')}](${file}) | ${rules.join(', ') || '–'} | ${covers} |`,
    )
  const head = '| incident | what is shown | test | fails without | covers |\n|---|---|---|---|---|'
  await expect([INTRODUCTION, head, ...rows, ''].join('\n')).toMatchFileSnapshot(`${INCIDENTS}README.md`)
})
