import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import { HOME } from './server.ts'

/** For one test; removed after it. Any user may pass through: PostgreSQL does not run as root. */
export function temporaryDirectory(): string {
  const directory = mkdtempSync(join(HOME, 'ipledger-temporary-'))
  chmodSync(directory, 0o711)
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }))
  return directory
}
