/** Times and durations in milliseconds, as the JSON of messages has them. */
let last = { second: 0, text: '1970-01-01T00:00:00' }

/** `2030-01-31T12:00:00.123Z`. Most are of the same second as the one before. */
export function timeText(ms: number): string {
  const second = Math.floor(ms / 1_000)
  if (second !== last.second) last = { second, text: new Date(second * 1_000).toISOString().slice(0, 19) }
  const left = ms - second * 1_000
  return left === 0 ? `${last.text}Z` : `${last.text}.${String(left).padStart(3, '0')}Z`
}

/** `90s`, `0.500s` */
export function durationText(ms: number): string {
  return `${ms % 1_000 === 0 ? ms / 1_000 : (ms / 1_000).toFixed(3)}s`
}
