/**
 * Callers that reserve and release through services, each through one, and repeat a call until it is answered. What was
 * acknowledged to them is compared with the log, and with what each of them believes to hold.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { withClient } from '../support/database.ts'
import { post, type Told } from '../support/rpc.ts'
import { waitFor } from '../support/wait-for.ts'

export const NETWORK = 'default'
/** Each holds at most so many. */
const HOLDS = 3
/** Between two calls of a caller. */
const PAUSE_MS = 150
/** The answer says that the call may be repeated. */
const PASSING = [
  ...['DATABASE_UNAVAILABLE', 'DEADLINE_EXCEEDED', 'OUTCOME_UNKNOWN', 'OVERLOADED', 'NETWORK_RECOVERING'],
  ...['UNREACHABLE'],
]

type Held = { readonly leaseId: string; readonly address: string; readonly owner: string }
export type Acknowledged = Held & { isReleased: boolean }
type Wait = { readonly caller: number; readonly ended: number; readonly ms: number }

export class Callers {
  readonly acknowledged: Acknowledged[] = []
  /** An address that was handed to a caller while another held it. */
  readonly twice: string[] = []
  /** Answers that no failover explains. */
  readonly unexpected: string[] = []
  readonly #held = new Map<string, string>()
  readonly #waits: Wait[] = []
  readonly #running: Promise<void>[]
  #services: readonly string[]
  #isStopping = false
  #isAbandoned = false
  #checked = 0

  constructor(count: number, services: readonly string[]) {
    this.#services = services
    this.#running = Array.from({ length: count }, (_, caller) => this.#run(caller))
  }

  moveTo(services: readonly string[]): void {
    this.#services = services
  }

  /** Each caller has made a call since then that was answered. */
  async allServed(since: number, what: string): Promise<void> {
    const served = () => {
      const fresh = this.#waits.filter(({ ended, ms }) => ended - ms > since)
      return new Set(fresh.map(({ caller }) => caller)).size === this.#running.length
    }
    await waitFor(served, { what, every: 20, timeout: 100_000 })
  }

