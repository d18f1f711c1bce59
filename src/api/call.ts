/** One call of one method, whatever protocol it came in by. */
import type { DescMessage, DescMethodUnary, MessageShape } from '@bufbuild/protobuf'
import type { GenService } from '@bufbuild/protobuf/codegenv2'
import type { Answer, Command } from '../core/command.ts'
import { refusal } from '../core/refusal.ts'
import type { Ledger } from '../ledger/ledger.ts'
import type { Reads } from '../ledger/reads.ts'
import type { Intake } from '../liveness/report.ts'
import type { Logger, RpcObserved } from '../telemetry.ts'
import { Refused } from './errors.ts'
import type { Caller, Role } from './rights.ts'

export type Call = {
  readonly caller: Caller
  /** The rpc's name; becomes the cause of what it writes. */
  readonly method: string
  /** `performance.now()` after which nobody waits for the answer any more. */
  readonly deadline: number
  /** Its caller went away: nobody hears the answer. */
  readonly isGone: () => boolean
  readonly traceId: string | null
  /** Null: nobody wants to know how it goes. */
  readonly rpc: RpcObserved | null
}

export type Handle<I extends DescMessage, O extends DescMessage> = (
  message: MessageShape<I>,
  call: Call,
) => Promise<MessageShape<O>>

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
  /** Null: anybody, without a token. */
  readonly roles: ReadonlySet<Role> | null
  readonly handle: Handle<DescMessage, DescMessage>
}

export type Backend = {
  readonly ledger: Ledger
  readonly reads: Reads
  /** What sources report; on connections of its own, so that neither waits for the other's. */
  readonly intake: Intake
  readonly log: Logger
}

export async function submit({ ledger }: Backend, command: Command, call: Call): Promise<Answer> {
  const outcome = await ledger.submit(command, { deadline: call.deadline, lane: 'caller' })
  if (!outcome.ok) throw new Refused(outcome.refusal)
  return outcome.answer
}

export function networkNotFound(network: string): Refused {
  return new Refused(
    refusal('NETWORK_NOT_FOUND', `network ${network} does not exist; create it first`, { network }),
  )
}

/** A number that a later life of this ledger gave out: its books may be restored ones. Writes are told so by the core. */
export function beyondHead(
  { log }: Backend,
  call: Call,
  what: string,
  asked: { readonly network: string; readonly number: number; readonly head: number },
): Refused {
  const { network, number, head } = asked
  log.error(
    { network, method: call.method, actor: call.caller.name, number, head },
    'a caller quotes a number this ledger never gave out: the database may be an older copy',
  )
  return new Refused(
    refusal(
      'VERSION_MISMATCH',
      `${what} is beyond this ledger's last number ${head}; if it was ever answered, the database is an older copy`,
      { network, beyondHead: String(head) },
    ),
  )
}

/** The command was committed, but what it made could not be read for the answer. */
export async function readingBack<T>(reading: Promise<T | null | undefined>, what: string): Promise<T> {
  const unknown = (cause: unknown) =>
    Object.assign(
      new Refused(
        refusal(
          'OUTCOME_UNKNOWN',
          `${what}, but it could not be read for the answer; read it again`,
          {},
          100,
        ),
      ),
      { cause },
    )
  const found = await reading.catch((error: unknown) => {
    throw unknown(error)
  })
  if (found === null || found === undefined) throw unknown(undefined)
  return found
}
