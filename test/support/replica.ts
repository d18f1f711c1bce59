/** A server with a ledger and connections of its own, as another replica has them, or the next process after a restart. */
import { createReads } from '../../src/ledger/reads.ts'
import { createPool } from '../../src/postgres/connect.ts'
import { createLogger } from '../../src/telemetry.ts'
import { serverOn, urls } from '../api/running.ts'
import { openTestLedger, type TestLedger } from './ledger.ts'
import { type Rpc, rpc } from './rpc.ts'

export type Replica = AsyncDisposable & {
  readonly call: Rpc
  readonly url: string
  readonly ledger: TestLedger
  close(): Promise<void>
}

/** `await using other = await openReplica(…)` ends with its block. */
export async function openReplica(
  serviceUrl: string,
  options: { readonly deadlineMs?: number; readonly sockets?: number } = {},
): Promise<Replica> {
  const ledger = openTestLedger({ url: serviceUrl })
  const connections = createPool({ url: serviceUrl, applicationName: 'test replica', max: 3 })
  const intake = { database: connections, log: createLogger('silent') }
  const reads = createReads(connections)
  const server = await serverOn({
    ledger,
    reads,
    intake,
    ...(options.deadlineMs !== undefined && { deadlineMs: options.deadlineMs }),
  })
  const { url } = urls(server)
  const call = rpc(url, { sockets: options.sockets ?? 500 })
  const close = async () => {
    call.close()
    await server.close()
    await ledger.close()
    await connections.end()
  }
  return { call, url, ledger, close, [Symbol.asyncDispose]: close }
}
