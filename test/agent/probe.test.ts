/** The programs of a probe: two packages have an `arping`, and their exit codes mean the opposite of each other. */
import { chmodSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, expect, test, vi } from 'vitest'
import { checkProbe, probe } from '../../src/agent/probe.ts'
import { createClient } from '../../src/client/client.ts'
import { useService } from '../support/service.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

const { url, call } = await useService()
await call.ok('PoolService/CreatePool', { name: 'web', cidr: '10.0.0.0/29', cooldown: '0s' })
const client = createClient({ url })

/** What they say to -V; Debian's `arping` takes an argument there. */
const IPUTILS = `echo 'arping from iputils 20221126'`
const HABETS = `echo "arping: option requires an argument -- 'V'" >&2
echo 'ARPing 2.23, by Thomas Habets <thomas@habets.se>'
exit 1`
const NDISC6 = `echo 'ndisc6: IPv6 Neighbor/Router Discovery userland tool 1.0.5 (Feb 19 2023)'`

/** Only these are on the PATH. */
function install(programs: Readonly<Record<string, string>>): void {
  const bin = temporaryDirectory()
  for (const [name, script] of Object.entries(programs)) {
    writeFileSync(join(bin, name), `#!/bin/sh\n${script}\n`)
    chmodSync(join(bin, name), 0o755)
  }
  vi.stubEnv('PATH', bin)
}
afterEach(() => void vi.unstubAllEnvs())

test('iputils’ and ndisc6 can be told apart', async () => {
  install({ arping: IPUTILS, ndisc6: NDISC6 })
  await expect(checkProbe()).resolves.toBeUndefined()
})

test.each([
  ['Debian’s arping', { arping: HABETS, ndisc6: NDISC6 }, /arping of iputils \(Debian: iputils-arping\)/],
  ['no arping', { ndisc6: NDISC6 }, /iputils-arping/],
  ['no ndisc6', { arping: IPUTILS }, /\(Debian: ndisc6\)/],
])('%s: it does not start, and says the package to install', async (_, programs, words) => {
  install(programs)
  await expect(checkProbe()).rejects.toThrow(words)
})

test('an address that is answered for is quarantined for nobody, and a DEL afterwards frees it for nobody', async () => {
  install({ arping: 'exit 1' })
  const owner = { kind: 'pod', name: 'a', uid: 'a', incarnation: 'sandbox', interface: 'eth0', node: 'n1' }
  const { leases } = await client.leases.reserve({ owner })
  await expect(probe(leases, 'cni0', client)).rejects.toMatchObject({ code: 103 })
  const { address, leaseId } = leases[0]!
  await client.leases.release({ leaseId })
  await client.leases.release({ owner })
  const { lease } = await call.ok('LeaseService/GetLease', { address })
  expect(lease).toMatchObject({ state: 'QUARANTINED', quarantine: { reason: 'IN_USE' } })
  expect(lease).not.toHaveProperty('owner')
  install({ arping: 'exit 0' })
  const next = await client.leases.reserve({ owner: { ...owner, incarnation: 'next' } })
  await probe(next.leases, 'cni0', client)
  expect(next.leases[0]!.address).not.toBe(address)
})
