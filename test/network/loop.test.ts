/**
 * A node's life in a loop: ADD and DEL while agents, service and PostgreSQL are killed, agents stand still, lose their state
 * directories or get older copies of them, and the machine reboots. Two agents on the node, each with a bridge, a socket and a state
 * directory of its own, share one pool; a third comes and goes. No address is ever in two namespaces, and afterwards the ledger holds
 * what namespaces have, the free spares of the agents that run, and nothing else. IPLEDGER_TEST_LOOP=500 for the long form.
 */
import { spawnSync } from 'node:child_process'
import { cpSync, renameSync } from 'node:fs'
import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, expect, test } from 'vitest'
import { Attachments } from '../../src/cni/attachments.ts'
import { type Finished, type Running, serve, stop } from '../e2e/commands.ts'
import { withClient } from '../support/database.ts'
import { random } from '../support/random-walk.ts'
import { rpc } from '../support/rpc.ts'
import { startTestServer } from '../support/server.ts'
import { expectVerified } from '../support/verified.ts'
import { waitFor } from '../support/wait-for.ts'
import { type Node, openNode } from './node.ts'

const ROUNDS = Number(process.env.IPLEDGER_TEST_LOOP ?? 60)
const SEED = Number(process.env.IPLEDGER_TEST_SEED ?? Math.floor(Math.random() * 2 ** 31))
const IS_LONG = ROUNDS >= 500
const REBOOT_EVERY = IS_LONG ? 100 : 20
const FAULT_EVERY = 4
const LOOK_EVERY = 2
const JOBS_EVERY = 8
const SLOTS = 9
const SPARES = 2
/** Of one agent, as many as a runtime starts at a time. */
const CALLS_AT_ONCE = 4
const POOL = {
  name: 'web',
  cidr: '10.211.0.0/26',
  gateway: '10.211.0.1',
  cooldown: '0s',
  reapPolicy: {
    misses: 2,
    minimumAge: '2s',
    // What was reserved by an agent that then stood still stays until its container has configured it.
    unwitnessedAge: IS_LONG ? '20s' : '8s',
    terminalGrace: '1s',
    confirmGrace: '1s',
  },
}
/** Longer than the interval of its source; beyond ten seconds an agent hands out no spare before it has reported again. */
const STOPS_MS = IS_LONG ? [1_500, 3_000, 11_000] : [1_500, 3_000]

const server = await startTestServer()
afterAll(() => server.stop())
await withClient(server.url('postgres'), (admin) => admin.query('create database loop'))
const env = { DATABASE_URL: server.url('loop'), IPLEDGER_LOG_LEVEL: 'fatal', IPLEDGER_JOB_CONNECTIONS: '32' }
/** Processes that ended and were not killed. */
const crashed: Finished[] = []
/** What processes wrote. */
const said: (() => string)[] = []
const watch = <T extends Running>(running: T): T => {
  said.push(running.stdout, running.stderr)
  void running.finished.then((end) => end.code !== null && crashed.push(end))
  return running
}
let service = watch(await serve(env))
const port = new URL(service.url).port
const { ok } = rpc(service.url)
await ok('PoolService/CreatePool', POOL)
const pick = random(SEED)

/** An agent of the node, and the containers of its bridge. */
type Agent = {
  readonly node: Node
  readonly source: string
  /** Whether the runtime's library writes results down. */
  readonly hasCache: boolean
  /** Of its state directory. */
  readonly copies: string[]
  running: Running | null
  startedAt: number
  /** Until it goes on. */
  stopped: Promise<void> | null
  calls: number
}
/** Where one container runs at a time. */
type Slot = {
  readonly agent: Agent
  readonly name: string
  container: string
  uid: string
  /** Of a pod; empty: a container. */
  args: string
  has: 'nothing' | 'address' | 'failed'
  isBusy: boolean
}

async function openAgent(source: string, hasCache: boolean): Promise<Agent> {
  const node = await openNode({ IPLEDGER_URL: service.url })
  return { node, source, hasCache, copies: [], running: null, startedAt: 0, stopped: null, calls: 0 }
}
async function register(id: string): Promise<void> {
  const sight = { node: 'n1', ownerKinds: ['pod', 'container'], interval: '1s' }
  await ok('LivenessService/RegisterSource', { id, sight })
  await ok('LivenessService/EnableSource', { id, acceptUnlisted: true })
}
async function start(agent: Agent): Promise<void> {
  agent.startedAt = Date.now()
  agent.running = watch(await agent.node.startAgent('--source', agent.source, '--spares', `${SPARES}`))
}
async function kill(agent: Agent): Promise<void> {
  await agent.node.killAgent()
  agent.running = null
}

