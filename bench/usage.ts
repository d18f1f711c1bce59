/** Processor time and memory of processes, where the system tells it (Linux): which of them was busy explains a rate. */
import { readFileSync } from 'node:fs'

/** USER_HZ, the same on every architecture Node runs on. */
const TICKS_PER_SECOND = 100

/** Since the process began; 0 where it is not known. */
export function cpuMs(pid: number): number {
  return ticks(pid).own
}

/** Of the postmaster and all it ever started, those that ended included. */
export function clusterCpuMs(postmaster: number): number {
  const children = read(`/proc/${postmaster}/task/${postmaster}/children`).split(' ').filter(Boolean)
  return [postmaster, ...children.map(Number)].reduce(
    (sum, pid) => sum + singleThreadMs(pid),
    ticks(postmaster).ended,
  )
}

/** Dozens of backends with less than a tick each would count as idle; a single thread's time is kept to the nanosecond. */
function singleThreadMs(pid: number): number {
  const exact = Number.parseInt(read(`/proc/${pid}/schedstat`), 10) / 1e6
  return Number.isNaN(exact) ? cpuMs(pid) : exact
}

function ticks(pid: number): { readonly own: number; readonly ended: number } {
  const stat = read(`/proc/${pid}/stat`)
  if (stat === '') return { own: 0, ended: 0 }
  // The name, in parentheses, may hold anything; the fields after it begin with the third.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  const ms = (at: number) => (Number(fields[at - 3]) * 1_000) / TICKS_PER_SECOND
  return { own: ms(14) + ms(15), ended: ms(16) + ms(17) }
}

/** The most memory that a process ever had; 0 where it is not known. */
export function mostMb(pid: number): number {
  return Number(/^VmHWM:\s*(\d+)/m.exec(read(`/proc/${pid}/status`))?.[1] ?? 0) / 1_000
}

function read(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch {
    return ''
  }
}
