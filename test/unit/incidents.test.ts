/**
 * docs/incidents.md is what test/incidents shows: which test, and the rules without which it fails. `--update`
 * writes these cells; of incidents without a scene they are written by hand.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { textOf } from '../support/docs.ts'
import { ROOT } from '../support/root.ts'

const PAGE = 'docs/incidents.md'
const INCIDENTS = fileURLToPath(new URL('../incidents/', import.meta.url))
/** What follows from no single rule: a constraint, the lock, what is stored. */
const NO_RULE = 'the shape of the log and its constraints'

const SCENE = /\n *(?:incident|playWithout)\(\s*['`](\d+\.\d+) .*\s*\[([^\]]*)\]/g

const scenes = readdirSync(INCIDENTS)
  .filter((name) => name.endsWith('.test.ts'))
  .sort()
  .flatMap((file) =>
    [...readFileSync(INCIDENTS + file, 'utf8').matchAll(SCENE)].map(([, incident, rules]) => ({
      incident: incident!,
      file,
      rules: rules!.match(/[A-Z_]+/g) ?? [],
    })),
  )

test('each scene is in the page, and the page says what shows each incident', async () => {
  const listed = new Set([...textOf(PAGE).matchAll(/^\| (\d+\.\d+) \|/gm)].map(([, one]) => one!))
  expect(scenes.filter(({ incident }) => !listed.has(incident))).toEqual([])
  const page = textOf(PAGE).replaceAll(/^\| (\d+\.\d+) \| (.*) \| .* \| .* \|$/gm, (row, incident, what) => {
    const found = scenes.filter((one) => one.incident === incident)
    if (found.length === 0) return row
    const rules = new Set(found.flatMap((one) => one.rules))
    const files = new Set(found.map(({ file }) => file))
    const links = [...files].map((file) => `[${file.replace('.test.ts', '')}](../test/incidents/${file})`)
    return `| ${incident} | ${what} | ${[...rules].map((one) => `\`${one}\``).join(', ') || NO_RULE} | ${links.join(', ')} |`
  })
  expect(page).not.toMatch(/\| {2}\|/)
  for (const [, same] of page.matchAll(/\| as (\d+\.\d+) \|$/gm)) expect(listed).toContain(same)
  await expect(page).toMatchFileSnapshot(fileURLToPath(new URL(PAGE, ROOT)))
})
