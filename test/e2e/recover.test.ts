/** `ipledger recover`: an operator says what the database cannot know, while the service runs. */
import { afterAll, expect, test } from 'vitest'
import { useTestDatabase } from '../support/database.ts'
import { rpc } from '../support/rpc.ts'
import { expectVerified } from '../support/verified.ts'
import { ipledger, ipledgerJson, startService, stopService } from './service.ts'

const database = await useTestDatabase()
const env = { DATABASE_URL: database.adminUrl }
const ERA = 2n ** 40n

afterAll(() => expectVerified(database))

test('a new era by an operator’s word, above the number somebody quotes, until the operator ends it', async () => {
  const service = await startService(env, { args: ['--no-worker'] })
  const call = rpc(service.url)
  await call.ok('NetworkService/CreateNetwork', { name: 'other' })
  await call.ok('PoolService/CreatePool', { name: 'web', cidr: '10.5.0.0/24' })
  const one = (name: string) => ({
    owner: { kind: 'sandbox', name, uid: name, incarnation: '1' },
    claims: [{ pool: 'web' }],
  })
  await call.ok('LeaseService/Reserve', one('held'))

  const why = ['--why', 'volume set back']
  for (const [args, said] of [
    [['recover'], "required option '--why <text>'"],
    [['recover', 'nowhere', ...why], 'There is no network nowhere.'],
    [['recover', ...why, '--above', 'default/9'], 'Say of which network the number is'],
    [['recover', 'default', ...why, '--above', 'nine'], 'It must be a lease id or a number.'],
    [['recover', '--end', ...why], 'Say which network'],
    [['recover', 'default', ...why, '--above', String(2n ** 52n)], 'nobody was ever given it'],
  ] as const) {
    const { code, stderr } = await ipledger(service, args, env)
    expect([code, stderr]).toEqual([1, expect.stringContaining(said)])
  }
  expect((await call.ok('NetworkService/GetNetwork', {})).network.state).toBe('READY')

  const quoted = `default/${3n * ERA + 7n}`
  const begun = await ipledgerJson(service, ['recover', 'default', ...why, '--above', quoted], env)
  expect(begun).toEqual({
    networks: [{ network: 'default', era: 4, head: String(4n * ERA), state: 'RECOVERING' }],
  })
  // The service that runs beside it is told by the next command.
  const refused = await call('LeaseService/Reserve', one('late'))
  expect([refused.reason, refused.body.message]).toEqual([
    'NETWORK_RECOVERING',
    expect.stringContaining('ipledger recover --end default'),
  ])
  const shown = await ipledger(service, ['network', 'get'], env)
  expect(shown.stdout).toMatch(/state +RECOVERING/)
  expect(shown.stdout).toMatch(/recovering +since .*: volume set back/)
  expect(shown.stdout).toMatch(/waits for +an operator, no source is enabled: ipledger recover --end default/)

  const ended = await ipledger(service, ['recover', 'default', '--end', '--why', 'nothing runs there'], env)
  expect([ended.code, ended.stdout]).toEqual([0, expect.stringMatching(/state +READY/)])
  expect((await ipledger(service, ['network', 'get'], env)).stdout).not.toContain('recovering')
  const { leases } = await call.ok('LeaseService/Reserve', one('late'))
  expect(leases[0]).toMatchObject({ address: '10.5.0.2', fencingToken: String(4n * ERA + 2n) })

  const all = await ipledger(service, ['recover', ...why], env)
  expect(all.stdout).toMatch(/default +5 +\d+ +RECOVERING/)
  expect(all.stdout).toMatch(/other +1 +\d+ +RECOVERING/)
  call.close()
  await stopService(service)
})
