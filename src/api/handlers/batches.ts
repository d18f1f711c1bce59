/**
 * Batches: items are commands of their own, decided in order, or one command that does all or nothing. Each is refused as it
 * would be alone, so the refusal names the fields of the item.
 */
import type { Answer, Command } from '../../core/command.ts'
import type * as pb from '../../gen/ipledger/v1/lease_pb.ts'
import type { Decoded } from '../codec/decode-request.ts'
import { invalidField, itemErrorView, Refused } from '../codec/errors.ts'
import { leaseView } from '../codec/views.ts'
import { type Backend, type Content, commandOf, dryRun, type Scoped, scoped, submit } from '../method.ts'
import { decodeConfirm, decodeRelease, decodeReserve } from './decode-lease.ts'

type Item = { readonly network: string; readonly requestId: string; readonly leaseId?: string }
type ItemCommand = Command<'reserve' | 'confirm' | 'release'>
type Batch<I> = {
  readonly requestId: string
  readonly requests: readonly (I | Refused)[]
  readonly atomic: boolean
  readonly validateOnly?: boolean
}
type Outcome = Answer | Refused

export const batchReserve = batchOf(decodeBatchedReserve)
export const batchConfirm = batchOf(decodeConfirm)
export const batchRelease = batchOf(decodeRelease)

function decodeBatchedReserve(item: Decoded<pb.ReserveRequest>, call: Scoped) {
  if (item.validateOnly)
    throw invalidField('validateOnly', 'is not for an item of a batch; give it to the batch')
  return decodeReserve(item, call)
}

function batchOf<I extends Item>(decode: (item: I, call: Scoped) => Content<ItemCommand['type']>) {
  return async (batch: Batch<I>, call: Scoped, backend: Backend) => {
    const { requests, atomic, requestId } = batch
    const { network } = call
    if (requests.length === 0) throw invalidField('requests', 'required: 1 to 1000 requests')
    if (!atomic && requestId !== '')
      throw invalidField('requestId', 'is only for an atomic batch; give each item its own')
    const items = requests.map((item): ItemCommand | Refused => {
      try {
        if (item instanceof Refused) return item
        if (item.network !== '' && item.network !== network)
          throw invalidField('network', `the batch is about network ${network}`)
        if (atomic && item.requestId !== '')
          throw invalidField('requestId', 'an item of an atomic batch has none; give it to the batch')
        const about = scoped(call, { network, ...(item.leaseId && { leaseId: item.leaseId }) })
        return commandOf(about, item.requestId, decode(item, about))
      } catch (error) {
        return refusalOf(error)
      }
    })
    const outcomes = await (atomic ? allOrNothing : eachAlone)(items, batch, call, backend)
    const results = outcomes.map((outcome) =>
      outcome instanceof Refused
        ? { response: undefined, error: itemErrorView(outcome) }
        : { response: { leases: outcome.leases.map(leaseView) }, error: undefined },
    )
    return { results }
  }
}

async function eachAlone(
  items: readonly (ItemCommand | Refused)[],
  { validateOnly }: Batch<unknown>,
  call: Scoped,
  backend: Backend,
): Promise<readonly Outcome[]> {
  if (!validateOnly) {
    return Promise.all(
      items.map((item) => (item instanceof Refused ? item : submit(backend, item, call).catch(refusalOf))),
    )
  }
  const sound = items.flatMap((item) => (item instanceof Refused ? [] : [item]))
  const outcomes = (await dryRun(backend, sound, call)).values()
  return items.map((item) => (item instanceof Refused ? item : outcomes.next().value!))
}

async function allOrNothing(
  items: readonly (ItemCommand | Refused)[],
  { requestId, validateOnly }: Batch<unknown>,
  call: Scoped,
  backend: Backend,
): Promise<readonly Outcome[]> {
  const sound = items.map((item, index) => {
    if (item instanceof Refused) throw inItem(item, index)
    return item
  })
  const same = sound.map(({ actor: _actor, traceId: _traceId, ...rest }) => rest)
  const all = commandOf(call, requestId, { type: 'allOrNothing', items: sound }, same)
  const [answer] = validateOnly ? await dryRun(backend, [all], call) : [await submit(backend, all, call)]
  if (answer instanceof Refused) throw answer
  return answer!.items ?? []
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
