/** How the service's statements find their rows: the plans PostgreSQL makes, by index and condition. */
import pg from 'pg'
import { expect } from 'vitest'

/** For each statement: its values as text, and the index with the condition that must be used on each table it reads. */
export type Expected = Readonly<Record<string, readonly string[]>>
export type Case = {
  readonly values: readonly (string | null)[]
  readonly scans: Expected
  /** The rows of this table are removed where they lie; as long as it is small, its key is as good. */
  readonly byRowId?: string
}

type Node = {
  readonly 'Node Type': string
  readonly 'Relation Name'?: string
  readonly 'Index Name'?: string
  readonly 'Index Cond'?: string
  readonly Plans?: readonly Node[]
}

function nodesOf(node: Node): readonly Node[] {
  return [node, ...(node.Plans ?? []).flatMap(nodesOf)]
}

let statements = 0

/** As the service runs it: the role's settings, prepared, and the plan that does not look at the values. */
async function explain(service: pg.Client, text: string, values: Case['values']): Promise<readonly Node[]> {
  statements += 1
  const name = `p${statements}`
  await service.query(`prepare ${name} as ${text}`)
  const list = values.map((value) => (value === null ? 'null' : pg.escapeLiteral(value))).join(', ')
  const { rows } = await service.query<{ 'QUERY PLAN': readonly [{ readonly Plan: Node }] }>(
    `explain (format json) execute ${name}${list === '' ? '' : `(${list})`}`,
  )
  await service.query(`deallocate ${name}`)
  return nodesOf(rows[0]!['QUERY PLAN'][0].Plan)
}

/** `table index (columns of the condition)`, for every access to a table of the ledger. */
export async function scansOf(
  service: pg.Client,
  text: string,
  values: Case['values'],
): Promise<readonly string[]> {
  const nodes = await explain(service, text, values)
  return nodes.flatMap((node) => {
    const type = node['Node Type']
    if (!type.includes('Scan') || type === 'Function Scan' || type === 'Subquery Scan') return []
    return [`${type} ${node['Relation Name'] ?? ''} ${node['Index Name'] ?? ''} ${node['Index Cond'] ?? ''}`]
  })
}

/**
 * Pools are few. While the planner knows of a handful, any of their indexes is as good as another; with more, and
 * always with a size it does not know, the key is used.
 */
function isAnyPool(scan: string): boolean {
  return /^Index\S* Scan pool \S+ .*network_id/.test(scan)
}

export function expectScans(
  found: readonly string[],
  expected: Expected,
  name: string,
  fewPools: boolean,
): void {
  const scans = fewPools ? found.filter((scan) => !isAnyPool(scan)) : found
  for (const [index, columns] of Object.entries(expected)) {
    if (fewPools && index.startsWith('pool') && index !== 'pool_has_one_position_per_batch') continue
    const used = scans.filter((scan) => scan.includes(` ${index} `))
    expect(used, `${name} reads by ${index}: ${scans.join(' | ')}`).not.toEqual([])
    for (const scan of used) {
      for (const column of ['network_id', ...columns]) {
        expect(scan, `${name}: ${index} narrows by ${column}`).toMatch(new RegExp(`Index.*\\b${column}\\b`))
      }
    }
  }
  for (const scan of scans) {
    expect(scan, name).not.toMatch(/^(Seq|Bitmap|Tid)/)
    expect(
      Object.keys(expected).some((index) => scan.includes(` ${index} `)),
      `${name}: ${scan}`,
    ).toBe(true)
  }
}
