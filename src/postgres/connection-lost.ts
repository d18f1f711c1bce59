/**
 * PostgreSQL gave no answer: the connection could not be made, or it broke. Everything else that a statement throws is the
 * server's `DatabaseError`, known by its SQLSTATE, or a defect of ours. No text of an error is read.
 */
import type { Socket } from 'node:net'
import pg from 'pg'

/** The message is one sentence without the password, the cause is what the driver threw. */
export class ConnectionLost extends Error {
  override readonly name = 'ConnectionLost'
  /** The system's: ECONNREFUSED. */
  readonly code: string | undefined

  constructor(message: string, cause: unknown) {
    super(message, { cause })
    const first = cause instanceof AggregateError ? cause.errors[0] : cause
    this.code = first instanceof Error && 'code' in first ? String(first.code) : undefined
  }
}

/** The driver takes no statement once the server says that it ends the connection; the end of the socket is read later. */
export function lostOr(error: unknown, client: pg.ClientBase): unknown {
  const { connection, _queryable: isUsable } = client as unknown as {
    readonly connection: { readonly stream: Pick<Socket, 'destroyed'> }
    readonly _queryable: boolean
  }
  const isLost = connection.stream.destroyed || !isUsable
  if (!isLost || error instanceof pg.DatabaseError) return error
  const why = error instanceof Error ? error.message : String(error)
  return new ConnectionLost(`The connection to PostgreSQL was lost: ${why}.`, error)
}

export const INSUFFICIENT_PRIVILEGE = '42501'

export function sqlState(error: unknown): string | undefined {
  return error instanceof pg.DatabaseError ? error.code : undefined
}

/** SQLSTATE classes: connection, login, a database that is not ours yet, resources, an operator or a time-out, the system itself. */
const AWAY_CLASSES: ReadonlySet<string> = new Set(['08', '28', '3D', '53', '57', '58'])
/** A standby cancels a read that stands in the way of replay; a deadlock; a lock, or a transaction, waited too long. */
const AWAY_CODES: ReadonlySet<string> = new Set(['40001', '40P01', '55P03', '25P03', '25P04'])

/** The database did not answer, or cannot now. The statement itself may be right. */
export function isAway(error: unknown): boolean {
  const code = sqlState(error) ?? ''
  return error instanceof ConnectionLost || AWAY_CLASSES.has(code.slice(0, 2)) || AWAY_CODES.has(code)
}
