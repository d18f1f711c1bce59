/** The shell steps of .github/workflows, run as GitHub runs them. */
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { parse } from 'yaml'
import { ROOT } from './root.ts'

type Step = { readonly name: string; readonly run: string }

/** By name. */
export function stepsOf(workflow: string): ReadonlyMap<string, string> {
  const text = readFileSync(new URL(`.github/workflows/${workflow}.yml`, ROOT), 'utf8')
  const jobs = Object.values(parse(text).jobs) as { readonly steps?: readonly Step[] }[]
  const steps = jobs.flatMap(({ steps = [] }) => steps).filter(({ run }) => run !== undefined)
  return new Map(steps.map(({ name, run }) => [name, run]))
}

/** Its exit code and what it printed. */
export function runStep(
  script: string,
  { cwd, env }: { readonly cwd: string; readonly env: Readonly<Record<string, string>> },
) {
  const { status, stdout, stderr } = spawnSync(
    'bash',
    ['--noprofile', '--norc', '-eo', 'pipefail', '-c', script],
    { cwd, env: { PATH: process.env.PATH!, HOME: cwd, ...env }, encoding: 'utf8' },
  )
  return { status, said: stdout + stderr }
}
