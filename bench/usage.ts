/**
 * What processes use, where the system tells (Linux): which of generator, server and PostgreSQL was busy explains a
 * rate better than the rate does. Undefined elsewhere.
 */
import { readFileSync, writeFileSync } from 'node:fs'

/** USER_HZ, the same on every architecture Node runs on. */
const TICKS_PER_SECOND = 100

/** CPU time since the process began. */
export function cpuMs(pid: number): number | undefined {
  return ticks(pid)?.own
}

/** CPU time of the postmaster and all it ever started: it counts those that ended. */
export function clusterCpuMs(postmaster: number | undefined): number | undefined {
  if (postmaster === undefined) return undefined
  const ended = ticks(postmaster)?.ended
  if (ended === undefined) return undefined
  return [postmaster, ...childrenOf(postmaster)].reduce((sum, pid) => sum + singleThreadMs(pid), ended)
}

/** The most memory it has had, shared or not, since `forgetPeak`. */
export function peakBytes(pid: number): number | undefined {
  const found = /^VmHWM:\s+(\d+) kB/m.exec(read(`/proc/${pid}/status`))
  return found === null ? undefined : Number(found[1]) * 1_024
}

export function forgetPeak(pid: number): void {
  try {
    writeFileSync(`/proc/${pid}/clear_refs`, '5')
  } catch {
    // Elsewhere it is the most since it began.
  }
}

/** Memory of its own, and its share of what it has in common with others: of several processes it adds up. */
export function residentBytes(pid: number): number | undefined {
  const found = /^Pss:\s+(\d+) kB/m.exec(read(`/proc/${pid}/smaps_rollup`))
  return found === null ? undefined : Number(found[1]) * 1_024
}

export function clusterResidentBytes(postmaster: number | undefined): number | undefined {
  if (postmaster === undefined) return undefined
  const own = residentBytes(postmaster)
  if (own === undefined) return undefined
  return childrenOf(postmaster).reduce((sum, pid) => sum + (residentBytes(pid) ?? 0), own)
}

/** Dozens of backends with less than a tick each would count as idle; a single thread's time is kept to the nanosecond. */
function singleThreadMs(pid: number): number {
  const exact = Number.parseInt(read(`/proc/${pid}/schedstat`), 10) / 1e6
  return Number.isNaN(exact) ? (cpuMs(pid) ?? 0) : exact
}

function ticks(pid: number): { readonly own: number; readonly ended: number } | undefined {
  const stat = read(`/proc/${pid}/stat`)
  if (stat === '') return undefined
  // The name, in parentheses, may hold anything; the fields after it begin with the third.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  const ms = (at: number) => (Number(fields[at - 3]) * 1_000) / TICKS_PER_SECOND
  return { own: ms(14) + ms(15), ended: ms(16) + ms(17) }
}

function childrenOf(pid: number): readonly number[] {
  return read(`/proc/${pid}/task/${pid}/children`).split(' ').filter(Boolean).map(Number)
}

function read(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch {
    return ''
  }
}
