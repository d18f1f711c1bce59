/** Files that `ipledger audit` wrote. */
import { createReadStream } from 'node:fs'
import { readExported, UnreadableExport } from '../ledger/check-export.ts'
import type { Exported } from '../ledger/verify-seals.ts'
import { Unclear } from './failure.ts'

/** What cannot be read ends in a sentence; `-` is standard input. */
export async function withExport<T>(
  file: string,
  read: (bytes: AsyncIterable<Buffer>) => Promise<T>,
): Promise<T> {
  try {
    return await read(file === '-' ? process.stdin : createReadStream(file))
  } catch (error) {
    const isFileError = error instanceof Error && 'syscall' in error
    if (!isFileError && !(error instanceof UnreadableExport)) throw error
    throw new Unclear(`${file}: ${error.message}`, { cause: error })
  }
}

export async function keptDigests(file: string): Promise<readonly Exported[]> {
  const kept = await withExport(file, readExported)
  if (kept.length === 0) throw new Unclear(`${file} has no digest of a seal.`)
  return kept
}
