/** The process behind `load.ts`. */
import type { Command } from '../src/core/command.ts'
import { type OpenLedger, openLedger } from '../src/ledger/open.ts'
import { connect } from '../src/postgres/connect.ts'
import { POOL } from './history.ts'
import { openKeepAlive, type Reply } from './keep-alive.ts'
import type { FromLoad, LoadedImage, Run, ToLoad } from './load.ts'
import { createSamples } from './statistics.ts'

/** What a caller can do: answers are what Release takes. */
type Caller = {
  reserve(names: readonly string[], requestId: string | null): Promise<readonly string[]>
  release(lease: string): Promise<void>
  close(): Promise<void> | void
}

function tell(message: FromLoad): void {
  process.send?.(message)
}

const ledgers = new Map<string, Promise<OpenLedger>>()

function ledgerAt(url: string): Promise<OpenLedger> {
  const known = ledgers.get(url) ?? openLedger({ url })
  ledgers.set(url, known)
  return known
}

async function perform(run: Run): Promise<void> {
  const callers = await Promise.all(Array.from({ length: run.callers }, (_, index) => openCaller(run, index)))
  try {
    // An image is loaded by the first call.
    if (run.work.kind !== 'insert')
      await step({ ...run, work: { kind: 'pair' } }, callers[0]!, `${run.name}-first`)
    await drive(run, callers)
  } finally {
    await Promise.all(callers.map((caller) => caller.close()))
  }
}

async function drive(run: Run, callers: readonly Caller[]): Promise<void> {
  const { intervalMs } = run
  const samples = createSamples()
  let intervalBegan = performance.now() + run.warmUpMs
  let left = run.intervals
  let isMeasured = false
  let cpu = process.cpuUsage()

  function pass(now: number): void {
    if (!isMeasured && now >= intervalBegan) {
      isMeasured = true
      cpu = process.cpuUsage()
      tell({ type: 'begun' })
    }
    while (left > 0 && now >= intervalBegan + intervalMs) {
      const { count, p50, p99 } = samples.take()
      const spent = process.cpuUsage(cpu)
      cpu = process.cpuUsage()
      const used = (spent.user + spent.system) / 1_000 / intervalMs
      tell({ type: 'interval', interval: { perSecond: (count * 1_000) / intervalMs, p50, p99, cpu: used } })
      intervalBegan += intervalMs
      left -= 1
    }
  }

  await Promise.all(
    callers.map(async (caller, index) => {
      for (let turn = 0; left > 0; turn += 1) {
        const began = performance.now()
        await step(run, caller, `${run.name}-${index}-${turn}`)
        const now = performance.now()
        pass(now)
        // What comes back after the last interval was part of keeping it busy, not of what it did.
        if (isMeasured && left > 0) samples.add(now - began)
      }
    }),
  )
}

async function step({ work }: Run, caller: Caller, name: string): Promise<void> {
  switch (work.kind) {
    case 'insert':
      await caller.reserve([name], null)
      break
    case 'reserve':
      await caller.reserve([name], work.isKeyed ? name : null)
      break
    case 'pair': {
      const [lease] = await caller.reserve([name], null)
      await caller.release(lease!)
      break
    }
    case 'batch':
      await caller.reserve(
        Array.from({ length: work.size }, (_, item) => `${name}-${item}`),
        null,
      )
  }
}

async function openCaller({ through, network }: Run, index: number): Promise<Caller> {
  switch (through.kind) {
    case 'ledger':
      return callingLedger(await ledgerAt(through.url), network)
    case 'service': {
      const connection = await openKeepAlive(through.target)
      return { ...callingService(connection.post, network), close: connection.close }
    }
    case 'table': {
      const client = await connect({ url: through.url, applicationName: 'bench insert' })
      return {
        async reserve([name]) {
          await client.query({
            name: 'insert_one',
            text: `insert into bench.one_row (network_id, name, address, at) values ($1, $2, '192.0.2.1', clock_timestamp())`,
            values: [network, `${name}-${index}`],
          })
          return []
        },
        async release() {},
        close: () => client.end(),
      }
    }
  }
}

