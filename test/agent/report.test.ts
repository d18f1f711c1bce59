/** What an agent lists for whom, and what it answers when it is asked. Its scans are the test's, the leases the service's. */
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { create } from '@bufbuild/protobuf'
import { expect, test, vi } from 'vitest'
import { Reporter } from '../../src/agent/report.ts'
import { Spares } from '../../src/agent/spares.ts'
import { createClient } from '../../src/client/client.ts'
import { Attachments } from '../../src/cni/attachments.ts'
import { type Call, readCall } from '../../src/cni/call.ts'
import type { Scan } from '../../src/cni/namespaces.ts'
import { LookUpAnswer } from '../../src/gen/ipledger/v1/liveness_pb.ts'
import { type Lease, LeaseSchema } from '../../src/gen/ipledger/v1/types_pb.ts'
import { useService } from '../support/service.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

/** Process 7 is in a container, as its control group says. */
vi.mock('../../src/cni/namespaces.ts', async (original) => ({
  ...(await original<object>()),
  containerOf: (pid: number) => (pid === 7 ? { kind: 'container', uid: 'c7' } : null),
}))

const { call, url } = await useService()
let count = 0

function add(container: string): Call {
  const env = { CNI_COMMAND: 'ADD', CNI_NETNS: '/none', CNI_IFNAME: 'eth0', CNI_CONTAINERID: container }
  return readCall(env, JSON.stringify({ cniVersion: '1.0.0', ipam: { type: 'ipledger-cni' } }))
}

/** An agent on a node of its own, of which each process can be started; on disk is what ADD wrote down. */
async function useNode() {
  count += 1
  const node = `n${count}`
  const state = temporaryDirectory()
  await call.ok('PoolService/CreatePool', { name: node, cidr: `10.51.${count}.0/28` })
  const sight = { node, ownerKinds: ['container'], interval: '30s' }
  await call.ok('LivenessService/RegisterSource', { id: node, sight })
  const attachments = new Attachments(state, () => {})
  /** Addresses in namespaces without a path or process. */
  let scan: Scan = { seen: [], all: new Set(), complete: true, namespaces: new Map() }
  /** While it scans. */
  let handed: readonly Lease[] = []
  /** Whose absence the service wants to know. */
  let asked: readonly { readonly kind: string; readonly uid: string; readonly address: string }[] = []
  /** While it scans, and before its report leaves. */
  let meanwhile = { scanning: async () => {}, sending: async () => {} }

  return {
    /** Once. */
    meanwhile(what: Partial<typeof meanwhile>) {
      meanwhile = { ...meanwhile, ...what }
    },
    node,
    attachments,
    configured(...addresses: readonly string[]) {
      const spaces = addresses.map((address, at) => ({ address, interface: 'eth0', namespace: `1:${at}` }))
      scan = {
        seen: spaces.map((one) => ({ ...one, isConnected: true })),
        all: new Set(addresses),
        complete: true,
        namespaces: new Map(spaces.map(({ namespace }) => [namespace, { path: '/none', pid: null }])),
      }
    },
    /** A process of a container is in each namespace. */
    runs() {
      const running = [...scan.namespaces.keys()].map((one) => [one, { path: '/none', pid: 7 }] as const)
      scan = { ...scan, namespaces: new Map(running) }
    },
    hide() {
      scan = { ...scan, complete: false }
    },
    /** The runtime wrote down that a container's namespace is there. */
    caches(container: string, netns: string) {
      const interfaces = [{ name: 'eth0', sandbox: netns }]
      const entry = { kind: 'cniCacheV1', containerId: container, ifName: 'eth0', result: { interfaces } }
      mkdirSync(join(state, 'results'), { recursive: true })
      writeFileSync(join(state, 'results', container), JSON.stringify(entry))
    },
    /** A path that leads to itself. */
    unreadable() {
      const path = join(temporaryDirectory(), 'netns')
      symlinkSync(path, path)
      return path
    },
    handsOut(...leases: typeof handed) {
      handed = leases
    },
    asks(...whom: typeof asked) {
      asked = whom
    },
    start(clocks?: () => readonly number[]) {
      const real = createClient({ url })
      let entries: readonly object[] = []
      let answers: readonly (LookUpAnswer | undefined)[] = []
      const once = async (when: keyof typeof meanwhile) => {
        const work = meanwhile[when]
        meanwhile = { ...meanwhile, [when]: async () => {} }
        await work()
      }
      const reportSnapshot: typeof real.liveness.reportSnapshot = async (request, options) => {
        await once('sending')
        entries = request.entries ?? entries
        const answer = await real.liveness.reportSnapshot(request, options)
        const verifications = asked.map(({ address, ...owner }, at) => ({ id: `${at}`, owner, address }))
        return { ...answer, verifications } as typeof answer
      }
      const reportVerdicts: typeof real.liveness.reportVerdicts = async ({ verdicts }) => {
        answers = verdicts!.map(({ answer }) => answer)
        return { $typeName: 'ipledger.v1.ReportVerdictsResponse' } as never
      }
      const client = { ...real, liveness: { ...real.liveness, reportSnapshot, reportVerdicts } }
      const common = { client, network: 'default', node, source: node }
      const scans = {
        scan: async () => ({ ...scan, all: new Set<string>() }),
        isAnsweredFor: async () => false,
      }
      const spares = new Spares({ ...common, ...scans, size: 2, pools: [node], ...(clocks && { clocks }) })
      const reporter = new Reporter({
        ...common,
        spares,
        attachments,
        state,
        bridge: 'cni0',
        cniCache: state,
        scanNode: async () => {
          await once('scanning')
          reporter.reserved(handed)
          return scan
        },
      })
      return {
        spares,
        foreign: () => reporter.foreign,
        /** What it lists, and what it answers to what is asked. */
        async report() {
          await reporter.report()
          await spares.fill([])
          return { entries, answers }
        },
        async take(container: string) {
          const leases = (await spares.take(add(container)))!
          const called = { network: 'default', owner: add(container).owner!, netns: '/none' }
          attachments.added({ ...called, configuration: 'blue', node }, leases)
          return { address: leases[0]!.address, kind: 'reserve', uid: leases[0]!.owner!.uid }
        },
      }
    },
  }
}

