/** What waits is told by codes, and `stuck --code` takes them: its help says which there are. */
import { expect, test } from 'vitest'
import { STUCK_CODES } from '../../src/cli/stuck.ts'
import { createProgram } from '../../src/cli.ts'
import { STUCK_CODES as ANSWERED } from '../../src/liveness/stuck.ts'

test('stuck --help lists every code that is answered', () => {
  expect(Object.keys(STUCK_CODES)).toEqual(ANSWERED)

  let help = ''
  const stuck = createProgram().commands.find((command) => command.name() === 'stuck')!
  stuck.configureOutput({ writeOut: (text) => (help += text) }).outputHelp()
  for (const [code, means] of Object.entries(STUCK_CODES)) {
    expect(help).toMatch(new RegExp(`\\n${code} +${means.replaceAll(/[^\w ]/g, '.')}\\n`))
  }
})
