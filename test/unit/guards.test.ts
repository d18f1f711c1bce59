/** The table of guards is about the source as it is: each text is there, once, and its test is a file of tests. */
import { existsSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { GUARDS } from '../mutation/guards.ts'

const CHECKOUT = fileURLToPath(new URL('../../', import.meta.url))
const read = (path: string) => readFileSync(`${CHECKOUT}${path}`, 'utf8')

test('every guard of the table can be taken out of the source as it is', () => {
  const problems = GUARDS.flatMap(({ guard, file, text, replacement, fails }) => {
    const times = read(file).split(text).length - 1
    return [
      ...(times === 1 ? [] : [`${guard}: its text is ${times} times in ${file}`]),
      ...(text === replacement ? [`${guard}: its replacement changes nothing`] : []),
      ...(existsSync(`${CHECKOUT}${fails}`) ? [] : [`${guard}: there is no ${fails}`]),
    ]
  })
  expect(problems).toEqual([])
})

test('no guard is there twice', () => {
  const names = GUARDS.map(({ guard }) => guard)
  expect(names.filter((name, at) => names.indexOf(name) !== at)).toEqual([])
})
