/**
 * A ledger in a process of its own, to be killed and stopped: `ledger-process.ts URL`. Takes commands over the channel of its
 * parent and sends what came of them; ends with its parent.
 */
import type { Command } from '../../src/core/command.ts'
import { openLedger } from '../../src/ledger/open.ts'
import { canonical } from '../support/canonical.ts'

/** `now`: of the image of this network, which is sent as text. */
export type Asked =
  | { readonly id: number; readonly command: Command; readonly withinMs: number }
  | { readonly id: number; readonly network: string; readonly now: number }

const send = (message: object) => process.send!(message, undefined, {}, () => {})
const ledger = await openLedger({ url: process.argv[2]!, connections: 3 })
process.on('disconnect', () => process.exit())
process.on('message', async (asked: Asked) => {
  const { id } = asked
  if ('command' in asked) {
    const { command, withinMs } = asked
    send({ id, answer: await ledger.submit(command, { deadline: performance.now() + withinMs }) })
    return
  }
  const image = (await ledger.image(asked.network, { deadline: performance.now() + 60_000 }))!
  send({ id, answer: { digest: image.digest, canonical: JSON.stringify(canonical(image, asked.now)) } })
})
send({ id: 0, answer: 'ready' })
