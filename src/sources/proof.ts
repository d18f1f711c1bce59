/**
 * The proof that a number of a log was answered to a source: a MAC over network, source and number. Its secret is a column of
 * `network_lock` and is told to nobody. A number beyond the log may say that the database is an older copy; without its proof
 * any agent could hold the whole network by a number that it made up.
 */
import { createHmac, timingSafeEqual } from 'node:crypto'

/** 32 bytes. `network` and `source` have no limit on their characters, so each is told apart. */
export function proofOf(secret: Buffer, network: string, source: string, number: number): Buffer {
  return createHmac('sha256', secret)
    .update(JSON.stringify([network, source, number]))
    .digest()
}

export function isProof(
  proof: Uint8Array,
  secret: Buffer,
  network: string,
  source: string,
  number: number,
): boolean {
  const right = proofOf(secret, network, source, number)
  return proof.length === right.length && timingSafeEqual(proof, right)
}
