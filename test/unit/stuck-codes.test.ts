/** What waits is told by codes, and `stuck --code` takes them: its help says which there are. */
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { STUCK_CODES } from '../../src/cli/stuck.ts'
import { createProgram } from '../../src/cli.ts'

test('stuck --help lists every code that is answered', () => {
  const source = readFileSync(new URL('../../src/liveness/stuck.ts', import.meta.url), 'utf8')
  const union = /\nexport type StuckCode =\n((?: {2}\| '[A-Z_]+'\n)+)/.exec(source)![1]!
  const answered = [...union.matchAll(/'([A-Z_]+)'/g)].map((found) => found[1]!)
  expect(Object.keys(STUCK_CODES)).toEqual(answered)

  let help = ''
  const stuck = createProgram().commands.find((command) => command.name() === 'stuck')!
  stuck.configureOutput({ writeOut: (text) => (help += text) }).outputHelp()
  for (const [code, means] of Object.entries(STUCK_CODES)) {
    expect(help).toMatch(new RegExp(`\\n${code} +${means.replaceAll(/[^\w ]/g, '.')}\\n`))
  }
})
