/**
 * Batches: items are commands of their own, decided in order, or one command that does all or nothing. Each is refused as it
 * would be alone, so the refusal names the fields of the item.
 */
import type { Answer, Command } from '../../core/command.ts'
import type * as pb from '../../gen/ipledger/v1/lease_pb.ts'
import type { Decoded } from '../codec/decode-request.ts'
import { invalidField, itemErrorView, Refused } from '../codec/errors.ts'
import { leaseView } from '../codec/views.ts'
import { allowedNetwork, type Backend, type Call, type Content, commandOf, submit } from '../method.ts'
import { decodeConfirm, decodeRelease, decodeReserve } from './decode-lease.ts'

type Item = { readonly network: string; readonly requestId: string }
type ItemCommand = Command<'reserve' | 'confirm' | 'release'>
type Batch<I> = Item & {
  readonly requests: readonly (I | Refused)[]
  readonly atomic: boolean
  readonly validateOnly?: boolean
}

export const batchReserve = batchOf(decodeBatchedReserve)
export const batchConfirm = batchOf(decodeConfirm)
export const batchRelease = batchOf(decodeRelease)

function decodeBatchedReserve(item: Decoded<pb.ReserveRequest>, call: Call) {
  if (item.validateOnly)
    throw invalidField('validateOnly', 'is not for an item of a batch; give it to the batch')
  return decodeReserve(item, call)
}

function batchOf<I extends Item>(decode: (item: I, call: Call) => Content<ItemCommand['type']>) {
  return async (batch: Batch<I>, call: Call, backend: Backend) => {
    const { requests, atomic, requestId } = batch
    const network = allowedNetwork(call, batch.network)
    if (requests.length === 0) throw invalidField('requests', 'required: 1 to 1000 requests')
    if (!atomic && requestId !== '') {
      throw invalidField('requestId', 'is only for an atomic batch; give each item its own')
    }
    const items = requests.map((item) =>
      orRefused((): ItemCommand => {
        if (item instanceof Refused) throw item
        if (item.network !== '' && item.network !== network)
          throw invalidField('network', `the batch is about network ${network}`)
        if (atomic && item.requestId !== '')
          throw invalidField('requestId', 'an item of an atomic batch has none; give it to the batch')
        return commandOf(call, item.requestId, decode({ ...item, network }, call))
      }),
    )
    const answers = await (atomic ? allOrNothing : eachAlone)(items, batch, network, call, backend)
    return { results: answers.map(view) }
  }
}

type Outcome = Answer | Refused

function view(outcome: Outcome) {
  return outcome instanceof Refused
    ? { response: undefined, error: itemErrorView(outcome) }
    : { response: { leases: outcome.leases.map(leaseView) }, error: undefined }
}

async function eachAlone(
  items: readonly (ItemCommand | Refused)[],
  { validateOnly }: Batch<unknown>,
  network: string,
  call: Call,
  backend: Backend,
): Promise<readonly Outcome[]> {
  if (!validateOnly) {
    return Promise.all(
      items.map((item) => (item instanceof Refused ? item : submit(backend, item, call).catch(refusalOf))),
    )
  }
  const sound = items.flatMap((item) => (item instanceof Refused ? [] : [item]))
  const outcomes = (await dryRun(sound, network, call, backend)).values()
  return items.map((item) => (item instanceof Refused ? item : outcomes.next().value!))
}

async function allOrNothing(
  items: readonly (ItemCommand | Refused)[],
  { requestId, validateOnly }: Batch<unknown>,
  network: string,
  call: Call,
  backend: Backend,
): Promise<readonly Outcome[]> {
  const sound = items.map((item, index) => {
    if (item instanceof Refused) throw inItem(item, index)
    return item
  })
  const same = sound.map(({ actor: _actor, traceId: _traceId, ...rest }) => rest)
  const all = commandOf(call, requestId, { type: 'allOrNothing', network, items: sound }, same)
  const [answer] = validateOnly
    ? await dryRun([all], network, call, backend)
    : [await submit(backend, all, call)]
  if (answer instanceof Refused) throw answer
  return answer!.items ?? []
}

/** The outcome of each, without writing. */
async function dryRun(
  items: Command<'dryRun'>['items'],
  network: string,
  call: Call,
  backend: Backend,
): Promise<readonly Outcome[]> {
  const command = commandOf(call, '', { type: 'dryRun', network, items })
  const { outcomes = [] } = await submit(backend, command, call)
  return outcomes.map((one) => ('reason' in one ? new Refused(one) : one))
}

function orRefused<T>(read: () => T): T | Refused {
  try {
    return read()
  } catch (error) {
    return refusalOf(error)
  }
}

function refusalOf(error: unknown): Refused {
  if (error instanceof Refused) return error
  throw error
}

function inItem({ refusal: { message, metadata, ...rest } }: Refused, index: number): Refused {
  return new Refused({
    ...rest,
    message: `item ${index}: ${message}`,
    metadata: { ...metadata, item: String(index) },
  })
}
