/**
 * One process at a time per directory. The lock is the kernel's (SQLite's, on an empty file): it ends with its holder
 * however that dies, and it holds between containers that share the directory, where process ids say nothing. Node has no
 * flock of its own.
 */

import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { StartRefused } from '../config.ts'

const SQLITE_BUSY = 5

/** Makes the directory if need be. Undefined: another process holds it. */
export function lockDirectory(directory: string): { readonly release: () => void } | undefined {
  let database: DatabaseSync | undefined
  try {
    // Where PostgreSQL runs as another user than we, that user must be able to pass through.
    makeDirectory(directory, process.getuid?.() === 0 ? 0o711 : 0o700)
    database = new DatabaseSync(join(directory, 'lock'), { timeout: 0 })
    database.exec('begin exclusive')
    writeFileSync(join(directory, 'holder'), `${process.pid}\n`)
    const held = database
    return { release: () => held.close() }
  } catch (error) {
    database?.close()
    if (error instanceof Error && 'errcode' in error && error.errcode === SQLITE_BUSY) return undefined
    throw new StartRefused(
      `Cannot write to ${directory} (${error instanceof Error ? error.message : error}): ` +
        'start in a directory you may write to, or set IPLEDGER_DIR.',
      { cause: error },
    )
  }
}

/** With its parents. Node's own `recursive` never ends where a parent exists and nothing can be made in it, as in /proc. */
function makeDirectory(directory: string, mode: number): void {
  const path = resolve(directory)
  if (existsSync(path)) return
  makeDirectory(dirname(path), mode)
  try {
    mkdirSync(path, { mode })
  } catch (error) {
    // Another starter was quicker.
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
  }
}

/** Process id of the holder, as it wrote it down. For people. */
export function lockHolder(directory: string): string {
  try {
    return readFileSync(join(directory, 'holder'), 'utf8').trim()
  } catch {
    return 'unknown'
  }
}
