/**
 * The proof that a number of a log was answered to a source: a MAC over network, source and number. Its secret is a column of
 * `network_lock` that is in no answer of the service. A number beyond the log may mean that the database is an older copy; without
 * the proof any agent could hold the whole network by an invented number.
 */
import { createHmac } from 'node:crypto'

/** 32 bytes. As JSON, because `network` and `source` may contain any separator. */
export function proofOf(secret: Buffer, network: string, source: string, number: number): Buffer {
  return createHmac('sha256', secret)
    .update(JSON.stringify([network, source, number]))
    .digest()
}
