import { defineConfig } from 'vitest/config'

const shared = { testTimeout: 20_000, hookTimeout: 60_000, pool: 'forks' as const }

export default defineConfig({
  test: {
    // Each worker drives a server and a database beside itself.
    maxWorkers: 2,
    projects: [
      { test: { ...shared, name: 'unit', include: ['test/unit/**/*.test.ts'] } },
      {
        test: {
          ...shared,
          name: 'postgres',
          include: ['test/**/*.test.ts'],
          exclude: ['test/unit/**', 'test/docker/**', 'test/prometheus/**'],
          globalSetup: ['test/support/postgres.ts'],
        },
      },
      // It starts a Docker Engine: as root, where Debian's docker.io is installed.
      ...(process.env.IPLEDGER_TEST_DOCKER
        ? [
            {
              test: {
                ...shared,
                name: 'docker',
                include: ['test/docker/**/*.test.ts'],
                globalSetup: ['test/support/postgres.ts'],
                testTimeout: 180_000,
                hookTimeout: 120_000,
              },
            },
          ]
        : []),
      // It starts a Prometheus: where Debian's package is installed.
      ...(process.env.IPLEDGER_TEST_PROMETHEUS
        ? [
            {
              test: {
                ...shared,
                name: 'prometheus',
                include: ['test/prometheus/**/*.test.ts'],
                globalSetup: ['test/support/postgres.ts'],
                testTimeout: 120_000,
                hookTimeout: 120_000,
              },
            },
          ]
        : []),
    ],
  },
})
