/** One call of one method, whatever protocol it came in by. */
import type { DescMessage, DescMethodUnary, Message, MessageShape } from '@bufbuild/protobuf'
import type { GenService } from '@bufbuild/protobuf/codegenv2'
import type { Answer, Command } from '../core/command.ts'
import { type Refusal, refusal } from '../core/refusal.ts'
import type { Ledger } from '../ledger/ledger.ts'
import type { Reads } from '../ledger/reads.ts'
import type { Intake } from '../sources/intake.ts'
import type { SourceSecrets } from '../sources/settings.ts'
import type { RpcObserved } from '../telemetry.ts'
import type { Asked } from './asked.ts'
import { Refused } from './errors.ts'
import type { Caller, Role } from './rights.ts'
import type { Shown } from './shown.ts'

export type Call = {
  readonly caller: Caller
  /** The rpc's name; becomes the cause of what it writes. */
  readonly method: string
  /** `performance.now()` after which nobody waits for the answer any more. */
  readonly deadline: number
  readonly traceId: string | null
  readonly rpc: RpcObserved
}

/** From what is asked to what is answered. */
type Handle<I extends DescMessage, O extends DescMessage> = (
  message: Asked<MessageShape<I>>,
  call: Call,
) => Promise<Shown<MessageShape<O>>>

/** A function for each method of a service, none forgotten. */
export type Handlers<S> =
  S extends GenService<infer Methods>
    ? {
        readonly [K in keyof Methods]: Methods[K] extends {
          input: infer I extends DescMessage
          output: infer O extends DescMessage
        }
          ? Handle<I, O>
          : never
      }
    : never

export type Method = {
  /** `/ipledger.v1.LeaseService/Reserve` */
  readonly path: string
  readonly desc: DescMethodUnary
  readonly roles: ReadonlySet<Role>
  /** Answers the JSON of the message. */
  readonly handle: (message: Message, call: Call) => Promise<object>
}

export type Backend = {
  readonly ledger: Ledger
  readonly reads: Reads
  readonly intake: Intake
  readonly secrets: SourceSecrets
}

export async function submit({ ledger }: Backend, command: Command, call: Call): Promise<Answer> {
  const outcome = await ledger.submit(command, { deadline: call.deadline })
  if (!outcome.ok) throw new Refused(outcome.refusal)
  return outcome.answer
}

/** A method that submits the command that its request is. */
export function commanded<M, C extends Command, R>(
  backend: Backend,
  read: (message: M, call: Call) => C,
  show: (answer: Answer, command: C) => R | Promise<R>,
): (message: M, call: Call) => Promise<R> {
  return async (message, call) => {
    const command = read(message, call)
    return show(await submit(backend, command, call), command)
  }
}

export function accepted<T extends object>(result: T | Refusal): T {
  if ('reason' in result) throw new Refused(result as Refusal)
  return result as T
}

/** What was read of a network, which may not exist. */
export function ofNetwork<T>(found: T | null, network: string): T {
  if (found !== null) return found
  throw new Refused(
    refusal('NETWORK_NOT_FOUND', `network ${network} does not exist; create it first`, { network }),
  )
}

export function poolNotFound(network: string, pool: string): Refused {
  return new Refused(
    refusal('POOL_NOT_FOUND', `there is no pool ${pool} in network ${network}`, { network, pool }),
  )
}

export function neverWas(leaseId: string): Refusal {
  return refusal('LEASE_NOT_FOUND', `there never was a lease ${leaseId}`, { leaseId })
}

/** A number that a later life of this log gave out: the database may be an older copy. The core says the same of writes. */
export function checkHead(what: string, number: number, head: number): void {
  if (number <= head) return
  throw new Refused(
    refusal(
      'VERSION_MISMATCH',
      `${what} is beyond this ledger's last number ${head}; if it was ever answered, the database is an older copy`,
      { number: String(number), beyondHead: String(head) },
    ),
  )
}