const agents = [await openAgent('first', true), await openAgent('second', false)]
/** Of a third agent, which comes and goes, and has no containers of its own. */
const guest = await openNode({ IPLEDGER_URL: service.url })
let third: string | null = null
for (const agent of agents) {
  await register(agent.source)
  await start(agent)
}
const slots = agents.flatMap((agent) =>
  Array.from({ length: SLOTS }, (_, at): Slot => {
    const name = `${agent.source}${at}`
    return { agent, name, container: '', uid: '', args: '', has: 'nothing', isBusy: false }
  }),
)

const figures: Record<string, number> = {}
const count = (what: string, times = 1) => {
  figures[what] = (figures[what] ?? 0) + times
}

// What namespaces have.

/** By address: the containers that have it. */
function seen(): ReadonlyMap<string, readonly string[]> {
  const all = agents.flatMap(({ node }) => [...node.addresses()])
  const pairs = all.flatMap(([container, addresses]) => addresses.map((address) => ({ address, container })))
  const groups = Map.groupBy(pairs, ({ address }) => address)
  return new Map([...groups].map(([address, some]) => [address, some.map(({ container }) => container)]))
}
function lookForDoubles(): void {
  count('looks')
  const doubles = [...seen()].filter(([, containers]) => containers.length > 1)
  expect(doubles, 'addresses in two namespaces').toEqual([])
  expect(crashed, 'processes that ended by themselves').toEqual([])
}

// What a container runtime does.

/** Calls of a runtime end with it. */
let boot = 0
const plugins = new Set<number>()
/** Drawn when the call begins, so that the order of answers changes no draw. */
type Fate = { readonly isKilled: boolean; readonly at: number; readonly way: number }

async function call(slot: Slot, command: 'ADD' | 'DEL', options: Parameters<Node['call']>[2] = {}) {
  const { node } = slot.agent
  let plugin = 0
  const started = (pid: number) => {
    plugin = pid
    plugins.add(pid)
    options.started?.(pid)
  }
  const answer = await node.call(command, slot.container, { args: slot.args, ...options, started })
  plugins.delete(plugin)
  said.push(() => answer.stderr)
  count(`${command} ${answer.code === 0 ? 'answered' : `failed with ${answer.body?.code ?? 'a kill'}`}`)
  return answer
}

async function add(slot: Slot, { isKilled, at }: Fate): Promise<void> {
  const mine = boot
  const started = (pid: number) => void (isKilled && setTimeout(() => killPlugin(pid), at))
  const { code, body } = await call(slot, 'ADD', { started })
  if (mine !== boot) return
  slot.has = code === 0 ? 'address' : 'failed'
  if (code === 0 && slot.agent.hasCache) slot.agent.node.cache(slot.container, body, slot.args)
}

/** Until it succeeds, as a runtime does. */
async function del(slot: Slot, netns?: string): Promise<void> {
  const mine = boot
  const options = netns === undefined ? {} : { netns }
  while (mine === boot && (await call(slot, 'DEL', options)).code !== 0) await delay(50)
}

/** The container ends; the way is drawn. */
async function end(slot: Slot, { way }: Fate): Promise<void> {
  const mine = boot
  const { node } = slot.agent
  const path = node.pathOf(slot.container)
  const remove = () => {
    if (mine === boot) node.remove(slot.container)
  }
  if (way < 4) await del(slot).then(remove)
  else if (way === 4) {
    await del(slot)
    await del(slot).then(remove)
  } else if (way === 5) {
    remove()
    await del(slot, path)
  } else if (way === 6) {
    await del(slot, '').then(remove)
  } else {
    remove()
    count('vanished')
  }
  if (mine !== boot) return
  if (way < 7) node.cache(slot.container, null)
  slot.has = 'nothing'
}

function killPlugin(pid: number): void {
  if (!plugins.has(pid)) return
  try {
    process.kill(pid, 'SIGKILL')
    count('kill -9 of the plugin')
  } catch {
    // It has ended; the IPAM plugin that it started has not.
  }
}

