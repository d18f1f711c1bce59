/** Writes dashboards/*.json from the sources beside it; with --check says whether they are stale, and writes nothing. */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { DASHBOARDS } from './dashboards.ts'

const DIRECTORY = new URL('./dashboards/', import.meta.url)

const wanted = new Map(
  Object.entries(DASHBOARDS).map(([name, dashboard]) => [
    `${name}.json`,
    `${JSON.stringify(dashboard, null, 2)}\n`,
  ]),
)
const found = new Map(
  readdirSync(DIRECTORY).map((file) => [file, readFileSync(new URL(file, DIRECTORY), 'utf8')]),
)

if (process.argv.includes('--check')) {
  const files = new Set([...wanted.keys(), ...found.keys()])
  const stale = [...files].filter((file) => wanted.get(file) !== found.get(file))
  if (stale.length > 0) {
    console.error(`ops/grafana/dashboards is stale (${stale.join(', ')}): npm run generate`)
    process.exitCode = 1
  }
} else {
  for (const [file, text] of wanted) writeFileSync(new URL(file, DIRECTORY), text)
}
