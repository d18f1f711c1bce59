/** Releases that wait: none is lost, and none overtakes the ADD after it. */
import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { createOutbox } from '../../src/cni/outbox.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

const owner = { kind: 'container', name: 'c1', uid: 'c1', incarnation: '', interface: 'eth0' } as const
const parting = { network: 'default', owner, netns: '/run/netns/c1' }

test('one attachment has one release, whoever asks how often', async () => {
  const directory = temporaryDirectory()
  const outbox = createOutbox(directory)
  outbox.put(parting)
  outbox.put(parting)
  outbox.put({ ...parting, owner: { ...owner, interface: 'eth1' } })
  expect(createOutbox(directory).all('default')).toHaveLength(2)
  expect(outbox.all('other')).toEqual([])
  outbox.remove(parting)
  expect(outbox.all('default').map((one) => one.owner.interface)).toEqual(['eth1'])
})

test('an ADD takes its release back only when no delivery is under way', async () => {
  const directory = temporaryDirectory()
  const [one, other] = [createOutbox(directory), createOutbox(directory)]
  one.put(parting)
  const delivered = Promise.withResolvers<void>()
  const steps: string[] = []
  const delivery = one.locked(async () => {
    await delivered.promise
    steps.push('delivered')
  })
  const added = other.withdraw(parting).then(() => steps.push('withdrawn'))
  // Other attachments wait for nobody.
  await other.withdraw({ network: 'default', owner: { ...owner, uid: 'c2' } })
  delivered.resolve()
  await Promise.all([delivery, added])
  expect(steps).toEqual(['delivered', 'withdrawn'])
  expect(one.all('default')).toEqual([])
})

test('the lock of a process that was killed is free', async () => {
  const directory = temporaryDirectory()
  const path = join(import.meta.dirname, '../../src/cni/outbox.ts')
  const holder = spawn(process.execPath, [
    '--input-type=module',
    '-e',
    `const { createOutbox } = await import(${JSON.stringify(path)})
     await createOutbox(${JSON.stringify(directory)}).locked(() => (console.log('held'), new Promise(() => setInterval(() => {}, 1000))))`,
  ])
  await new Promise((held) => holder.stdout.once('data', held))
  holder.kill('SIGKILL')
  await expect(createOutbox(directory).locked(async () => 'mine')).resolves.toBe('mine')
})