let containers = 0
const inFlight = new Set<Promise<void>>()
/** One call or more of one slot, in the background. */
function begin(slot: Slot): Promise<void> {
  const fate = { isKilled: pick(8) === 0, at: pick(60), way: pick(9) }
  const again = pick(8) === 0
  if (slot.has === 'nothing') {
    containers += 1
    slot.container = slot.agent.node.add(`${slot.name}x${containers}`)
    // A new sandbox of the pod, or another pod of its name: kubelet's and a StatefulSet's. A pod that lives is asked after again in
    // half a minute, a minute, and so on: the short form does not wait for that.
    const isPod = pick(2) === 0
    const isSandbox = pick(2) === 0 && slot.args !== '' && IS_LONG
    slot.uid = isPod ? (isSandbox ? slot.uid : `${slot.name}-uid${containers}`) : slot.container
    const pod = `IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=${slot.name};K8S_POD_UID=${slot.uid}`
    slot.args = isPod ? pod : ''
  }
  const work = slot.has === 'nothing' || (slot.has === 'address' && again) ? add(slot, fate) : end(slot, fate)
  slot.isBusy = true
  slot.agent.calls += 1
  const done = work.finally(() => {
    slot.isBusy = false
    slot.agent.calls -= 1
    inFlight.delete(done)
  })
  inFlight.add(done)
  return done
}
async function anySlot(isWanted: (slot: Slot) => boolean = () => true): Promise<Slot> {
  const free = () => slots.filter((one) => !one.isBusy && one.agent.calls < CALLS_AT_ONCE && isWanted(one))
  const found = await waitFor(() => free().length > 0 && free(), { what: 'a slot without a call' })
  return found[pick(found.length)]!
}

// What goes wrong.

const postgresIsUp = () =>
  waitFor(() => withClient(server.url('loop'), (client) => client.query('select 1')), { what: 'PostgreSQL' })
async function startService(): Promise<void> {
  await postgresIsUp()
  service = watch(await serve({ ...env, IPLEDGER_PORT: port }))
}
const drawAgent = () => agents[pick(agents.length)]!
/** In the middle of a call. */
async function duringACall(): Promise<void> {
  begin(await anySlot())
  await delay(pick(60))
}
let moved = 0
const loseState = ({ node }: Agent) => {
  moved += 1
  renameSync(node.state, `${node.state}.lost${moved}`)
}
/** As a backup that runs beside the agent makes it. */
function copyState({ node, copies }: Agent): void {
  moved += 1
  const copy = `${node.state}.copy${moved}`
  spawnSync('cp', ['-r', node.state, copy], { stdio: 'ignore' })
  copies.push(copy)
}

async function startThird(source: string): Promise<void> {
  third = source
  const at = ['--socket', `${guest.dir}/${source}.sock`, '--state', `${guest.dir}/${source}`]
  const bridge = agents[0]!.node.bridge
  watch(await guest.startAgent('--source', source, '--spares', '1', '--bridge', bridge, ...at))
}

async function haveSpares(): Promise<boolean> {
  const leases = await held()
  for (const { source, startedAt } of agents) {
    const { sightings } = await ok('LivenessService/ListSightings', { source, pageSize: 1_000 })
    const isListed = (address: string) => sightings.some((one: Lease) => one.address === address)
    const isFree = ({ owner, reservedAt, address }: Lease) =>
      owner?.name.startsWith(`${source}/`) && Date.parse(reservedAt) > startedAt && isListed(address)
    if (!leases.some(isFree)) return false
  }
  return true
}

