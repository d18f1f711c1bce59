/** Times and durations between messages and milliseconds. */
import type { Duration, Timestamp } from '@bufbuild/protobuf/wkt'

export function timestampMessage(ms: number): Timestamp {
  const seconds = Math.floor(ms / 1000)
  return {
    $typeName: 'google.protobuf.Timestamp',
    seconds: BigInt(seconds),
    nanos: (ms - seconds * 1000) * 1_000_000,
  }
}

/** Null: the field is absent. */
export function optionalTime(ms: number | null): Timestamp | undefined {
  return ms === null ? undefined : timestampMessage(ms)
}

export function durationMessage(ms: number): Duration {
  const seconds = Math.floor(ms / 1000)
  return {
    $typeName: 'google.protobuf.Duration',
    seconds: BigInt(seconds),
    nanos: (ms - seconds * 1000) * 1_000_000,
  }
}
