/** README.md, docs and what else is written for people, by their paths in the checkout. */
import { readdirSync, readFileSync } from 'node:fs'
import { ROOT } from './root.ts'

const inside = (folder: string): readonly string[] =>
  readdirSync(new URL(folder, ROOT))
    .filter((name) => name.endsWith('.md'))
    .map((name) => folder + name)

/** What a user reads from top to bottom, in this order. */
export const PAGES: readonly string[] = ['README.md', ...inside('docs/')]

/** All that links go from. */
export const LINKING: readonly string[] = [
  ...inside('./').map((path) => path.slice(2)),
  ...['docs/', 'ops/decisions/', 'ops/runbooks/'].flatMap(inside),
]

export const textOf = (path: string): string => readFileSync(new URL(path, ROOT), 'utf8')

/** Rows of the table under this head, cell by cell. */
export function tableIn(path: string, head: string): readonly (readonly string[])[] {
  const lines = textOf(path).split('\n')
  const from = lines.indexOf(head) + 2
  if (from === 1) throw new Error(`${path} has no table with the head ${head}`)
  const rows = lines.slice(from)
  return rows.slice(0, rows.findIndex((line) => !line.startsWith('|')) >>> 0).map((row) =>
    row
      .slice(1, -1)
      .split(/(?<!\\)\|/)
      .map((cell) => cell.trim()),
  )
}
