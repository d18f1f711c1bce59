/** The cache of libcni, which container runtimes call plugins with: the attachments of this node and their namespaces. */
import { type Dirent, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { ownerOf } from './call.ts'

type Entry = {
  readonly kind: string
  readonly containerId: string
  readonly ifName: string
  readonly cniArgs?: readonly (readonly [string, string])[]
  readonly result?: { readonly interfaces?: readonly { readonly name: string; readonly sandbox?: string }[] }
}

/** A file that can't be read, or is being written, is left out. `netns` is a path; empty: the result has none. */
export function attachmentsIn(cniCache: string) {
  const dir = join(cniCache, 'results')
  let files: readonly Dirent[]
  try {
    files = readdirSync(dir, { withFileTypes: true })
  } catch {
    return []
  }
  return files.flatMap((file) => {
    try {
      // To read a FIFO would be to wait for its writer.
      if (!file.isFile()) return []
      const entry: Entry = JSON.parse(readFileSync(join(dir, file.name), 'utf8'))
      if (entry.kind !== 'cniCacheV1') return []
      const { containerId: container, ifName, cniArgs = [], result } = entry
      const inside = result?.interfaces?.find(({ name, sandbox }) => name === ifName && sandbox)
      const owner = ownerOf({ CNI_CONTAINERID: container, CNI_IFNAME: ifName }, new Map(cniArgs))
      return [{ container, owner, netns: inside?.sandbox ?? '' }]
    } catch {
      return []
    }
  })
}
