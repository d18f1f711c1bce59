/** Identity and keys (group 9 of docs/incidents.md): a verdict about a lease acts on that lease, and where it is seen is no reason to free it. */
import { expect } from 'vitest'
import { HOUR, MINUTE, useIncidents, witnessesOf } from '../support/incident.ts'
import { useService } from '../support/service.ts'

const running = await useService()
const incident = useIncidents(running)

for (const [orphan, successor] of [
  ['10.91.0.2', '10.91.0.5'],
  ['10.91.0.5', '10.91.0.2'],
] as const) {
  incident(
    `9.1 name-reused-by-successor: of two of one name the orphan goes, ${orphan}, and the live one stays, ${successor}`,
    ['NEWER_LIFE_SUPERSEDES'],
    async (scene) => {
      const { reality } = scene
      await scene.pool('10.91.0.0/28')
      await scene.agent('n1', { ownerKinds: ['pod'] })
      await scene.agent('n2', { ownerKinds: ['pod'] })
      const name = 'default/web-0'
      const one = await scene.start({ kind: 'pod', name, uid: 'uid-1', node: 'n1', address: orphan })
      await scene.cycles(1)
      // The same name elsewhere, another uid, another address; both are there for a while.
      const two = await scene.start({ kind: 'pod', name, uid: 'uid-2', node: 'n2', address: successor })
      await scene.cycles(2)
      expect(await scene.at(orphan)).toMatchObject({
        quarantine: { reason: 'SUPERSEDED' },
        owner: { uid: 'uid-1' },
      })
      reality.end(one.workload)
      await scene.longEnough()
      expect(await scene.at(orphan)).toBeNull()
      expect(await scene.at(successor)).toMatchObject({
        leaseId: two.lease.leaseId,
        version: two.lease.version,
        state: 'ACTIVE',
      })
      const reaps = await scene.reaps()
      expect(reaps.map(({ lease }) => [lease!.leaseId, lease!.address])).toEqual([
        [one.lease.leaseId, orphan],
      ])
      expect(witnessesOf(reaps[0])).toEqual(['n1'])
      // The other way round: the name is there, and this uid is not; that keeps nothing.
      expect(reality.find({ kind: 'pod', name, uid: 'uid-1' }, '')).toBeUndefined()
    },
  )
}

incident(
  '9.2 wrong-location-recorded: booked on one node and live on another for an hour, it is kept, and the difference is told',
  ['DOUBT_IS_LIFE'],
  async (scene) => {
    const { reality } = scene
    await scene.pool('10.92.0.0/28')
    await scene.agent('n1')
    await scene.agent('n2')
    // A re-imaged node with the identity of another: the books have n1, the workload runs on n2.
    const x = await scene.start({ name: 'x', node: 'n1' })
    x.workload.nodes = ['n2']
    // Whoever is asked says that it is not here.
    for (const agent of scene.agents) agent.answers = () => ({ answer: 'GONE', detail: 'not here' })
    for (let passed = 0; passed < HOUR; passed += 10 * MINUTE) {
      await scene.passes(8.5 * MINUTE)
      await scene.cycles(3)
    }
    expect(await scene.lease(x.lease.leaseId)).toMatchObject({ state: 'ACTIVE', version: x.lease.version })
    expect((await scene.finding(x.lease.address))!.because).toContainEqual(
      expect.objectContaining({ code: 'LISTED_LIVE', source: 'n2' }),
    )
    expect(await scene.reaps()).toEqual([])
    // When it is really gone, both must miss it.
    reality.end(x.workload)
    await scene.longEnough()
    expect(await scene.lease(x.lease.leaseId)).toBeNull()
    expect(witnessesOf((await scene.reaps())[0])).toEqual(['n1', 'n2'])
  },
)
