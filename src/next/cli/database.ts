/** Commands that go to the database, past the service: verify, rebuild, recover, and where it is. */
import { type Command, InvalidArgumentError, Option } from 'commander'
import { AuditService } from '../gen/ipledger/v1/audit_pb.ts'
import { NetworkService } from '../gen/ipledger/v1/network_pb.ts'
import type { Anchor } from '../ledger/verify.ts'
import { Unclear } from './failure.ts'
import { networkSheet } from './network.ts'
import { ask, verb } from './verb.ts'

/** Loaded only by the command that needs it: the others talk to a server and start in a tenth of the time. */
const load = () => import('./on-database.ts')

type VerifyOptions = {
  readonly network?: string
  readonly against?: Anchor
  readonly server?: boolean
  readonly json?: boolean
}
type RecoverOptions = {
  readonly why: string
  readonly end?: boolean
  readonly above?: number
  readonly json?: boolean
}