const FAULTS: Readonly<Record<string, () => Promise<void>>> = {
  async 'kill -9 of an agent'() {
    const agent = drawAgent()
    await duringACall()
    await kill(agent)
    if (pick(2) === 0) begin(await anySlot((slot) => slot.agent === agent))
    await start(agent)
  },
  async 'kill -9 of the service'() {
    await duringACall()
    await stop(service, 'SIGKILL')
    await startService()
  },
  async 'kill -9 of PostgreSQL'() {
    await postgresIsUp()
    await duringACall()
    process.kill(server.pid()!, 'SIGKILL')
  },
  async 'an agent stands still'() {
    const agent = drawAgent()
    await agent.stopped
    const ms = STOPS_MS[pick(STOPS_MS.length)]!
    const { child } = agent.running!
    await duringACall()
    child.kill('SIGSTOP')
    agent.stopped = delay(ms).then(() => void child.kill('SIGCONT'))
  },
  async 'a state directory is lost'() {
    const agent = drawAgent()
    await duringACall()
    await kill(agent)
    loseState(agent)
    await start(agent)
  },
  async 'a state directory is set back'() {
    const agent = drawAgent()
    await duringACall()
    await kill(agent)
    loseState(agent)
    cpSync(agent.copies[pick(agent.copies.length)]!, agent.node.state, { recursive: true })
    await start(agent)
  },
  async 'the service is away'() {
    for (const agent of agents) await agent.stopped
    await postgresIsUp()
    const areThere = () => reconcile().then(haveSpares)
    await waitFor(areThere, { what: 'every agent to list a spare that it leased', every: 500 })
    await stop(service, 'SIGKILL')
    const before = figures['ADD answered'] ?? 0
    for (let turn = 0; turn < SPARES + 1; turn += 1) {
      const free = agents.flatMap(
        (agent) => slots.find((one) => one.agent === agent && !one.isBusy && one.has === 'nothing') ?? [],
      )
      await Promise.all(free.map(begin))
    }
    count('ADD answered while the service was away', (figures['ADD answered'] ?? 0) - before)
    await startService()
  },
  async 'a third agent comes, or goes'() {
    if (third === null) {
      moved += 1
      const source = `third${moved}`
      await register(source)
      await startThird(source)
    } else {
      await guest.killAgent()
      await ok('LivenessService/RetireSource', { id: third })
      third = null
    }
  },
}

/** All containers of the node go at once; their runtime knows what it had started. */
async function reboot(): Promise<void> {
  await duringACall()
  boot += 1
  const isAlone = pick(2) === 0
  if (isAlone) await stop(service, 'SIGKILL')
  for (const pid of plugins) killPlugin(pid)
  await guest.reboot()
  await Promise.all(agents.map(({ node }) => node.reboot()))
  await Promise.all(inFlight)
  count('containers that went with the node', slots.filter(({ has }) => has !== 'nothing').length)
  await Promise.all([...agents.map(start), third === null ? null : startThird(third)])
  const known = slots.filter(({ has }) => has !== 'nothing' && pick(2) === 0)
  for (const slot of slots) slot.has = 'nothing'
  await Promise.all(known.map((slot) => del(slot)))
  if (isAlone) await startService()
}

// The ledger.

type Lease = {
  readonly address: string
  readonly state: string
  readonly reservedAt: string
  readonly owner?: { readonly kind: string; readonly name: string; readonly uid: string }
}
const held = async (): Promise<readonly Lease[]> =>
  (await ok('LeaseService/ListLeases', { pageSize: 1_000 })).leases
type Finding = { readonly address: string; readonly because: readonly { readonly text: string }[] }
/** What an operator does, and the worker's next minute at once. */
async function reconcile(): Promise<void> {
  const { network } = await ok('NetworkService/GetNetwork', {})
  for (const { cause } of network.holds ?? []) {
    await ok('LivenessService/ResumeHold', { cause, why: 'a test kills containers' })
    count(`holds resumed (${cause})`)
  }
  await withClient(server.url('loop'), (client) =>
    client.query(`select graphile_worker.add_job(job, max_attempts => 1)
                    from unnest(array['expire', 'recheck', 'judge']) as job`),
  )
}
/** What is held and is not in a namespace, what is in one and is not its container's; free spares. */
async function difference(): Promise<readonly string[]> {
  const all = await held()
  const there = seen()
  const lost = [...there].flatMap(([address, [container]]) => {
    const { uid, has, agent } = slots.find((one) => one.container === container)!
    const lease = all.find((one) => one.address === address)
    // Of one that got a spare nobody says the name if its runtime keeps no cache and the state directory was lost.
    const isNameless = lease?.owner?.kind === 'reserve' && !(has === 'address' && agent.hasCache)
    const isOwn = lease?.owner?.uid === uid || isNameless
    return isOwn && lease?.state === 'ACTIVE' ? [] : [`${container} has ${address}: ${JSON.stringify(lease)}`]
  })
  const rest = all.filter(({ address }) => !there.has(address))
  const spares = rest.filter(({ owner }) => owner?.kind === 'reserve')
  // Of a sandbox that is gone, and whose pod lives on in another: sources are asked by the pod's uid.
  const ofPods = rest.filter(
    ({ owner, state }) =>
      state === 'QUARANTINED' && slots.some(({ uid, has }) => uid === owner?.uid && has !== 'nothing'),
  )
  figures['addresses of a pod’s earlier sandboxes'] = ofPods.length
  const leaks = rest
    .filter((one) => !spares.includes(one) && !ofPods.includes(one))
    .map((lease) => `leak: ${JSON.stringify(lease)}`)
  const wrong = agents.flatMap(({ source }) => {
    const { length } = spares.filter(({ owner }) => owner!.name.startsWith(`${source}/`))
    return length === SPARES ? [] : [`${source} has ${length} free spares`]
  })
  const ofOthers = spares.filter(({ owner }) =>
    agents.every(({ source }) => !owner!.name.startsWith(`${source}/`)),
  )
  const ofNobody = ofOthers.map((lease) => `leak: ${JSON.stringify(lease)}`)
  return [...lost, ...leaks, ...wrong, ...ofNobody]
}

