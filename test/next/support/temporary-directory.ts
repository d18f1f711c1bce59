import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'

/** For one test; removed after it. Any user may pass through: PostgreSQL does not run as root. */
export function temporaryDirectory(): string {
  const directory = mkdtempSync(join(tmpdir(), 'ipledger-test-'))
  chmodSync(directory, 0o711)
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }))
  return directory
}
