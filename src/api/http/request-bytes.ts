/**
 * Bytes of requests that have not been answered yet: bounded for each connection and in all, so that requests that never
 * end cannot fill the memory of the process. (3 connections of 900 streams each without an end held 1.2 GB.)
 */
import { type Refused, refused } from '../codec/errors.ts'

const MB = 1024 * 1024
/** 64 of the largest requests. */
const MOST_OF_CONNECTION = 32 * MB
const MOST_IN_ALL = 256 * MB

export class RequestBytes {
  readonly #ofConnections = new WeakMap<object, number>()
  #inAll = 0

  /** @throws Refused OVERLOADED; they count nevertheless */
  add(connection: object, bytes: number): void {
    const ofConnection = (this.#ofConnections.get(connection) ?? 0) + bytes
    this.#ofConnections.set(connection, ofConnection)
    this.#inAll += bytes
    if (ofConnection > MOST_OF_CONNECTION) throw tooMany('on this connection', MOST_OF_CONNECTION)
    if (this.#inAll > MOST_IN_ALL) throw tooMany('of all callers', MOST_IN_ALL)
  }

  /** The answer of their request is closed. */
  remove(connection: object, bytes: number): void {
    this.#ofConnections.set(connection, (this.#ofConnections.get(connection) ?? 0) - bytes)
    this.#inAll -= bytes
  }
}

function tooMany(where: string, most: number): Refused {
  const message = `requests ${where} that are not answered yet have ${most / MB} MB, the limit; nothing was done, ask again later`
  return refused('OVERLOADED', message, {}, 1_000)
}
