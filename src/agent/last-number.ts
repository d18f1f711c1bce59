/**
 * The last number of the log that the service answered to this source, with its proof. It is on disk before it is used: a service
 * whose database was set back learns that from it, also when the agent has started since.
 */
import { hash } from 'node:crypto'
import { closeSync, fsyncSync, openSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

type LastHead = { readonly head: bigint; readonly proof: Uint8Array }

export class LastNumber {
  readonly #file: string

  constructor(state: string, network: string, source: string) {
    const key = hash('sha256', JSON.stringify([network, source]))
    this.#file = join(state, `last-number-${key}.json`)
  }

  /** The later of what was just answered and what is on disk. */
  latest(now: LastHead): LastHead {
    const last = this.#read()
    if (last !== null && last.head >= now.head) return last
    const { head, proof } = now
    const draft = `${this.#file}.draft`
    const entry = { head: String(head), proof: Buffer.from(proof).toString('base64') }
    writeFileSync(draft, JSON.stringify(entry), { flush: true, mode: 0o600 })
    renameSync(draft, this.#file)
    const directory = openSync(dirname(this.#file), 'r')
    fsyncSync(directory)
    closeSync(directory)
    return now
  }

  /** The service has taken it, or it is another service, which does not know the proof. */
  forget(): void {
    rmSync(this.#file, { force: true })
  }

  /** Null: there is none that can be read. */
  #read(): LastHead | null {
    try {
      const { head, proof } = JSON.parse(readFileSync(this.#file, 'utf8'))
      return { head: BigInt(head), proof: Buffer.from(proof, 'base64') }
    } catch {
      return null
    }
  }
}
