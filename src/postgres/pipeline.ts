/**
 * Several prepared statements, sent in one packet and answered in one. There is no Sync between them, so the server skips
 * everything after the first failure, `commit` included.
 *
 * What a caller must know:
 * - A transaction is committed if the pipeline resolves, the answer to `commit` is COMMIT, and there are no warnings. After a
 *   failed statement of an earlier pipeline `commit` resolves too, with the tag ROLLBACK. A warning on a commit means that no
 *   synchronous standby has confirmed it.
 * - After a pipeline that failed with an ERROR of the server, nothing of the transaction was committed, and `rollback` on the
 *   same connection confirms it. After a FATAL error, or when the connection breaks, the outcome is unknown.
 *
 * The driver's pipeline mode ends every statement with a Sync of its own, for each of which the server sends and the
 * client wakes (ops/decisions/0005-one-sync-a-pipeline.md). This is a query of the kind that the driver takes from pg-cursor.
 */
import type pg from 'pg'
import { serialize } from 'pg-protocol'
import { lostOr } from './connection-lost.ts'
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

export type Pipelined = {
  readonly answered: readonly Answered[]
  /** Messages of the server's WARNINGs that came meanwhile. */
  readonly warnings: readonly string[]
}

/** The statements ran, but a row has a value that no column of ours holds. */
export class Unreadable extends Error {}

type Field = { readonly name: string; readonly parse: (value: string) => unknown }
type Notice = { readonly severity?: string; readonly message?: string }

/** What the driver gives to a query of the caller's own. */
type Wire = {
  readonly stream: { write(packet: Buffer): boolean; destroy(error?: Error): void }
  on(event: 'notice', listener: (notice: Notice) => void): void
  off(event: 'notice', listener: (notice: Notice) => void): void
}

/** What the prepared statements of a connection return, by name, once the server has answered one. */
type Prepared = Map<string, readonly Field[]>
const preparedOn = new WeakMap<Wire, Prepared>()

/** Everything else counts as a WARNING: the server may name severities in its own language. */
const LESS_THAN_WARNING: ReadonlySet<string | undefined> = new Set(['NOTICE', 'INFO', 'LOG', 'DEBUG'])

/** @throws DatabaseError of the first statement that failed, ConnectionLost, Unreadable */
export function runPipeline(client: pg.ClientBase, statements: readonly Statement[]): Promise<Pipelined> {
  const pipeline = new Pipeline(client, statements)
  client.query(pipeline as unknown as pg.Submittable)
  return pipeline.result
}

/** Breaks the connection. What is in flight rejects at once, also when the server is silent. */
export function sever(client: pg.ClientBase, error?: Error): void {
  const { connection } = client as unknown as { readonly connection: Wire }
  connection.stream.destroy(error)
}

/** The driver calls the methods. */
class Pipeline {
  readonly #client: pg.ClientBase
  readonly #statements: readonly Statement[]
  readonly #outcome = Promise.withResolvers<Pipelined>()
  readonly result = this.#outcome.promise
  readonly #answered: Answered[] = []
  readonly #warnings: string[] = []
  #wire: Wire | undefined
  #prepared: Prepared = new Map()
  #described: readonly Field[] | undefined
  #rows: Record<string, unknown>[] = []
  #unreadable: Unreadable | undefined

  constructor(client: pg.ClientBase, statements: readonly Statement[]) {
    this.#client = client
    this.#statements = statements
  }

  submit(wire: Wire): Error | null {
    this.#wire = wire
    this.#prepared = preparedOn.getOrInsertComputed(wire, () => new Map())
    const messages: Buffer[] = []
    try {
      for (const { name, text, values } of this.#statements) {
        const bind = serialize.bind({ statement: name, values: [...values], valueMapper: parameterText })
        if (this.#prepared.has(name)) messages.push(bind)
        else {
          // It may have been prepared, and the answer not read. Closing what was never prepared is no error.
          messages.push(serialize.close({ type: 'S', name }), serialize.parse({ name, text }), bind)
          messages.push(serialize.describe({ type: 'P', name: '' }))
        }
        messages.push(serialize.execute())
      }
      wire.on('notice', this.#onNotice)
      // One write: a chunk a message, gathered by the stream, took 75 µs instead of 10.
      wire.stream.write(Buffer.concat([...messages, serialize.sync()]))
      return null
    } catch (error) {
      // Thrown here, it would leave the driver waiting for an answer to what was never sent.
      return error as Error
    }
  }

  handleRowDescription(message: {
    readonly fields: readonly { readonly name: string; readonly dataTypeID: number }[]
  }): void {
    this.#described = message.fields.map(({ name, dataTypeID }) => ({
      name,
      parse: valueTypes.getTypeParser(dataTypeID, 'text') as Field['parse'],
    }))
  }

  handleDataRow({ fields: cells }: { readonly fields: readonly (string | null)[] }): void {
    const { name: statement } = this.#statements[this.#answered.length]!
    this.#described ??= this.#prepared.get(statement) ?? []
    const row: Record<string, unknown> = {}
    try {
      for (const [index, { name, parse }] of this.#described.entries()) {
        const cell = cells[index]!
        row[name] = cell === null ? null : parse(cell)
      }
      this.#rows.push(row)
    } catch (error) {
      this.#unreadable ??= new Unreadable(`a row of ${statement} cannot be read`, { cause: error })
    }
  }

  handleCommandComplete({ text }: { readonly text: string }): void {
    const { name } = this.#statements[this.#answered.length]!
    if (!this.#prepared.has(name)) this.#prepared.set(name, this.#described ?? [])
    const [command = '', ...numbers] = text.split(' ')
    this.#answered.push({ rows: this.#rows, command, rowCount: Number(numbers.at(-1) ?? 0) })
    this.#rows = []
    this.#described = undefined
  }

  handleReadyForQuery(): void {
    this.#wire?.off('notice', this.#onNotice)
    if (this.#unreadable !== undefined) this.#outcome.reject(this.#unreadable)
    else this.#outcome.resolve({ answered: this.#answered, warnings: this.#warnings })
  }

  handleError(error: unknown): void {
    this.#wire?.off('notice', this.#onNotice)
    this.#outcome.reject(lostOr(error, this.#client))
  }

  readonly #onNotice = ({ severity, message }: Notice): void => {
    if (!LESS_THAN_WARNING.has(severity)) this.#warnings.push(message ?? '')
  }
}
