/**
 * A real Prometheus of a test's own (Debian's package; nothing of the machine's is used): the configuration and the rules
 * that are committed, in a directory and on a port of its own. It ends with the test, and with its process however that ends.
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, openSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import type { AddressInfo } from 'node:net'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { ROOT } from './root.ts'
import { waitFor } from './wait-for.ts'

const COMMITTED = new URL('ops/prometheus/', ROOT).pathname
const START_MS = 30_000
const LONGEST_STOP_MS = 10_000

type Targets = { readonly serve: readonly string[]; readonly worker: readonly string[] }

export type Rule = {
  readonly name: string
  readonly query: string
  readonly type: 'alerting' | 'recording'
  readonly health: string
  readonly lastError?: string
  readonly state?: string
  readonly alerts?: readonly {
    readonly state: string
    readonly labels: Readonly<Record<string, string>>
    readonly annotations: Readonly<Record<string, string>>
  }[]
}

export type Prometheus = {
  /** `data` of an answer that was a success. */
  // biome-ignore lint/suspicious/noExplicitAny: JSON as it came
  readonly ask: (path: string, query?: Readonly<Record<string, string>>) => Promise<any>
  readonly rules: () => Promise<readonly Rule[]>
  readonly close: () => Promise<void>
}

export function promtool(...args: readonly string[]): string {
  return execFileSync('promtool', args, { cwd: COMMITTED, encoding: 'utf8', stdio: 'pipe' })
}

/**
 * What is committed, but for where its targets are, who reads them, and how often: a second instead of 15; and what must
 * have gone on for a minute, for 4: that it is waited for is what promtool's cases show.
 */
export function configured(home: string, targets: Targets, token: string): string {
  mkdirSync(join(home, 'rules'))
  for (const file of readdirSync(join(COMMITTED, 'rules'))) {
    const rules = readFileSync(join(COMMITTED, 'rules', file), 'utf8')
    writeFileSync(join(home, 'rules', file), rules.replaceAll(/^( +for): 1m$/gm, '$1: 4s'))
  }
  mkdirSync(join(home, 'token'))
  writeFileSync(join(home, 'token', 'prometheus'), token, { mode: 0o600 })
  const quoted = (list: readonly string[]) => list.map((one) => `'${one}'`).join(', ')
  const text = readFileSync(join(COMMITTED, 'prometheus.yml'), 'utf8')
    .replaceAll(/(scrape|evaluation)_interval: 15s/g, '$1_interval: 1s')
    .replace("'ipledger:8080', 'ipledger-2:8080'", quoted(targets.serve))
    .replace("'worker:9464'", quoted(targets.worker))
  const path = join(home, 'prometheus.yml')
  writeFileSync(path, text)
  return path
}

export async function openPrometheus(targets: Targets, token: string): Promise<Prometheus> {
  const home = mkdtempSync(join(tmpdir(), 'ipledger-prometheus-'))
  const config = configured(home, targets, token)
  const url = `http://127.0.0.1:${await freePort()}`
  const log = openSync(join(home, 'log'), 'a')
  const args = [
    `--config.file=${config}`,
    `--storage.tsdb.path=${join(home, 'data')}`,
    `--web.listen-address=${new URL(url).host}`,
  ]
  const child = spawn('setpriv', ['--pdeathsig', 'TERM', 'prometheus', ...args], {
    stdio: ['ignore', log, log],
  })

  const ask: Prometheus['ask'] = async (path, query = {}) => {
    const response = await fetch(`${url}/api/v1/${path}?${new URLSearchParams(query)}`)
    const body = (await response.json()) as { status: string; data: unknown; error?: string }
    if (body.status !== 'success') throw new Error(`${path} ${JSON.stringify(query)}: ${body.error}`)
    return body.data
  }
  const close = async () => {
    await end(child)
    rmSync(home, { recursive: true, force: true })
  }
  try {
    await waitFor(async () => child.exitCode !== null || (await fetch(`${url}/-/ready`)).ok, {
      timeout: START_MS,
      what: 'Prometheus to be ready',
    })
    if (child.exitCode !== null) throw new Error(`exit code ${child.exitCode}`)
  } catch (error) {
    const said = readFileSync(join(home, 'log'), 'utf8').slice(-2_000)
    await close()
    throw new Error(`Prometheus did not start: ${said}`, { cause: error })
  }
  return {
    ask,
    rules: async () => {
      const { groups } = await ask('rules')
      return groups.flatMap((group: { rules: readonly Rule[] }) => group.rules)
    },
    close,
  }
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const ended = once(child, 'exit')
  child.kill('SIGTERM')
  const tooLong = setTimeout(() => child.kill('SIGKILL'), LONGEST_STOP_MS)
  await ended
  clearTimeout(tooLong)
}

/** Of now: somebody else may have it before it is used, and then the start fails and says so. */
export async function freePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  await new Promise((resolve) => server.close(resolve))
  return port
}
