/**
 * Several prepared statements in one round trip: sent in one packet, answered in one. There is no Sync between them, so
 * after the first that fails the server skips the rest, `commit` included: either all of them ran or none after the
 * failure.
 *
 * What a caller must know:
 * - Success of a transaction is that the trip resolved, the answer to `commit` is COMMIT, and there are no warnings. After
 *   a failed statement of an earlier trip `commit` resolves, too, with the tag ROLLBACK. A commit with a warning is one
 *   that no synchronous standby has confirmed.
 * - After a trip that failed with an ERROR of the server, nothing of the transaction was committed, and `rollback` on the
 *   same connection confirms it. After a FATAL one or a lost connection nobody knows.
 *
 * The driver's pipeline mode ends every statement with a Sync of its own, for each of which the server sends and the
 * client wakes (ops/decisions/0005-one-sync-a-trip.md). This is a query of the kind that the driver takes from pg-cursor.
 */
import type pg from 'pg'
import { serialize } from 'pg-protocol'
import { parameterText, valueTypes } from './values.ts'

export type Statement = {
  /** Of the prepared statement: one text for ever. */
  readonly name: string
  readonly text: string
  /** An array is sent as its literal; a string as it is, so that a ready literal `{1,2,NULL}` is an array, too. */
  readonly values: readonly unknown[]
}

export const BEGIN: Statement = { name: 'begin', text: 'begin', values: [] }
export const COMMIT: Statement = { name: 'commit', text: 'commit', values: [] }
export const ROLLBACK: Statement = { name: 'rollback', text: 'rollback', values: [] }

export type Answered = {
  readonly rows: readonly Readonly<Record<string, unknown>>[]
  /** The command tag without its numbers: `INSERT`, `COMMIT`, `ROLLBACK`. */
  readonly command: string
  /** Rows returned or touched; 0 where the command counts none. */
  readonly rowCount: number
}

export type Trip = {
  /** One for each statement. */
  readonly answered: readonly Answered[]
  /** Messages of the server's WARNINGs that came during the trip. */
  readonly warnings: readonly string[]
}

/** A row came with a value that no column of ours holds. The statements ran. */
export class Unreadable extends Error {}

type Field = { readonly name: string; readonly parse: (value: string) => unknown }
type Notice = { readonly severity?: string; readonly message?: string }

/** What the driver gives to a query of the caller's own, and calls on it. */
type Wire = {
  readonly stream: { write(packet: Buffer): boolean }
  on(event: 'notice', listener: (notice: Notice) => void): void
  off(event: 'notice', listener: (notice: Notice) => void): void
}
type OwnQuery = {
  submit(wire: Wire): Error | null
  handleRowDescription(message: {
    readonly fields: readonly { readonly name: string; readonly dataTypeID: number }[]
  }): void
  handleDataRow(message: { readonly fields: readonly (string | null)[] }): void
  handleCommandComplete(message: { readonly text: string }): void
  handleReadyForQuery(): void
  handleError(error: unknown): void
}

/** Per connection, what its prepared statements return. Doubtful: sent, but the server has not confirmed it. */
type Prepared = Map<string, readonly Field[] | 'doubtful'>
const preparedOn = new WeakMap<Wire, Prepared>()

/** What is not known to be less than a WARNING counts as one: the word is in the server's language. */
const LESS_THAN_WARNING: ReadonlySet<string | undefined> = new Set(['NOTICE', 'INFO', 'LOG', 'DEBUG'])

/**
 * @throws the driver's error for the first statement that failed, or for the connection; Unreadable
 */
export function trip(client: pg.ClientBase, statements: readonly Statement[]): Promise<Trip> {
  const { promise, resolve, reject } = Promise.withResolvers<Trip>()
  client.query(createQuery(statements, resolve, reject) as unknown as pg.Submittable)
  return promise
}

/** Breaks the connection: what is in flight rejects now, whatever the server is doing. */
export function sever(client: pg.ClientBase): void {
  const { connection } = client as unknown as {
    readonly connection: { readonly stream: { destroy(): void } }
  }
  connection.stream.destroy()
}

function createQuery(
  statements: readonly Statement[],
  resolve: (trip: Trip) => void,
  reject: (error: unknown) => void,
): OwnQuery {
  const answered: Answered[] = []
  const warnings: string[] = []
  let prepared: Prepared = new Map()
  let described: readonly Field[] | undefined
  let rows: Record<string, unknown>[] = []
  let unreadable: Unreadable | undefined
  let stopListening = (): void => {}

  const onNotice = ({ severity, message }: Notice): void => {
    if (!LESS_THAN_WARNING.has(severity)) warnings.push(message ?? '')
  }

  /** As described now, or when the statement was prepared. */
  function fields(): readonly Field[] {
    if (described === undefined) {
      const known = prepared.get(statements[answered.length]!.name)
      described = known === undefined || known === 'doubtful' ? [] : known
    }
    return described
  }

  return {
    submit(wire) {
      prepared = preparedOn.get(wire) ?? prepared
      preparedOn.set(wire, prepared)
      try {
        const messages = statements.flatMap((statement) => messagesOf(statement, prepared))
        wire.on('notice', onNotice)
        stopListening = () => wire.off('notice', onNotice)
        // One write: a chunk a message, gathered by the stream, took 75 µs instead of 10.
        wire.stream.write(Buffer.concat([...messages, serialize.sync()]))
        return null
      } catch (error) {
        // Thrown here, it would leave the driver waiting for an answer to what was never sent.
        return error as Error
      }
    },
    handleRowDescription(message) {
      described = message.fields.map(({ name, dataTypeID }) => ({
        name,
        parse: valueTypes.getTypeParser(dataTypeID, 'text') as Field['parse'],
      }))
    },
    handleDataRow({ fields: cells }) {
      const row: Record<string, unknown> = {}
      try {
        for (const [index, { name, parse }] of fields().entries()) {
          const cell = cells[index]!
          row[name] = cell === null ? null : parse(cell)
        }
        rows.push(row)
      } catch (error) {
        const { name } = statements[answered.length]!
        unreadable ??= new Unreadable(`a row of ${name} cannot be read`, { cause: error })
      }
    },
    handleCommandComplete({ text }) {
      const { name } = statements[answered.length]!
      if (prepared.get(name) === 'doubtful') prepared.set(name, described ?? [])
      const [command = '', ...numbers] = text.split(' ')
      answered.push({ rows, command, rowCount: Number(numbers.at(-1) ?? 0) })
      rows = []
      described = undefined
    },
    handleReadyForQuery() {
      stopListening()
      if (unreadable === undefined) resolve({ answered, warnings })
      else reject(unreadable)
    },
    handleError(error) {
      stopListening()
      reject(error)
    },
  }
}

function messagesOf({ name, text, values }: Statement, prepared: Prepared): readonly Buffer[] {
  const bind = serialize.bind({ statement: name, values: [...values], valueMapper: parameterText })
  const known = prepared.get(name)
  if (known !== undefined && known !== 'doubtful') return [bind, serialize.execute()]
  prepared.set(name, 'doubtful')
  // Closing what was never prepared is no error.
  const before = known === 'doubtful' ? [serialize.close({ type: 'S', name })] : []
  const describe = serialize.describe({ type: 'P', name: '' })
  return [...before, serialize.parse({ name, text }), bind, describe, serialize.execute()]
}