test(`${ROUNDS} times ADD or DEL with faults: no address in two namespaces, and nothing leaks`, async () => {
  console.log(`seed ${SEED}`)
  const started = performance.now()
  let deck: string[] = []
  for (const agent of agents) copyState(agent)
  for (let round = 1; round <= ROUNDS; round += 1) {
    begin(await anySlot())
    if (round % REBOOT_EVERY === REBOOT_EVERY / 2) {
      await reboot()
      count('reboots')
    } else if (round % FAULT_EVERY === 0) {
      if (deck.length === 0) deck = Object.keys(FAULTS)
      const [fault] = deck.splice(pick(deck.length), 1)
      await FAULTS[fault!]!().catch((error) => {
        throw new Error(`${fault}: ${JSON.stringify(crashed)}`, { cause: error })
      })
      count(fault!)
    }
    if (round % LOOK_EVERY === 0) lookForDoubles()
    if (round % JOBS_EVERY === 0) {
      await reconcile().catch(() => count('the service or PostgreSQL was away for a reconcile'))
      copyState(drawAgent())
    }
  }
  await Promise.all(agents.map(({ stopped }) => stopped))
  await Promise.all(inFlight)
  if (third !== null) await FAULTS['a third agent comes, or goes']!()
  // One that gave a spare answers for five minutes that its container may be about to configure it, and is asked again later:
  // test/agent/report.test.ts shows that such a spare ends without a restart.
  for (const agent of agents) {
    await kill(agent)
    await start(agent)
  }
  // So that there is something that can be lost.
  for (let more = 0; more < agents.length; more += 1)
    await begin(await anySlot(({ has }) => has === 'nothing'))
  lookForDoubles()

  const begun = performance.now()
  figures['addresses in namespaces at the end'] = seen().size
  figures['seconds of the loop'] = Math.round((begun - started) / 1_000)
  let left: readonly string[] = []
  await waitFor(
    async () => {
      await reconcile()
      left = await difference()
      return left.length === 0
    },
    { what: 'what is held to be what namespaces have', timeout: 600_000, every: 500 },
  ).catch(async (error) => {
    const { findings } = await ok('LivenessService/Reconcile', { kept: true, pageSize: 1_000 })
    const why = findings.map(({ address, because }: Finding) => [address, because.map(({ text }) => text)])
    const lines = [...left, ...why.map((one: unknown) => JSON.stringify(one))]
    throw new Error(`not reconciled:\n${lines.join('\n')}`, { cause: error })
  })
  const seconds = Math.round((performance.now() - begun) / 100) / 10
  lookForDoubles()
  const aside = said.flatMap((words) => words().split('\n')).filter((line) => line.includes('is set aside'))
  for (const { node } of agents)
    expect(new Attachments(node.state, () => {}).countAside, aside.join('\n')).toBe(0)
  await expectVerified({ adminUrl: server.url('loop') })
  console.log({ ...figures, 'addresses in two namespaces': 0, 'seconds until reconciled': seconds })
}, 3_600_000)
