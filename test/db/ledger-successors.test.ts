/** Many successors at once: what supersession reads must not cost a trip each (azure#4350 at the scale of a node). */
import { afterAll, expect, test } from 'vitest'
import { allOrNothing, claim, createPool, owner, reserve } from '../support/commands.ts'
import { useTestDatabase } from '../support/database.ts'
import { freshNetwork, useLedger } from '../support/ledger.ts'
import { expectVerified } from '../support/verified.ts'

const database = await useTestDatabase()
const ledger = useLedger({ url: database.serviceUrl })
afterAll(() => expectVerified(database))

test('a thousand successors, all or nothing, are decided before the deadline of one call', async () => {
  const network = await freshNetwork(ledger)
  await ledger.accept(createPool({ name: 'a', cidr: '10.0.0.0/20' }, { network }))
  const life = (incarnation: string) =>
    allOrNothing(
      Array.from({ length: 1_000 }, (_, index) =>
        reserve({
          network,
          owner: owner({ name: `w${index}`, incarnation }),
          claims: [claim({ pool: 'a' })],
        }),
      ),
      { network },
    )
  const first = await ledger.accept(life('1'))
  const second = await ledger.accept(life('2'))
  expect(first.items![7]!.leases[0]).toMatchObject({
    address: '10.0.0.8',
    owner: { name: 'w7', incarnation: '1' },
  })
  expect(second.items![7]!.leases[0]).toMatchObject({
    address: '10.0.3.240',
    owner: { name: 'w7', incarnation: '2' },
  })
})
