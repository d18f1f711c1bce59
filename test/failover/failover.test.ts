/**
 * The primary is lost under callers and a node's agent: nothing that was acknowledged is lost, and nothing is given twice. Two
 * services name all hosts, the third goes through HAProxy. IPLEDGER_FAILOVERS=20 for the long form, which prints a table.
 */
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { afterAll, expect, test } from 'vitest'
import { MAIN, serve, stop } from '../e2e/commands.ts'
import { enableSource, given, heldBy, openNode } from '../network/node.ts'
import { rpc } from '../support/rpc.ts'
import { expectVerified } from '../support/verified.ts'
import { waitFor } from '../support/wait-for.ts'
import type { Answer } from './caller.ts'
import { Callers, missing, NETWORK } from './callers.ts'
import { Cluster, type Member } from './patroni.ts'

const FAILOVERS = Number(process.env.IPLEDGER_FAILOVERS ?? 0)
const CALLERS = 64

/** What happens to the primary, and how it comes back. */
const FAULTS = {
  'kill -9': {
    begin: async (primary: Member) => cluster.kill(primary),
    end: async (primary: Member) => cluster.startMember(primary),
  },
  switchover: { begin: () => cluster.switchover(), end: async () => {} },
  partition: {
    begin: (primary: Member) => cluster.cut(primary, true),
    end: (primary: Member) => cluster.cut(primary, false),
  },
  paused: {
    begin: async (primary: Member) => cluster.signal(primary, 'SIGSTOP'),
    end: async (primary: Member) => cluster.signal(primary, 'SIGCONT'),
  },
} as const
let failovers = 0
type Fault = keyof typeof FAULTS
/** Of IPLEDGER_SYNCHRONOUS_REPLICATION. */
type Declared = 'yes' | 'no'

// Patroni wants 20 of an operator; with less a test is done sooner.
const cluster = await Cluster.start({ ttlSeconds: FAILOVERS > 0 ? 20 : 5 })
afterAll(() => cluster.stop())

/** Of the first, which the agent names. */
let port = '0'
const serveAll = async (declared: Declared) =>
  Promise.all(
    [cluster.url, cluster.url, cluster.proxyUrl].map((url, index) =>
      serve({
        DATABASE_URL: url,
        IPLEDGER_SYNCHRONOUS_REPLICATION: declared,
        IPLEDGER_LOG_LEVEL: 'error',
        IPLEDGER_PORT: index === 0 ? port : '0',
      }),
    ),
  )
let services = await serveAll('yes')
const urls = () => services.map(({ url }) => url)
const ok: ReturnType<typeof rpc>['ok'] = (method, message) => rpc(services[0]!.url).ok(method, message)
await ok('PoolService/CreatePool', { name: 'web', cidr: '10.0.0.0/22', cooldown: '0s' })
port = new URL(urls()[0]!).port
await ok('PoolService/CreatePool', {
  name: 'nodes',
  cidr: '10.204.0.0/24',
  gateway: '10.204.0.1',
  cooldown: '0s',
})
await enableSource({ ok })
const node = await openNode({ IPLEDGER_URL: urls()[0]! })
await node.startAgent()
const held = heldBy({ ok })
const onNode = { ipam: { pools: ['nodes'] } } as const
const kept = given(await node.call('ADD', node.add('kept'), onNode))
const callers = new Callers(CALLERS, urls())
afterAll(() => callers.abandon())
const network = async () => (await ok('NetworkService/GetNetwork', { name: NETWORK })).network

let declaredBefore: Declared = 'yes'

/** What all services declare: the first that meets a new primary decides for the network. */
async function declare(declared: Declared): Promise<void> {
  if (declared !== declaredBefore) await restartServices(declared)
}

/** `meanwhile`: none runs. Their callers wait. */
async function restartServices(declared: Declared, meanwhile = async () => {}): Promise<void> {
  await Promise.all(services.map((one) => stop(one)))
  await meanwhile()
  services = await serveAll(declared)
  declaredBefore = declared
  callers.moveTo(urls())
}

/** True: an era began. Its recovery is ended as an operator would who knows that nothing was lost. */
async function endRecovery(eraBefore: number): Promise<boolean> {
  const { era, state } = await network()
  if (state === 'RECOVERING') await ok('NetworkService/EndRecovery', { network: NETWORK, why: 'a test' })
  return era !== eraBefore
}

