/**
 * The last number of the log that the service answered to this source, with its proof. It is on disk before it is used, so that a
 * service whose database was set back learns of it, also from an agent that has started since.
 */
import { hash } from 'node:crypto'
import { closeSync, fsyncSync, openSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

type Heard = { readonly head: bigint; readonly proof: Uint8Array }

export class LastNumber {
  readonly #file: string

  constructor(state: string, network: string, source: string) {
    const whose = hash('sha256', JSON.stringify([network, source]))
    this.#file = join(state, `last-number-${whose}.json`)
  }

  /** The later of what was just answered and what is on disk. */
  heard(now: Heard): Heard {
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

  /** The service has got it, or does not know the proof: it is another one. */
  forget(): void {
    rmSync(this.#file, { force: true })
  }

  /** One that cannot be read says nothing. */
  #read(): Heard | null {
    try {
      const { head, proof } = JSON.parse(readFileSync(this.#file, 'utf8'))
      return { head: BigInt(head), proof: Buffer.from(proof, 'base64') }
    } catch {
      return null
    }
  }
}
