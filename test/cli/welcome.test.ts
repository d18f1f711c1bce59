import { execFileSync } from 'node:child_process'
import { expect, test } from 'vitest'
import manifest from '../../package.json' with { type: 'json' }
import { welcome } from '../../src/cli/serve.ts'
import { readConfig } from '../../src/config.ts'
import { callersUrl } from '../../src/serve.ts'

test.each([
  ['127.0.0.1', 'http://127.0.0.1:8080'],
  ['192.168.1.5', 'http://192.168.1.5:8080'],
  ['node-3.example', 'http://node-3.example:8080'],
  ['fd00::5', 'http://[fd00::5]:8080'],
  // Everywhere, or whatever the name stands for.
  ['0.0.0.0', 'http://127.0.0.1:8080'],
  ['::', 'http://127.0.0.1:8080'],
  ['localhost', 'http://127.0.0.1:8080'],
])('a server on %s is asked at %s', (host, url) => {
  expect(callersUrl(host, 8080)).toBe(url)
})

test.each([
  [{}, '  ipledger lease list'],
  [{ IPLEDGER_PORT: '9000' }, '  IPLEDGER_URL=http://127.0.0.1:9000 ipledger lease list'],
  [
    { IPLEDGER_TLS_CERT: 'c', IPLEDGER_TLS_KEY: 'k' },
    '  IPLEDGER_URL=https://127.0.0.1:8080 IPLEDGER_CA=… ipledger lease list',
  ],
  [{ IPLEDGER_TOKENS: 'tokens.jsonl' }, '  IPLEDGER_TOKEN=… ipledger lease list'],
])('what a start prints names what its commands need: %j', (set, line) => {
  const config = readConfig(set)
  const printed = welcome(config, { httpPort: config.port, grpcPort: config.grpcPort })
  expect(printed).toContain(`\n${line}\n`)
  const [, launcher] = /\n {2}alias ipledger=(.*)\n/.exec(printed)!
  expect(execFileSync(launcher!, ['--version']).toString()).toBe(`${manifest.version}\n`)
})
