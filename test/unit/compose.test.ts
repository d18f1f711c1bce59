import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'

test('of ipledger, only the service that migrates knows the password of the database’s owner', () => {
  const [defaults = '', services = ''] = readFileSync('docker-compose.yml', 'utf8')
    .replace(/^ *#.*$/gm, '')
    .split(/^services:$/m)
  expect(defaults).not.toContain('POSTGRES_PASSWORD')
  const parts = services.split(/^ {2}(\S+):$/m).slice(1)
  const knowing = parts.filter(
    (_, index) => index % 2 === 0 && parts[index + 1]!.includes('POSTGRES_PASSWORD'),
  )
  // PostgreSQL itself, and the one that sets the auditor's password with psql.
  expect(knowing).toEqual(['postgres', 'migrate', 'auditor'])
})
