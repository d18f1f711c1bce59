/**
 * Bytes of requests that have not been answered yet: bounded for each connection and in all, so that callers who never
 * finish cannot fill the memory of the process. (3 connections of 900 streams each without an end held 1.2 GB.)
 */
import { type Refused, refused } from './errors.ts'

const MB = 1024 * 1024
/** 64 of the largest requests. */
const MOST_OF_CONNECTION = 32 * MB
const MOST_IN_ALL = 256 * MB

/** Counts bytes of one request. @throws Refused OVERLOADED */
type Count = (bytes: number) => void

/** Answers a function that counts for a request, until its answer is closed. */
export function createBodies() {
  const ofConnections = new WeakMap<object, number>()
  let inAll = 0

  /** Over HTTP/1.1 a connection has one request at a time. */
  return function countFor(
    response: { once(event: 'close', listener: () => void): unknown },
    connection: object = response,
  ): Count {
    let counted = 0
    const add = (bytes: number): number => {
      const ofConnection = (ofConnections.get(connection) ?? 0) + bytes
      ofConnections.set(connection, ofConnection)
      counted += bytes
      inAll += bytes
      return ofConnection
    }
    response.once('close', () => add(-counted))
    return (bytes) => {
      if (add(bytes) > MOST_OF_CONNECTION) throw tooMany('on this connection', MOST_OF_CONNECTION)
      if (inAll > MOST_IN_ALL) throw tooMany('of all callers', MOST_IN_ALL)
    }
  }
}

export type CountFor = ReturnType<typeof createBodies>

function tooMany(whose: string, most: number): Refused {
  const message = `requests ${whose} that are not answered yet have ${most / MB} MB, the limit; nothing was done, ask again later`
  return refused('OVERLOADED', message, {}, 1_000)
}
