/** What ADD answered and what waits for its release: none is lost, and none overtakes the ADD after it. */
import { execFileSync, spawn } from 'node:child_process'
import { readdirSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs'
import { Server } from 'node:net'
import { join } from 'node:path'
import { create } from '@bufbuild/protobuf'
import { expect, onTestFinished, test, vi } from 'vitest'
import { Attachments } from '../../src/cni/attachments.ts'
import { LeaseSchema } from '../../src/gen/ipledger/v1/types_pb.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'
import { waitFor } from '../support/wait-for.ts'

const owner = { kind: 'container', name: 'c1', uid: 'c1', incarnation: '', interface: 'eth0' } as const
const called = { network: 'default', configuration: 'blue', node: 'n1', owner, netns: '/run/netns/c1' }
const open = (directory: string) => new Attachments(directory, expect.unreachable)
const lease = (leaseId: string) => create(LeaseSchema, { leaseId, address: `10.0.0.${leaseId}`, owner })

test('one attachment has one release, whoever asks how often', () => {
  const directory = temporaryDirectory()
  const attachments = open(directory)
  attachments.removed(called)
  attachments.removed(called)
  attachments.removed({ ...called, owner: { ...owner, interface: 'eth1' } })
  expect(open(directory).files('removed', 'default')).toHaveLength(2)
  expect(attachments.files('removed', 'other')).toEqual([])
  expect(attachments.files('removed', null)).toHaveLength(2)
  attachments.delivered(called)
  attachments.delivered(called)
  expect(attachments.files('removed', 'default').map((one) => one.owner.interface)).toEqual(['eth1'])
})

test('what ADD answered is to be released, also what it answered earlier; where it was is known to a DEL without a path', () => {
  const attachments = open(temporaryDirectory())
  attachments.added(called, [lease('5')])
  attachments.added(called, [lease('6')])
  attachments.added(called, [lease('6'), lease('7')])
  expect(attachments.files('inUse', 'default')).toHaveLength(1)
  expect(attachments.files('removed', 'default')).toEqual([])
  attachments.removed({ ...called, node: '', netns: '' })
  expect(attachments.files('inUse', 'default')).toEqual([])
  const leases = ['5', '6', '7'].map((leaseId) => ({ leaseId, address: `10.0.0.${leaseId}`, owner }))
  expect(attachments.files('removed', 'default')).toEqual([{ ...called, leases, isRemoved: true }])
})

test('an ADD takes its release back only when no delivery is under way, and forgets nothing', async () => {
  const directory = temporaryDirectory()
  symlinkSync(directory, join(directory, 'link'))
  const [one, other] = [open(directory), open(join(directory, 'link'))]
  one.added(called, [lease('5')])
  one.removed(called)
  const listens = vi.spyOn(Server.prototype, 'listen')
  onTestFinished(() => listens.mockRestore())
  const delivered = Promise.withResolvers<void>()
  const steps: string[] = []
  const delivery = one.locked(async () => {
    await delivered.promise
    steps.push('delivered')
  })
  const added = other.withdraw(called).then(() => steps.push('withdrawn'))
  // Other attachments wait for nobody.
  await other.withdraw({ network: 'default', owner: { ...owner, uid: 'c2' } })
  // Its second attempt: the first found the lock held.
  await waitFor(() => steps.length > 0 || listens.mock.calls.length === 3)
  delivered.resolve()
  await Promise.all([delivery, added])
  expect(steps).toEqual(['delivered', 'withdrawn'])
  expect(one.files('removed', 'default')).toEqual([])
  expect(one.of(called)?.leases).toMatchObject([{ leaseId: '5' }])
})

test('what is delivered while an ADD waits stays delivered', async () => {
  const attachments = open(temporaryDirectory())
  attachments.removed(called)
  const delivery = attachments.locked(async () => attachments.delivered(called))
  await Promise.all([delivery, attachments.withdraw(called)])
  expect(attachments.of(called)).toBeNull()
})

test('a lock that is held for too long is an error', async () => {
  const attachments = open(temporaryDirectory())
  const held = Promise.withResolvers<void>()
  const holder = attachments.locked(() => held.promise)
  vi.spyOn(performance, 'now').mockReturnValueOnce(0).mockReturnValue(30_001)
  onTestFinished(() => void vi.restoreAllMocks())
  await expect(attachments.locked(async () => {})).rejects.toThrow('held by another process')
  held.resolve()
  await holder
})

test('an attachment is one file, and no draft is left', () => {
  const directory = temporaryDirectory()
  const warned: string[] = []
  const attachments = new Attachments(directory, (message) => warned.push(message))
  const files = () =>
    readdirSync(directory, { recursive: true, withFileTypes: true })
      .filter((one) => one.isFile())
      .map(({ parentPath, name }) => join(parentPath.slice(directory.length), name))
  attachments.added(called, [lease('5')])
  attachments.removed(called)
  attachments.setAside(attachments.of(called)!, 'why')
  expect(files()).toEqual([expect.stringMatching(/^[/]attachments[/][0-9a-f]{64}[.]json$/)])
  expect([attachments.countAside, attachments.files('removed', 'default')]).toEqual([1, []])
  expect(warned).toEqual([
    expect.stringContaining('why; if nothing uses it, end it by "ipledger reap": 5 (10.0.0.5) (1'),
  ])
  // DEL again.
  attachments.removed(called)
  expect([attachments.countAside, attachments.files('removed', 'default').length]).toEqual([0, 1])
  attachments.delivered(called)
  expect(files()).toEqual([])
})

test('a file that another process removes meanwhile stops nothing', () => {
  const directory = temporaryDirectory()
  const attachments = open(directory)
  attachments.removed(called)
  // Listed, and then not there.
  symlinkSync('/none', join(directory, 'attachments/gone.json'))
  writeFileSync(join(directory, 'attachments/draft'), '{')
  expect([attachments.files('inUse', 'default'), attachments.files('removed', 'default').length]).toEqual([
    [],
    1,
  ])
  expect(attachments.countAside).toBe(0)
})

test('one that cannot be read where it is in use is set aside, too', () => {
  const directory = temporaryDirectory()
  const warned: string[] = []
  const attachments = new Attachments(directory, (message) => warned.push(message))
  attachments.added(called, [lease('5')])
  const [name] = readdirSync(join(directory, 'attachments'))
  const path = join(directory, 'attachments', name!)
  writeFileSync(path, '')
  utimesSync(path, 0, 0)
  const fifo = join(directory, 'attachments/fifo.json')
  execFileSync('mkfifo', [fifo])
  utimesSync(fifo, 0, 0)
  // Without it a read waits for ever.
  const writer = spawn('sh', ['-c', 'echo > "$0"', fifo])
  onTestFinished(() => void writer.kill('SIGKILL'))
  expect([attachments.files('inUse', 'default'), attachments.files('inUse', 'default')]).toEqual([[], []])
  expect(warned.toSorted()).toEqual([
    expect.stringMatching(`${name}.*JSON.*[12] are set aside on this node`),
    expect.stringMatching('fifo.json.*no file.*[12] are set aside on this node'),
  ])
  expect(attachments.countAside).toBe(2)
})

test('a clock that is set back delays no release', () => {
  const warned: string[] = []
  const attachments = new Attachments(temporaryDirectory(), (message) => warned.push(message))
  attachments.removed(called)
  const other = { ...called, owner: { ...owner, uid: 'aside' } }
  attachments.removed(other)
  attachments.setAside(attachments.of(other)!, 'why')
  expect(attachments.files('removed', 'default')).toHaveLength(1)
  expect(warned).toEqual([expect.stringContaining('why (1')])
  vi.setSystemTime(Date.now() - 1_800_000)
  onTestFinished(() => void vi.useRealTimers())
  expect(attachments.files('removed', 'default')).toHaveLength(2)
})

test('the lock of a process that was killed is free', async () => {
  const directory = temporaryDirectory()
  const path = join(import.meta.dirname, '../../src/cni/attachments.ts')
  const holder = spawn(process.execPath, [
    '--input-type=module',
    '-e',
    `const { Attachments } = await import(${JSON.stringify(path)})
     const attachments = new Attachments(${JSON.stringify(directory)})
     await attachments.locked(() => (console.log('held'), new Promise(() => setInterval(() => {}, 1000))))`,
  ])
  await new Promise((held) => holder.stdout.once('data', held))
  holder.kill('SIGKILL')
  await expect(open(directory).locked(async () => 'mine')).resolves.toBe('mine')
})
