/**
 * What a pipelined connection needs beside `query`. The driver offers no public way to either, so the two places
 * that reach into it are here.
 */
import type pg from 'pg'

type Socket = { cork(): void; uncork(): void; destroy(): void }

function socketOf(client: pg.Client): Socket {
  return (client as unknown as { readonly connection: { readonly stream: Socket } }).connection.stream
}

/** Statements issued by `issue` leave in one packet: a trip of twelve costs one write instead of twelve. */
export function inOnePacket<T>(client: pg.Client, issue: () => T): T {
  const socket = socketOf(client)
  socket.cork()
  try {
    return issue()
  } finally {
    socket.uncork()
  }
}

/** Breaks the connection: statements in flight reject now, whatever the server is doing. */
export function sever(client: pg.Client): void {
  socketOf(client).destroy()
}