  /** Of each caller the longest wait for an answer that came since then; `service` counts from 0. */
  waits(since: number, service?: number): { readonly median: number; readonly worst: number } {
    const longest = new Map<number, number>()
    for (const { caller, ended, ms } of this.#waits)
      if (ended > since && (service === undefined || caller % this.#services.length === service))
        longest.set(caller, Math.max(ms, longest.get(caller) ?? 0))
    const sorted = [...longest.values()].sort((a, b) => a - b)
    return { median: sorted[Math.floor(sorted.length / 2)]!, worst: sorted.at(-1)! }
  }

  /** After each has an answer to what it has asked. */
  async stop(): Promise<void> {
    this.#isStopping = true
    await Promise.all(this.#running)
  }

  /** Also those that wait for an answer. */
  async abandon(): Promise<void> {
    this.#isAbandoned = true
    await this.stop()
  }

  /** What was acknowledged since the last time and is not in the log; and addresses that it gives to a second holder. */
  async compareWithLog(url: string) {
    // Of those that are held a release may be acknowledged later.
    const since = this.acknowledged.slice(this.#checked).map((one) => ({ ...one }))
    const next = this.acknowledged.findIndex(({ isReleased }) => !isReleased)
    this.#checked = next === -1 ? this.acknowledged.length : next
    const lost = await missing(url, since)
    return { acknowledged: since.length, lost, twice: await givenTwice(url) }
  }

  /** Once all have stopped: the leases of the projection are what the callers hold. */
  async heldByProjection(url: string): Promise<readonly string[]> {
    return withClient(url, async (client) => {
      const { rows } = await client.query<{ line: string }>(
        `select host(l.address) || ' ' || e.owner_name as line
           from ipledger.lease l join ipledger.event e on e.network_id = l.network_id and e.seq = l.seq
          where l.network_id = $1 and l.state <> 'FREE'`,
        [NETWORK],
      )
      return rows.map(({ line }) => line).sort()
    })
  }

  held(): readonly string[] {
    return [...this.#held].map(([address, owner]) => `${address} ${owner}`).sort()
  }

  async #run(caller: number): Promise<void> {
    const mine: Acknowledged[] = []
    for (let turn = 0; !this.#isStopping; turn += 1) {
      if (mine.length === HOLDS) await this.#release(caller, mine.shift()!)
      else await this.#reserve(caller, `w${caller}-${turn}`, mine)
      await delay(PAUSE_MS)
    }
  }

  async #reserve(caller: number, name: string, mine: Acknowledged[]): Promise<void> {
    const body = await this.#call(caller, 'Reserve', {
      ...{ network: NETWORK, owner: { kind: 'pod', name, incarnation: 'i' }, requestId: name },
      ...{ claims: [{ pool: 'web' }], confirmed: true },
    })
    if (body === null) return
    const { leaseId, address } = body.leases[0] as Held
    const other = this.#held.get(address)
    if (other !== undefined) this.twice.push(`${address} of ${other} was given to ${name}`)
    this.#held.set(address, name)
    const one = { leaseId, address, owner: name, isReleased: false }
    this.acknowledged.push(one)
    mine.push(one)
  }

  async #release(caller: number, one: Acknowledged): Promise<void> {
    // From here on another may have it.
    this.#held.delete(one.address)
    const { leaseId, owner } = one
    const body = await this.#call(caller, 'Release', { leaseId, requestId: `${owner}-release` })
    if (body !== null) one.isReleased = true
  }

  /** Null: a refusal that stays. */
  async #call(caller: number, method: string, message: object): Promise<Told['body']> {
    const begun = performance.now()
    for (;;) {
      const url = this.#services[caller % this.#services.length]!
      const told = await ask(url, method, message)
      const ended = performance.now()
      if (told.status === 200) {
        this.#waits.push({ caller, ended, ms: ended - begun })
        return told.body
      }
      if (this.#isAbandoned) return null
      if (!PASSING.includes(told.reason)) {
        this.unexpected.push(`${method}: ${told.reason}: ${told.message}`)
        return null
      }
      await delay(50)
    }
  }
}

/** A service that ends in the middle of a call gave no answer. */
export async function ask(url: string, method: string, message: object, headers = {}): Promise<Told> {
  try {
    return await post({ url }, `LeaseService/${method}`, message, headers)
  } catch (error) {
    return { status: 0, reason: 'UNREACHABLE', message: String(error) } as Told
  }
}

/** Each lease is in the log with its address and owner, and so is its end, if that was acknowledged. */
export async function missing(
  url: string,
  acknowledged: readonly Acknowledged[],
): Promise<readonly string[]> {
  const rows = acknowledged.map((one) => ({ ...one, token: Number(one.leaseId.split('/')[1]) }))
  return withClient(url, async (client) => {
    const { rows: found } = await client.query<{ line: string }>(
      `select a."leaseId" || ' ' || a.address || ' ' || a.owner as line
         from json_to_recordset($2) as a ("leaseId" text, token bigint, address inet, owner text, "isReleased" boolean)
        where not exists (select from ipledger.event e where e.network_id = $1 and e.seq = a.token
                             and e.address = a.address and e.owner_name = a.owner)
           or a."isReleased" and not exists (select from ipledger.event e where e.network_id = $1
                             and e.address = a.address and e.token = a.token and e.state = 'FREE')`,
      [NETWORK, JSON.stringify(rows)],
    )
    return found.map(({ line }) => line)
  })
}

/** By the log: a lease began at an address while the one before had not ended. */
async function givenTwice(url: string): Promise<readonly string[]> {
  return withClient(url, async (client) => {
    const { rows } = await client.query<{ line: string }>(
      `select host(address) || ' #' || seq as line
         from (select address, seq, token, lag(state) over (partition by address order by seq) as before
                 from ipledger.event where network_id = $1 and address is not null) e
        where seq = token and before <> 'FREE'`,
      [NETWORK],
    )
    return rows.map(({ line }) => line)
  })
}
