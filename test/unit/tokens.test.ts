/** The file of tokens has limits: what is put there by mistake must not fill the memory of every server. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { readTokens, TokenFileError } from '../../src/api/tokens.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

function fileOf(content: string): string {
  const file = join(temporaryDirectory(), 'tokens.jsonl')
  writeFileSync(file, content)
  return file
}

const line = (index: number) =>
  `${JSON.stringify({
    name: `t${index}`,
    role: 'auditor',
    sha256: index.toString(16).padStart(64, '0'),
    created: '2026-01-31T12:00:00Z',
  })}\n`
const lines = (count: number) => Array.from({ length: count }, (_, index) => line(index)).join('')

test('ten thousand tokens, and not one more', () => {
  expect(readTokens(fileOf(lines(10_000)))).toHaveLength(10_000)
  const file = fileOf(lines(10_001))
  expect(() => readTokens(file)).toThrow(new TokenFileError(`${file} has more than 10000 tokens.`))
})

test('sixteen megabytes, and not one byte more', () => {
  const most = 16 * 1024 * 1024
  expect(readTokens(fileOf(line(1).padEnd(most)))).toHaveLength(1)
  const file = fileOf(line(1).padEnd(most + 1))
  expect(() => readTokens(file)).toThrow(new TokenFileError(`${file} is larger than 16777216 bytes.`))
})
