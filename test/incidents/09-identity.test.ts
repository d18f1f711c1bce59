/** Identity and keys (group 9 of docs/incidents.md): a verdict about a lease acts on that lease, and where it is seen is no reason to free it. */
import { expect } from 'vitest'
import { useIncidents, witnessesOf } from '../support/incident.ts'
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
