/** Lines of the log that a caller can cause at will: one a second for each caller. The next says how many were left out. */
const EVERY_MS = 1_000

/** Callers are tokens and sources, so they are few. */
export function createLogLimit(now = () => performance.now()) {
  const callers = new Map<string, { readonly at: number; omitted: number }>()
  return (caller: string, write: (more: { readonly omitted?: number }) => void): void => {
    const before = callers.get(caller)
    if (before !== undefined && now() - before.at < EVERY_MS) {
      before.omitted += 1
      return
    }
    callers.set(caller, { at: now(), omitted: 0 })
    write(before === undefined || before.omitted === 0 ? {} : { omitted: before.omitted })
  }
}