async function failOver(fault: Fault, declared: Declared): Promise<boolean> {
  await cluster.untilWhole()
  await callers.allServed(performance.now(), 'all callers to be served before')
  const { era } = await network()
  const gone = node.add(`gone-${failovers}`)
  failovers += 1
  given(await node.call('ADD', gone, onNode))
  await held.untilActive(gone)
  const primary = await cluster.primary()
  const begun = performance.now()
  let promoted = begun
  let isEra = false
  try {
    const failing = FAULTS[fault].begin(primary)
    expect((await node.call('DEL', gone, onNode)).code, 'a DEL while there is no primary').toBe(0)
    await failing
    await cluster.primary({ but: primary })
    promoted = performance.now()
    isEra = await untilServed(era)
  } finally {
    await FAULTS[fault].end(primary)
  }
  const waits = [undefined, 0, 2].map((service) => callers.waits(begun, service))
  await cluster.untilWhole()
  // If the old primary has answered anything, it is lost by now. If it is the primary again, all that came since is.
  const isLateEra = await untilServed((await network()).era)
  await held.untilReleased(gone)
  await untilReported()
  const { acknowledged, lost, twice } = await callers.compareWithLog(cluster.url)
  const seconds = (ms: number) => (ms / 1_000).toFixed(1)
  const told = waits.map(({ median, worst }) => `${seconds(median)} / ${seconds(worst)}`)
  const line = [fault, declared, acknowledged, lost.length, twice.length + callers.twice.length]
  if (FAILOVERS > 0)
    console.log(`| ${[...line, isEra ? 'yes' : 'no', seconds(promoted - begun), ...told].join(' | ')} |`)
  expect(lost, 'acknowledged and not in the log').toEqual([])
  expect([...twice, ...callers.twice], 'given twice').toEqual([])
  expect(callers.unexpected, 'refusals that no failover explains').toEqual([])
  expect(isLateEra, 'an era began when the old primary came back').toBe(false)
  return isEra
}

/** The agent's source has reported since, all that is on its node. */
async function untilReported(): Promise<void> {
  const since = Date.now()
  const reported = async () => {
    const { source } = await ok('LivenessService/GetSource', { id: 'n1' })
    return Date.parse(source.reportedAt) > since
  }
  await waitFor(reported, { what: 'the agent to report' })
}

/** All callers have an answer to a call that they have made since. True: an era began, and its recovery was ended. */
async function untilServed(eraBefore: number): Promise<boolean> {
  let isEra = false
  let isServed = false
  const recovering = (async () => {
    while (!isServed) {
      isEra = (await endRecovery(eraBefore).catch(() => false)) || isEra
      await delay(50)
    }
  })()
  try {
    await callers.allServed(performance.now(), 'all callers to be served')
  } finally {
    isServed = true
    await recovering
  }
  return isEra
}

const SHORT: readonly (readonly [Fault, Declared])[] = [
  ['kill -9', 'yes'],
  ['switchover', 'no'],
]
const LONG = Array.from({ length: FAILOVERS }, (_, index) => {
  const faults = Object.keys(FAULTS) as Fault[]
  const declared: Declared = Math.floor(index / faults.length) % 2 === 0 ? 'yes' : 'no'
  return [faults[index % faults.length]!, declared] as const
})

if (FAILOVERS > 0)
  console.log(`| what | declared | acknowledged | lost | twice | era | next primary after s | wait: median / worst s | by hosts | by HAProxy |
|---|---|---|---|---|---|---|---|---|---|`)

// A process that has committed finds its commit in the log, whatever happened; only if it may not trust that, an era begins.
test.each(FAILOVERS > 0 ? LONG : SHORT)(
  '%s, synchronous replication: %s. Nothing acknowledged is lost, nothing given twice',
  async (fault, declared) => {
    await declare(declared)
    expect(await failOver(fault, declared), 'an era began').toBe(declared === 'no')
  },
)

test.runIf(FAILOVERS > 0)(
  'processes that start after a switchover know of no commit: an era begins',
  async () => {
    await cluster.untilWhole()
    const { era } = await network()
    await restartServices('yes', async () => {
      await cluster.switchover()
      await cluster.untilReached()
    })
    expect(await untilServed(era)).toBe(true)
  },
)