test('free ones are listed under their holders; a taken one for its container, and only while it is found', async () => {
  const here = await useNode()
  const agent = here.start()
  await agent.report()
  const { entries } = await agent.report()
  expect(entries).toHaveLength(2)
  for (const entry of entries)
    expect(entry).toMatchObject({ kind: 'reserve', uid: expect.stringMatching(`^${here.node}/`) })

  const spare = await agent.take('c1')
  const without = (await agent.report()).entries
  expect(without).not.toContainEqual(expect.objectContaining({ address: spare.address }))
  here.configured(spare.address)
  const own = { address: spare.address, kind: 'container', uid: 'c1', name: 'c1', interface: 'eth0' }
  expect((await agent.report()).entries).toContainEqual(expect.objectContaining(own))
  // The next process reads what ADD wrote down.
  expect((await here.start().report()).entries).toContainEqual(expect.objectContaining(own))
})

test('one that nobody is known to have taken stays its holder’s', async () => {
  const here = await useNode()
  const agent = here.start()
  await agent.report()
  const spare = await agent.take('c1')
  here.attachments.delivered({ network: 'default', owner: add('c1').owner! })
  here.configured(spare.address)
  expect((await here.start().report()).entries).toContainEqual(expect.objectContaining(spare))
})

test('… unless the control group of a process there says in which container it is', async () => {
  const here = await useNode()
  const agent = here.start()
  await agent.report()
  const { address } = await agent.take('c1')
  here.attachments.delivered({ network: 'default', owner: add('c1').owner! })
  here.configured(address)
  here.runs()
  expect((await here.start().report()).entries).toContainEqual({ address, kind: 'container', uid: 'c7' })
})

test('what is handed out while it scans is not foreign, nor without a report that it can begin', async () => {
  const here = await useNode()
  const agent = here.start()
  const address = `10.51.${here.node.slice(1)}.9`
  here.configured(address)
  here.handsOut(create(LeaseSchema, { address }))
  await agent.report()
  await agent.report()
  expect(agent.foreign()).toEqual([])
  here.handsOut()
  await call.ok('LivenessService/RetireSource', { id: here.node })
  await expect(agent.report()).rejects.toThrow('RETIRED')
  expect(agent.foreign()).toEqual([])
  await expect(agent.report()).rejects.toThrow('RETIRED')
  expect(agent.foreign()).toEqual([address])
})

test('after a report that was refused it gives none', async () => {
  const here = await useNode()
  const agent = here.start()
  await agent.report()
  await call.ok('LivenessService/RetireSource', { id: here.node })
  await expect(agent.report()).rejects.toThrow('RETIRED')
  await expect(agent.spares.take(add('c1'))).rejects.toThrow('has not reported')
})

test('nor after one that was refused when it was sent', async () => {
  const here = await useNode()
  const agent = here.start()
  await agent.report()
  here.meanwhile({
    sending: async () => void (await call.ok('LivenessService/RetireSource', { id: here.node })),
  })
  await expect(agent.report()).rejects.toThrow('RETIRED')
  await expect(agent.spares.take(add('c1'))).rejects.toThrow('has not reported')
})

test('after one that nobody answered it does', async () => {
  const here = await useNode()
  const agent = here.start()
  await agent.report()
  here.meanwhile({ sending: () => unanswered() })
  await expect(agent.report()).rejects.toThrow()
  expect(await agent.spares.take(add('c1'))).toHaveLength(1)
})
/** A call to where no service is. */
const unanswered = async () => void (await createClient({ url: 'http://127.0.0.1:9' }).pools.listPools({}))

