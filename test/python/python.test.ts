/** A gRPC client from outside JavaScript: Debian's python3-grpcio with stubs of proto/ alone. Only with IPLEDGER_TEST_PYTHON=yes. */
import { execFile } from 'node:child_process'
import { globSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { ROOT } from '../support/root.ts'
import { useService } from '../support/service.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

const run = promisify(execFile)
const service = await useService()
const proto = fileURLToPath(new URL('proto', ROOT))
const CALLER = fileURLToPath(new URL('caller.py', import.meta.url))
/** Debian's: another one on the PATH does not see Debian's packages. */
const PYTHON = '/usr/bin/python3'

/** What the head of caller.py says, in a directory of its own. */
async function stubs(): Promise<string> {
  const out = temporaryDirectory()
  const protoc = (root: string, files: readonly string[]) =>
    run('protoc', [
      '--plugin=protoc-gen-grpc=/usr/bin/grpc_python_plugin',
      `-I${root}`,
      `--python_out=${out}`,
      `--grpc_out=${out}`,
      ...files,
    ])
  await protoc(proto, globSync('{ipledger/v1,google/rpc}/*.proto', { cwd: proto }))
  await protoc(`${proto}/grpc/health/v1`, ['health.proto'])
  return out
}

test('a caller in Python makes the main calls', async () => {
  const { stdout } = await run(PYTHON, [CALLER, new URL(service.grpcUrl).host], {
    env: { PYTHONPATH: await stubs(), PYTHONDONTWRITEBYTECODE: 'yes', PYTHONUTF8: '1' },
  })
  const lines = stdout.trim().split('\n')
  const steps = Object.assign({}, ...lines.map((line) => JSON.parse(line)))
  const held = { address: '10.0.0.2', leaseId: 'python/3', fencingToken: '3' }
  const owner = {
    kind: 'pod',
    name: 'default/größe',
    incarnation: 'a',
    interface: 'eth0',
    labels: { app: 'web' },
  }
  const lease = (state: string, version: string) => ({ ...held, owner, state, version })
  const exhausted = (cooling: string) => ({
    code: 'RESOURCE_EXHAUSTED',
    ErrorInfo: { reason: 'POOL_EXHAUSTED', domain: 'ipledger', metadata: { pool: 'web', cooling } },
  })
  expect(steps).toMatchObject({
    health: { status: 'SERVING' },
    network: { network: { name: 'python', state: 'READY' } },
    pool: { pool: { name: 'web', cidr: '10.0.0.0/30', gateway: '10.0.0.1' } },
    reserved: { leases: [lease('RESERVED', '3')] },
    repeated: steps.reserved,
    confirmed: { leases: [lease('ACTIVE', '4')] },
    got: { lease: lease('ACTIVE', '4'), head: '4' },
    refused: exhausted('0'),
    watched: {
      changes: [
        { type: 'lease.reserved', cause: 'Reserve', lease: lease('RESERVED', '3') },
        { type: 'lease.confirmed', cause: 'Confirm', lease: lease('ACTIVE', '4') },
        { type: 'lease.released', cause: 'Release', lease: lease('ENDED', '5'), gone: true },
      ],
    },
    released: { leases: [lease('ENDED', '5')] },
    cancelled: { code: 'CANCELLED' },
    cooling: {
      ...exhausted('1'),
      RetryInfo: { retryDelay: expect.stringMatching(/^1[12]\d\.\d+s$|^120s$/) },
    },
  })
  expect(steps.refused).not.toHaveProperty('RetryInfo')
})
