/** Which pools hand out, and what a pool may be. */
import { command, network, pool, reserve, type Step } from './given.ts'
import type { Row } from './rows.ts'

const named = (name: string, cidr: string, isDefault = false) => pool(cidr, { name, isDefault })
const update = (name: string, change: object) =>
  command({ type: 'updatePool', name, version: null, change }) as Exclude<Step, readonly Step[]>

export const POOLS: readonly Row[] = [
  {
    name: 'the only pool of each family is its default',
    given: [network, named('a', '10.0.0.0/28'), named('b', 'fd00::/120')],
    when: reserve('x/1'),
    gives: ['lease.reserved 10.0.0.1 RESERVED #4', 'lease.reserved fd00::1 RESERVED #5'],
  },
  {
    name: 'of a family with two pools and no default a Reserve without claims gets none',
    given: [network, named('a', '10.0.0.0/28'), named('b', 'fd00::/120'), named('c', 'fd01::/120')],
    when: reserve('x/1'),
    gives: ['lease.reserved 10.0.0.1 RESERVED #5'],
  },
  {
    name: '… and is refused where no family has a default',
    given: [network, named('b', 'fd00::/120'), named('c', 'fd01::/120')],
    when: reserve('x/1'),
    gives: ['refused INVALID_FIELD'],
  },
  {
    name: 'the default of a family moves to the pool that is made with it',
    given: [
      network,
      named('a', '10.0.0.0/28', true),
      named('b', '10.0.1.0/28', true),
      named('c', 'fd00::/120'),
    ],
    when: reserve('x/1'),
    gives: ['lease.reserved 10.0.1.1 RESERVED #6', 'lease.reserved fd00::1 RESERVED #7'],
  },
  {
    name: '… or to the one that asks for it',
    given: [
      [network, named('a', '10.0.0.0/28', true), named('b', '10.0.1.0/28'), named('c', 'fd00::/120', true)],
      update('b', { isDefault: true }),
    ],
    when: reserve('x/1'),
    gives: ['lease.reserved 10.0.1.1 RESERVED #7', 'lease.reserved fd00::1 RESERVED #8'],
  },
  {
    name: '… and then stays until another asks',
    given: [
      [network, named('a', '10.0.0.0/28', true), named('b', '10.0.1.0/28', true)],
      update('a', { isDefault: true }),
    ],
    when: update('a', { draining: true }),
    gives: ['pool.updated'],
  },
]
