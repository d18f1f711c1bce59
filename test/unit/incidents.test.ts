/** The corpus is covered: each of the first forty and each requirement is cited by a test, and README says which guard it is about. */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import {
  citedIn,
  FIRST_FORTY,
  OF_PEOPLE,
  REQUIREMENTS,
  readIncidents,
  renderReadme,
} from '../support/corpus.ts'

const CHECKOUT = fileURLToPath(new URL('../../', import.meta.url))
const INCIDENTS = join(CHECKOUT, 'test/incidents')
const shown = readIncidents(INCIDENTS)

/** By requirement: the files of tests that name it. */
const citedBy = new Map<string, string[]>()
for (const path of readdirSync(join(CHECKOUT, 'test'), { recursive: true, encoding: 'utf8' }).sort()) {
  if (!path.endsWith('.test.ts')) continue
  for (const id of new Set(citedIn(readFileSync(join(CHECKOUT, 'test', path), 'utf8')))) {
    citedBy.set(id, [...(citedBy.get(id) ?? []), `test/${path}`])
  }
}

test('forty incidents are automated first, and each has a test that bears its number and name', () => {
  expect(Object.keys(FIRST_FORTY)).toHaveLength(40)
  const named = new Map(shown.map(({ incident, slug }) => [incident, slug]))
  expect(
    Object.fromEntries(Object.keys(FIRST_FORTY).map((incident) => [incident, named.get(incident)])),
  ).toEqual(FIRST_FORTY)
})

test('every test of an incident says what it covers, and which guard in the source it is about', () => {
  const bare = shown.filter(({ covers }) => covers.length === 0).map(({ what }) => what)
  expect(bare).toEqual([])
  const wrong = shown.flatMap(({ incident, guards }) =>
    guards
      .filter(({ file, name }) => {
        const path = join(CHECKOUT, file)
        return name === '' || !existsSync(path) || !readFileSync(path, 'utf8').includes(name)
      })
      .map(({ file, name }) => `${incident}: there is no ${name} in ${file}`),
  )
  expect(wrong).toEqual([])
})

test('no test of an incident stands without its lines', () => {
  const titled = readdirSync(INCIDENTS)
    .filter((name) => name.endsWith('.test.ts'))
    .flatMap((name) => [...readFileSync(join(INCIDENTS, name), 'utf8').matchAll(/^ *(?:incident|test)\(/gm)])
  expect(shown).toHaveLength(titled.length)
})

test('every requirement of the founding incidents is cited by a test, but for those that are of people', () => {
  const uncited = REQUIREMENTS.filter((id) => !citedBy.has(id) && !(id in OF_PEOPLE))
  expect(uncited).toEqual([])
  expect(Object.keys(OF_PEOPLE).filter((id) => !REQUIREMENTS.includes(id))).toEqual([])
})

test('README is what the tests say', async () => {
  await expect(renderReadme(shown, citedBy)).toMatchFileSnapshot(join(INCIDENTS, 'README.md'))
})
