/** Files of other programs: bounded, never waited for, and CSV by lines, so that a faulty row costs only itself. */
import { closeSync, constants, fstatSync, openSync, readFileSync } from 'node:fs'

/** 500,000 leases of Kea. All of it is held in memory. */
const MOST_BYTES = 64 * 1024 ** 2
const MOST_CHARACTERS = 64 * 1024

/** @throws Error a FIFO, a device or a directory; more than the most bytes; errors of the system */
export function textOf(path: string, most = MOST_BYTES): string {
  // Opening a FIFO would wait for its writer.
  const file = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK)
  try {
    const found = fstatSync(file)
    if (!found.isFile()) throw new Error('it is not a regular file; write the content into one')
    if (found.size > most) throw new Error(`it has more than ${most} bytes; split it`)
    return readFileSync(file, 'utf8').replace(/^\uFEFF/, '')
  } finally {
    closeSync(file)
  }
}

export type Cells = Readonly<Partial<Record<string, string>>>

/** The cells of a line, or its fault. */
export type Line = { readonly line: number } & ({ readonly cells: Cells } | { readonly fault: string })

/**
 * A line is a row, the first one names the columns. `split` finds the cells of a line.
 * @throws Error a column is not there
 */
export function csvLines(
  path: string,
  columns: readonly string[],
  split: (line: string, count: number) => readonly string[] | null = quoted,
): readonly Line[] {
  const [first = '', ...lines] = textOf(path).split(/\r?\n/)
  const head = quoted(first) ?? []
  const missing = columns.filter((column) => !head.includes(column))
  if (missing.length > 0) throw new Error(`its first line does not name the columns ${missing.join(', ')}`)
  return lines.flatMap((text, index): Line | readonly [] => {
    const line = index + 2
    if (text.trim() === '') return []
    if (text.length > MOST_CHARACTERS)
      return { line, fault: `the line has more than ${MOST_CHARACTERS} characters` }
    const cells = split(text, head.length)
    if (cells === null) return { line, fault: 'a cell with a quote is not quoted as in CSV' }
    if (cells.length !== head.length)
      return { line, fault: `it has ${cells.length} cells, and the first line ${head.length}` }
    return { line, cells: Object.fromEntries(head.map((column, at) => [column, cells[at]!])) }
  })
}

const CELL = /(?:"((?:[^"]|"")*)"|([^",]*))(,|$)/y

/** As RFC 4180 has them; null: a quote is not where it may be. */
export function quoted(line: string): readonly string[] | null {
  const cells: string[] = []
  CELL.lastIndex = 0
  for (;;) {
    const found = CELL.exec(line)
    if (found === null) return null
    cells.push(found[1]?.replaceAll('""', '"') ?? found[2]!.trim())
    if (found[3] === '') return cells
  }
}
