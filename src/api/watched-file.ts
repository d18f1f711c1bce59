/** Files that are read again when they change: tokens, certificates. Looked at each second; `fs.watch` misses what is renamed. */
import { statSync } from 'node:fs'

const POLL_MS = 1_000

/** Begun before the files are first read: what changes meanwhile is noticed. Until what is returned is called. */
export function onChange(files: readonly string[], changed: () => void): () => void {
  const stampOfAll = () => files.map(stampOf).join()
  let seen = stampOfAll()
  const polling = setInterval(() => {
    const stamp = stampOfAll()
    if (stamp === seen) return
    seen = stamp
    changed()
  }, POLL_MS).unref()
  return () => clearInterval(polling)
}

/** Differs when the file was changed, replaced or removed. */
function stampOf(file: string): string {
  try {
    const { ino, size, mtimeNs, ctimeNs } = statSync(file, { bigint: true })
    return [ino, size, mtimeNs, ctimeNs].join()
  } catch {
    return 'none'
  }
}
