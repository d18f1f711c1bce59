import { defineConfig } from 'vitest/config'
import { BaseSequencer, type TestSpecification } from 'vitest/node'

const shared = { testTimeout: 90_000, hookTimeout: 120_000, pool: 'forks' as const }

/** What needs no PostgreSQL. */
const PLAIN = ['client', 'core', 'simulation', 'sources', 'unit']
/**
 * Starts a browser, a Docker Engine, a Patroni, a PgBouncer, a Prometheus or Python, makes network namespaces: only where Debian's packages are
 * installed; the Engine, Patroni and the namespaces as root.
 */
const SERVERS = [
  { name: 'browser', wanted: process.env.IPLEDGER_TEST_BROWSER },
  { name: 'citus', wanted: process.env.IPLEDGER_TEST_POSTGRES === 'citus' },
  { name: 'docker', wanted: process.env.IPLEDGER_TEST_DOCKER },
  { name: 'failover', wanted: process.env.IPLEDGER_TEST_PATRONI },
  { name: 'network', wanted: process.env.IPLEDGER_TEST_NETWORK },
  { name: 'pooler', wanted: process.env.IPLEDGER_TEST_POOLER },
  { name: 'prometheus', wanted: process.env.IPLEDGER_TEST_PROMETHEUS },
  { name: 'python', wanted: process.env.IPLEDGER_TEST_PYTHON },
  // By Debian's programs of that version: the embedded PostgreSQL has no pg_basebackup.
  { name: 'recovery', wanted: process.env.IPLEDGER_TEST_POSTGRES === '15' },
]
const apart = [...PLAIN, ...SERVERS.map(({ name }) => name)].map((name) => `test/${name}/**`)
const globalSetup = ['test/support/postgres.ts']

/** What waits for servers begins first: a run is as long as what ends last. */
class ServersFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const isLate = ({ project }: TestSpecification) =>
      Number(SERVERS.every(({ name }) => name !== project.name))
    return (await super.sort(files)).toSorted((a, b) => isLate(a) - isLate(b))
  }
}

export default defineConfig({
  test: {
    // On two cores: each drives a server and a database beside itself, and waits a lot.
    maxWorkers: 3,
    sequence: { sequencer: ServersFirst },
    projects: [
      { test: { ...shared, name: 'plain', include: PLAIN.map((name) => `test/${name}/**/*.test.ts`) } },
      {
        test: {
          ...shared,
          name: 'postgres',
          include: ['test/**/*.test.ts'],
          exclude: apart,
          globalSetup,
          // Several waits of `waitFor`, each with its limit.
          testTimeout: 180_000,
        },
      },
      ...SERVERS.filter(({ wanted }) => wanted).map(({ name }) => ({
        test: { ...shared, name, include: [`test/${name}/**/*.test.ts`], globalSetup, testTimeout: 180_000 },
      })),
    ],
  },
})
