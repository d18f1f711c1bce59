/** The cache of libcni, which container runtimes call plugins with: who was attached, and where. */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { type CniOwner, ownerOf } from './call.ts'

export type Attachment = {
  readonly container: string
  readonly owner: CniOwner
  /** Path of the namespace; null: the result does not say. */
  readonly netns: string | null
}

type Entry = {
  readonly kind: string
  readonly containerId: string
  readonly ifName: string
  readonly cniArgs?: readonly (readonly [string, string])[]
  readonly result?: { readonly interfaces?: readonly { readonly name: string; readonly sandbox?: string }[] }
}

/** One that can't be read, or is being written, says nothing. */
export function attachmentsIn(cniCache: string): readonly Attachment[] {
  const dir = join(cniCache, 'results')
  let files: readonly string[]
  try {
    files = readdirSync(dir)
  } catch {
    return []
  }
  return files.flatMap((file) => {
    try {
      const entry: Entry = JSON.parse(readFileSync(join(dir, file), 'utf8'))
      if (entry.kind !== 'cniCacheV1') return []
      const { containerId: container, ifName, cniArgs = [], result } = entry
      const inside = result?.interfaces?.find(({ name, sandbox }) => name === ifName && sandbox)
      const owner = ownerOf({ CNI_CONTAINERID: container, CNI_IFNAME: ifName }, new Map(cniArgs))
      return [{ container, owner, netns: inside?.sandbox ?? null }]
    } catch {
      return []
    }
  })
}