function callingLedger(ledger: OpenLedger, network: string): Caller {
  const envelope = {
    network,
    actor: { name: 'bench', node: null },
    requestId: null,
    fingerprint: null,
    traceId: null,
  }
  async function submit(command: Command) {
    const outcome = await ledger.submit(command)
    if (!outcome.ok) throw new Error(outcome.refusal.message)
    return outcome.answer
  }
  return {
    reserve: (names, requestId) =>
      Promise.all(
        names.map(async (name) => {
          const { leases } = await submit({
            ...envelope,
            requestId,
            fingerprint: requestId,
            type: 'reserve',
            cause: 'Reserve',
            owner: {
              kind: 'container',
              name: `bench/${name}`,
              uid: name,
              incarnation: '1',
              interface: 'eth0',
            },
            node: `node-${name.length}`,
            labels: {},
            claims: [{ pools: [POOL], address: null, preferPrevious: false }],
            liveAddresses: [],
            confirmWithinMs: null,
            confirmed: false,
            validateOnly: false,
          })
          return String(leases[0]!.fencingToken)
        }),
      ),
    async release(lease) {
      const reference = { token: Number(lease), owner: null }
      await submit({
        ...envelope,
        type: 'release',
        cause: 'Release',
        lease: reference,
        removalConfirmed: true,
      })
    },
    close() {},
  }
}

const LEASE_SERVICE = '/ipledger.v1.LeaseService'
const LEASE_ID = /"leaseId":"([^"]+)"/g

function callingService(
  post: (path: string, body: string) => Promise<Reply>,
  network: string,
): Omit<Caller, 'close'> {
  async function call(method: string, body: string): Promise<readonly string[]> {
    const reply = await post(`${LEASE_SERVICE}/${method}`, body)
    const leases = Array.from(reply.body.matchAll(LEASE_ID), ([, id]) => id!)
    if (reply.status === 200 && leases.length > 0 && !reply.body.includes('"error":{')) return leases
    throw new Error(`${method} was answered ${reply.status}: ${reply.body.slice(0, 500)}`)
  }
  /** An owner as an orchestrator would name it: all of it given, and long enough to be one. */
  const one = (name: string, requestId: string | null) =>
    `{"network":"${network}","owner":{"kind":"container","name":"bench/${name}","uid":"${name}","incarnation":"1","node":"node-${name.length}"},"claims":[{"pool":"${POOL}"}]${requestId === null ? '' : `,"requestId":"${requestId}"`}}`
  return {
    reserve: (names, requestId) =>
      names.length === 1
        ? call('Reserve', one(names[0]!, requestId))
        : call(
            'BatchReserve',
            `{"network":"${network}","requests":[${names.map((name) => one(name, null)).join(',')}]}`,
          ),
    async release(lease) {
      await call('Release', `{"leaseId":"${lease}"}`)
    },
  }
}

async function loadImage(url: string, network: string): Promise<LoadedImage> {
  const ledger = await openLedger({ url })
  const began = performance.now()
  const image = await ledger.image(network, { deadline: began + 120_000 })
  const ms = performance.now() - began
  const records = image!.records.size
  await ledger.close()
  return { ms, records, mostMb: process.resourceUsage().maxRSS / 1_000 }
}

process.on('message', async (message: ToLoad) => {
  try {
    if (message.type === 'image')
      tell({ type: 'image', image: await loadImage(message.url, message.network) })
    else {
      await perform(message.run)
      tell({ type: 'done' })
    }
  } catch (error) {
    tell({ type: 'failed', message: error instanceof Error ? (error.stack ?? error.message) : String(error) })
  }
})
process.on('disconnect', () => process.exit(0))
