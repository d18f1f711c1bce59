/** history, explain, as-of, events and verify --server at the command line. */
import { expect, test } from 'vitest'
import { useService } from '../support/service.ts'
import { ipledger, ipledgerJson, words } from './commands.ts'

const service = await useService()
const json = <T>(line: string): Promise<T> => ipledgerJson<T>(service, words(line))
const printed = async (line: string): Promise<string> => {
  const { code, stdout, stderr } = await ipledger(service, words(line))
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
  return stdout
}

await json('pool create web --cidr 10.8.64.0/24 --cooldown 0s')
const named = '--kind pod --incarnation 1 --pool web --address 10.8.64.2'
await json(`reserve --name default/web-0 --node n1 ${named}`)
await json('confirm default/3')
await json('release default/3')
await json(`reserve --name default/web-1 ${named}`)
await json('quarantine 10.8.64.2 --why "answers ping on two nodes"')

type Seqs = {
  readonly entries: readonly { readonly event: { readonly seq: string }; readonly what: string }[]
}
const seqs = (text: string) => [...text.matchAll(/^(\d+) {4}2/gm)].map((found) => found[1])

test('by pages, from the newest back', async () => {
  const first = await ipledger(service, words('history 10.8.64.0/24 --page-size 2'))
  expect(first.code).toBe(0)
  expect(seqs(first.stdout)).toEqual(['6', '7'])
  const token = /^There is more: .* --page-token (\S+) for/m.exec(first.stdout)![1]!
  expect(seqs(await printed(`history 10.8.64.0/24 --page-token ${token}`))).toEqual(['3', '4', '5'])
  expect(await printed('events --page-size 1 --all')).not.toContain('There is more')
  expect(await printed('events --page-size 1 --all -o wide')).toMatch(/^NETWORK +SEQ +TYPE /)
  expect(await printed('events --all -o yaml')).toMatch(/^events:\n {2}- network: default\n {4}seq: "1"\n/)
})

test('of a lease, of a stretch', async () => {
  expect(await printed('lease history default/3')).toMatch(/default\/3 [\s\S]*was released/)
  const stretch = await json<Seqs>('history 10.8.64.2 --from 4 --to 5')
  expect(stretch.entries.map(({ event }) => event.seq)).toEqual(['5', '4'])
  expect((await json<Seqs>('history 10.8.64.2 --from -1h')).entries).toHaveLength(5)
  expect(await printed('history 10.8.64.2 --to 2020-01-01')).toBe('nobody held it\n\nno events\n')
})

test('as-of: by number, by time, ago', async () => {
  expect(await printed('as-of 4')).toMatch(
    /^Network default at number 4, \S+Z\n\nLEASE .*\ndefault\/3 {2}10\.8\.64\.2 +ACTIVE/,
  )
  expect(await printed('as-of -0s --pool web')).toContain('default/6')
  expect(await printed('as-of -1d')).toBe('Network default before its first event\n\nno leases\n')
  expect(await json('as-of 2030-01-01')).toMatchObject({ seq: '7', leases: [{ leaseId: 'default/6' }] })
})

test('events of a stretch of time', async () => {
  expect(await printed('events --from -1h --type lease.released')).toMatch(/\n5 .*lease\.released/)
  expect(await printed('events --to -1h')).toBe('no events\n')
})

test('verify --server', async () => {
  expect(await printed('verify --server')).toMatch(/^NETWORK .*\ndefault +7 +\d +7 +none +7:[0-9a-f]{64}\n$/)
  expect(await json('verify --server')).toMatchObject({ complete: true, verifiedSeq: '7', findings: [] })
})