/** A service and a caller that a partition leaves with the primary. */
async function openBeside(member: Member) {
  const env = {
    PATH: process.env.PATH,
    DATABASE_URL: cluster.url,
    IPLEDGER_SYNCHRONOUS_REPLICATION: 'yes',
    IPLEDGER_PORT: '0',
    IPLEDGER_GRPC_PORT: '0',
    IPLEDGER_LOG_LEVEL: 'silent',
  }
  const service = cluster.beside(member, [process.execPath, MAIN, 'serve', '--no-worker'], env)
  let printed = ''
  service.stdout!.setEncoding('utf8').on('data', (chunk: string) => {
    printed += chunk
  })
  const url = await waitFor(() => /is ready: (http:\/\/\S+) /.exec(printed)?.[1], {
    what: 'the service beside',
  })
  const program = fileURLToPath(new URL('caller.ts', import.meta.url))
  const caller = cluster.beside(member, [process.execPath, program, url], { PATH: process.env.PATH })
  const answers: Answer[] = []
  createInterface({ input: caller.stdout! }).on('line', (line) => answers.push(JSON.parse(line)))
  return {
    answers,
    acknowledged: () =>
      answers.flatMap(({ lease, owner }) => (lease === null ? [] : [{ ...lease, owner, isReleased: false }])),
    async stop() {
      for (const child of [caller, service]) {
        const ended = once(child, 'close')
        child.kill('SIGKILL')
        await ended
      }
    },
  }
}

type Beside = Awaited<ReturnType<typeof openBeside>>

/** The primary is cut off with a service beside it. Answers to calls that were made and answered while it was. */
async function cutOff(primary: Member, { answers }: Beside) {
  await waitFor(() => answers.some(({ lease }) => lease !== null), { what: 'an answer before' })
  await cluster.cut(primary, true)
  const cut = Date.now()
  await cluster.primary({ but: primary })
  const meanwhile = () => answers.filter(({ begun }) => begun > cut)
  await waitFor(() => meanwhile().some(({ lease }) => lease === null), {
    what: 'a refusal beside the primary',
  })
  const healed = Date.now()
  const found = meanwhile().filter(({ ended }) => ended < healed)
  await cluster.cut(primary, false)
  return { found, healed }
}

test('a service beside a primary that was deposed acknowledges nothing, and goes on with the next primary', async () => {
  await declare('yes')
  await cluster.untilWhole()
  const { era } = await network()
  const primary = await cluster.primary()
  const beside = await openBeside(primary)
  const { found, healed } = await cutOff(primary, beside)
  await waitFor(() => beside.answers.some(({ begun, lease }) => begun > healed && lease !== null), {
    what: 'an answer after',
  })
  await beside.stop()
  await cluster.untilDeposed(primary)
  expect(found.map(({ reason }) => reason)).not.toEqual([])
  expect(found.filter(({ lease }) => lease !== null)).toEqual([])
  expect(await missing(cluster.url, beside.acknowledged())).toEqual([])
  expect((await network()).era).toBe(era)
})

test('at the end the leases are those that callers hold, and the log verifies', async () => {
  await callers.stop()
  await expectVerified({ adminUrl: cluster.url })
  const { lost, twice } = await callers.compareWithLog(cluster.url)
  expect([...lost, ...twice, ...callers.twice, ...callers.unexpected]).toEqual([])
  const lines = await callers.heldByProjection(cluster.url)
  expect(lines.filter((line) => line.startsWith('10.0.') && !line.includes(' beside-'))).toEqual(
    callers.held(),
  )
  expect((await held.leasesOf('kept')).map(({ address }) => address)).toEqual(kept)
  expect(node.addresses().get('kept')).toEqual(kept)
})

test.runIf(FAILOVERS > 0)(
  'without synchronous replication such a service acknowledges what is lost, and begins an era when it finds that out',
  async () => {
    await cluster.configure({ synchronous_mode: false, synchronous_mode_strict: false })
    await cluster.untilWhole('leader,replica,replica')
    const { era } = await network()
    const primary = await cluster.primary()
    const beside = await openBeside(primary)
    const { found } = await cutOff(primary, beside)
    await cluster.untilDeposed(primary)
    const lost = await missing(cluster.url, beside.acknowledged())
    const count = found.filter(({ lease }) => lease !== null).length
    console.log(`beside a deposed primary, asynchronous: ${count} acknowledged, ${lost.length} lost`)
    expect(lost).not.toEqual([])
    await waitFor(() => endRecovery(era), { what: 'an era to begin' })
    await beside.stop()
  },
)