test('after one during which it stood still it gives none', async () => {
  let ms = 0
  const here = await useNode()
  const agent = here.start(() => [ms])
  await agent.report()
  here.meanwhile({
    scanning: async () => {
      ms += 30_001
    },
  })
  await agent.report()
  await expect(agent.spares.take(add('c1'))).rejects.toThrow('stood still')
  await agent.report()
  expect(await agent.spares.take(add('c1'))).toHaveLength(1)
})

test('of what is foreign it names as many as Reserve takes', async () => {
  const here = await useNode()
  const agent = here.start()
  here.configured(...Array.from({ length: 4_097 }, (_, at) => `10.200.${at >> 8}.${at & 255}`))
  for (let times = 0; times < 2; times += 1) await agent.report()
  expect(agent.foreign()).toHaveLength(4_096)
  await agent.spares.fill(agent.foreign())
})

test('one that two namespaces have is neither’s', async () => {
  const here = await useNode()
  const agent = here.start()
  await agent.report()
  const { address } = await agent.take('c1')
  here.configured(address, address)
  const listed = (await agent.report()).entries.filter((entry) => Object.values(entry).includes(address))
  expect(listed).toEqual([{ address }, { address }])
})

test('a free one that is in use is listed for whoever uses it, and given to nobody', async () => {
  const here = await useNode()
  const agent = here.start()
  await agent.report()
  const [first, second] = agent.spares.listed().map(({ address }) => address)
  here.configured(first!, second!)
  const { entries } = await agent.report()
  expect(entries).toHaveLength(2)
  expect(await agent.spares.take(add('c1'))).not.toMatchObject([{ address: first }])
  expect(await agent.spares.take(add('c2'))).not.toMatchObject([{ address: second }])
})

test('it is LIVE while this process holds it or an interface has it, GONE for the next process', async () => {
  const here = await useNode()
  const agent = here.start()
  await agent.report()
  const taken = await agent.take('c1')
  const { address, kind, uid } = agent.spares.listed()[0]!
  const free = { address, kind, uid }
  here.asks(free, taken)
  const { LIVE, GONE, ERROR } = LookUpAnswer
  // A container may be about to configure the second.
  expect((await agent.report()).answers).toEqual([LIVE, LIVE])
  here.configured(taken.address)
  expect((await agent.report()).answers).toEqual([LIVE, LIVE])
  here.configured()
  expect((await agent.report()).answers).toEqual([LIVE, GONE])

  const next = here.start()
  expect((await next.report()).answers).toEqual([GONE, GONE])
  here.hide()
  expect((await next.report()).answers).toEqual([ERROR, ERROR])
  here.configured(address)
  expect((await next.report()).answers).toEqual([LIVE, GONE])
})

test('an owner whose namespace cannot be looked at is not GONE, and the report is sent', async () => {
  const here = await useNode()
  here.caches('c1', here.unreadable())
  here.caches('c2', here.unreadable())
  here.asks(
    { kind: 'container', uid: 'c1', address: '10.51.200.1' },
    { kind: 'container', uid: 'c2', address: '10.51.200.2' },
    { kind: 'container', uid: 'c3', address: '10.51.200.3' },
  )
  const { ERROR, GONE } = LookUpAnswer
  expect((await here.start().report()).answers).toEqual([ERROR, ERROR, GONE])
})

test('one whose container vanished before a scan found it is LIVE for five minutes, and then ends without a restart', async () => {
  let ms = 0
  const here = await useNode()
  const agent = here.start(() => [ms, ms])
  await agent.report()
  const taken = await agent.take('c1')
  here.asks(taken)
  ms += 299_999
  expect((await agent.report()).answers).toEqual([LookUpAnswer.LIVE])
  ms += 1
  expect((await agent.report()).answers).toEqual([LookUpAnswer.GONE])
  const [lease] = agent.spares.of(add('c1').owner!)!
  // As the service does with such an answer.
  await call.ok('LeaseService/Release', { leaseId: lease!.leaseId })
  await agent.report()
  expect(agent.spares.of(add('c1').owner!)).toBeNull()
})

test.each(['CLOSED_EPOCH', 'OUT_OF_SEQUENCE', 'OTHER_ERA'])(
  'a report that was not taken because of %s is none',
  async (why) => {
    const here = await useNode()
    const agent = here.start()
    await agent.report()
    const another = here.start()
    const sending = {
      CLOSED_EPOCH: async () => void (await another.report()),
      OUT_OF_SEQUENCE: async () => void (await agent.report()),
      OTHER_ERA: async () =>
        void (await call.ok('NetworkService/BeginRecovery', { network: 'default', why: 'a test' })),
    }[why]!
    here.meanwhile({ sending })
    await expect(agent.report()).rejects.toThrow(why)
    await expect(agent.spares.take(add('c1'))).rejects.toThrow('has not reported')
    // Only a number beyond the log is forgotten.
    if (why !== 'CLOSED_EPOCH') await agent.report()
  },
)
