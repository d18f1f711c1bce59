/** A process's clocks in the hands of a test. */
import { Clock } from '../../src/ledger/clock.ts'

export class TestClock extends Clock {
  readonly #database: (() => number) | undefined
  readonly #movedBy: () => number

  /** `database`: in the place of the database's clock. `movedBy`: so much time has passed besides, and no clock was set. */
  constructor(options: { readonly database?: () => number; readonly movedBy?: () => number }) {
    super()
    this.#database = options.database
    this.#movedBy = options.movedBy ?? (() => 0)
  }

  override observe(database: number, sent: number, received: number): number {
    return super.observe(this.#database?.() ?? database, sent, received) + this.#movedBy()
  }

  override atLeast(): number {
    return super.atLeast() + this.#movedBy()
  }

  override database(): number {
    return super.database() + this.#movedBy()
  }
}

/** Both clocks of a ledger stand where a test sets them. */
export class StoppedClock extends Clock {
  at: number

  constructor(at: number) {
    super()
    this.at = at
  }

  override observe(): number {
    return this.at
  }

  override atLeast(): number {
    return this.at
  }

  override database(): number {
    return this.at
  }
}
