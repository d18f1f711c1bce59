/** What the launcher hands to an agent and prints, and what it does where none answers. `CC` may name a compiler with sanitizers. */
import { execFileSync, spawn, spawnSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createConnection, createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { buffer } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { VERSIONS } from '../../src/cni/cni-error.ts'
import { ROOT } from '../support/root.ts'

const [compiler, ...flags] = (process.env.CC ?? 'cc').split(' ') as [string, ...string[]]
const canCompile = spawnSync(compiler, ['--version']).status === 0
const PATIENCE_S = 1

const home = mkdtempSync(join(tmpdir(), 'ipledger-launcher-'))
const launcher = join(home, 'ipledger-cni')
const socket = join(home, 'agent.sock')
const ENV = { CNI_COMMAND: 'ADD', CNI_CONTAINERID: 'c1', CNI_IFNAME: 'eth0', CNI_NETNS: '/run/netns/c1' }
const ours = (more: object = {}) =>
  JSON.stringify({
    cniVersion: '0.4.0',
    name: 'blue',
    ipam: { type: 'ipledger-cni', agentSocket: socket },
    ...more,
  })

beforeAll(() => {
  const source = fileURLToPath(new URL('src/cni/launcher.c', ROOT))
  const options = ['-O2', '-Wall', '-Wextra', '-Werror', `-DPATIENCE_S=${PATIENCE_S}`]
  if (canCompile) execFileSync(compiler, [...flags, ...options, '-o', launcher, source])
})
afterAll(() => rmSync(home, { recursive: true, force: true }))

type Ended = { readonly code: number | null; readonly stdout: Buffer; readonly stderr: string }

async function launch(
  stdin: string | Buffer,
  { env = {}, program = launcher }: { readonly env?: NodeJS.ProcessEnv; readonly program?: string } = {},
): Promise<Ended> {
  const child = spawn(program, { env: { ...ENV, PATH: dirname(process.execPath), ...env } })
  child.stdin.on('error', () => {}).end(stdin)
  const ended = once(child, 'close')
  const [stdout, stderr] = await Promise.all([buffer(child.stdout), buffer(child.stderr)])
  const [code] = await ended
  return { code, stdout, stderr: stderr.toString() }
}

/** Answers each call; until the end of the test. Returns what it was asked. */
async function agentThat(
  answers: (connection: Socket) => void,
  { reads = true }: { readonly reads?: boolean } = {},
): Promise<Buffer[]> {
  const asked: Buffer[] = []
  const connections = new Set<Socket>()
  const server = createServer({ allowHalfOpen: true }, (connection) => {
    connections.add(connection.on('error', () => {}))
    if (!reads) return answers(connection)
    const parts: Buffer[] = []
    connection.on('data', (part: Buffer) => parts.push(part))
    connection.once('end', () => {
      asked.push(Buffer.concat(parts))
      answers(connection)
    })
  })
  server.listen(socket)
  await once(server, 'listening')
  onTestFinished(async () => {
    for (const connection of connections) connection.destroy()
    server.close()
    await once(server, 'close')
  })
  return asked
}

const says = (text: string | Buffer) => (connection: Socket) => void connection.end(text)

/** Beside the launcher: says what it got. */
function bundle(): void {
  const path = `${launcher}.mjs`
  writeFileSync(
    path,
    `import { text } from 'node:stream/consumers'
    console.log(JSON.stringify([process.env.CNI_CONTAINERID, await text(process.stdin)]))
    process.exitCode = 7`,
  )
  onTestFinished(() => rmSync(path))
}

function expectBundled({ code, stdout }: Ended, stdin: string): void {
  expect(code).toBe(7)
  expect(JSON.parse(stdout.toString())).toEqual(['c1', stdin])
}

const failed = (code: number, words: string, cniVersion = '0.4.0') => {
  const [msg, stderr] = [expect.stringContaining(words), '']
  return { cniVersion, code, msg, stderr }
}
const errorObject = (ended: Ended) => {
  expect(ended.code).toBe(1)
  return { ...JSON.parse(ended.stdout.toString()), stderr: ended.stderr }
}

describe.skipIf(!canCompile)('an agent answers', () => {
  test.each([
    ['a small configuration', ours()],
    ['100 KB of it', ours({ prevResult: { text: 'ä"\\\n'.repeat(16_000) } })],
    ['bytes that are no text', Buffer.concat([Buffer.from(ours()), Buffer.from([0]), randomBytes(50_000)])],
  ])('what it gets of %s is what the plugin got', async (_, stdin) => {
    const asked = await agentThat(says('0\n{}'))
    const env = {
      CNI_ARGS: 'IP=10.0.0.9;K8S_POD_NAME=a=b',
      CNI_PATH: '',
      CNIX: 'other',
      CNI_NETNS: undefined,
    }
    expect((await launch(stdin, { env })).code).toBe(0)
    const text = asked[0]!
    const end = text.indexOf('\n\n')
    expect(text.subarray(end + 2).equals(Buffer.from(stdin))).toBe(true)
    expect(text.subarray(0, end).toString().split('\n').sort()).toEqual([
      'CNI_ARGS=IP=10.0.0.9;K8S_POD_NAME=a=b',
      'CNI_COMMAND=ADD',
      'CNI_CONTAINERID=c1',
      'CNI_IFNAME=eth0',
      'CNI_PATH=',
    ])
  })

  test.each([0, 1])('its bytes go to stdout, and %i is the exit code', async (code) => {
    const body = Buffer.concat([randomBytes(300_000), Buffer.from('\n\n0\n')])
    await agentThat(says(Buffer.concat([Buffer.from(`${code}\n`), body])))
    const ended = await launch(ours())
    expect(ended).toMatchObject({ code, stderr: '' })
    expect(ended.stdout.equals(body)).toBe(true)
  })

  test.each([
    ['0\n', ''],
    ['0 3 addresses are left\n', '3 addresses are left\n'],
  ])('%j prints nothing; what it notes goes to stderr', async (answer, stderr) => {
    await agentThat(says(answer))
    expect(await launch(ours())).toEqual({ code: 0, stdout: Buffer.alloc(0), stderr })
  })

  const elsewhere = JSON.stringify('/run/none')
  test.each([
    `{"name": "agentSocket", "ipam": {"agentSocket": SOCKET}}`,
    `{"note": "\\"agentSocket\\": \\"/run/none\\"", "ipam": {"agentSocket": SOCKET}}`,
    `{"list": ["agentSocket", ${elsewhere}], "ipam": {"agentSocket": SOCKET}}`,
    `{"agentSocket": {"a": 1}, "ipam": {"agentSocket": SOCKET}}`,
    `{"agentSockets": ${elsewhere}, "ipam": {"xagentSocket": ${elsewhere}, "agentSocket" \t\r\n: \n SOCKET}}`,
  ])('where it listens is the value of the key alone: %s', async (configuration) => {
    const asked = await agentThat(says('0\n'))
    expect((await launch(configuration.replace('SOCKET', JSON.stringify(socket)))).code).toBe(0)
    expect(asked).toHaveLength(1)
  })
})

describe.skipIf(!canCompile)('no agent answers', () => {
  test('and there is no bundle: an error in the version of whoever asks', async () => {
    expect(errorObject(await launch(ours()))).toEqual(failed(11, 'no agent'))
    expect(errorObject(await launch('{}'))).toEqual(failed(11, 'no agent', '1.0.0'))
    expect(errorObject(await launch(''))).toEqual(failed(11, 'no agent', '1.0.0'))
  })

  test('and there is no Node.js: the same', async () => {
    bundle()
    expect(errorObject(await launch(ours(), { env: { PATH: home } }))).toEqual(failed(11, 'no agent'))
  })

  test('the bundle gets the same call, and ends it', async () => {
    bundle()
    const stdin = ours({ prevResult: { text: 'ä'.repeat(50_000) } })
    expectBundled(await launch(stdin), stdin)
  })

  test('the bundle is found beside the launcher, by whatever way it is called', async () => {
    bundle()
    const link = join(home, 'link')
    execFileSync('ln', ['-s', launcher, link])
    expect((await launch(ours(), { program: link })).code).toBe(7)
  })

  test.each([
    ['hangs up', says('')],
    ['hangs up within its first line', says('0 3 addr')],
    ['says what is no exit code', says('HTTP/1.1 400 Bad Request\n\n')],
  ])('an agent that %s is none', async (_, answer) => {
    bundle()
    const asked = await agentThat(answer)
    expectBundled(await launch(ours()), ours())
    expect(asked).toHaveLength(1)
  })

  test('an agent that breaks off before it has read is none', async () => {
    bundle()
    await agentThat((connection) => void connection.destroy(), { reads: false })
    const stdin = ours({ text: 'x'.repeat(900_000) })
    expectBundled(await launch(stdin), stdin)
  })

  test('an agent that takes the call and is silent may have done it: nobody else is asked', async () => {
    bundle()
    const asked = await agentThat(() => {})
    expect(errorObject(await launch(ours()))).toEqual(failed(11, 'does not answer'))
    expect(asked).toHaveLength(1)
  })

  test('an agent that is stopped holds nobody up, though its queue is full', async () => {
    const path = join(home, 'stopped.sock')
    const script = `require('node:net').createServer().listen({ path: ${JSON.stringify(path)}, backlog: 1 }, () => console.log('listening'))`
    const stopped = spawn(process.execPath, ['-e', script])
    onTestFinished(() => void stopped.kill('SIGKILL'))
    await once(stopped.stdout, 'data')
    stopped.kill('SIGSTOP')
    const waiting = [1, 2, 3].map(() => createConnection(path).on('error', () => {}))
    onTestFinished(() => waiting.forEach((one) => void one.destroy()))
    await once(waiting[1]!, 'connect')
    const configuration = ours({ ipam: { agentSocket: path } })
    expect(errorObject(await launch(configuration))).toEqual(failed(11, 'does not answer'))
  })
})

describe.skipIf(!canCompile)('the launcher itself answers', () => {
  test('VERSION', async () => {
    const asked = await agentThat(says('0\n'))
    const { code, stdout } = await launch(ours(), { env: { CNI_COMMAND: 'VERSION' } })
    expect(code).toBe(0)
    expect(JSON.parse(stdout.toString())).toEqual({ cniVersion: '0.4.0', supportedVersions: VERSIONS })
    expect(asked).toHaveLength(0)
  })

  test.each([
    ['a variable that would be two', 4, 'line break', { CNI_ARGS: 'A=1\nCNI_COMMAND=DEL' }, ours(), '0.4.0'],
    ['more than 1 MiB', 5, '1 MiB', {}, ours({ text: 'x'.repeat(1_048_576) }), '1.0.0'],
    [
      'a path that no socket has',
      7,
      'agentSocket',
      {},
      ours({ ipam: { agentSocket: `/${'x'.repeat(108)}` } }),
      '0.4.0',
    ],
    ['a path that is written with escapes', 7, 'agentSocket', {}, ours().replaceAll('/', '\\/'), '0.4.0'],
  ])('%s, with an error', async (_, code, words, env, stdin, version) => {
    bundle()
    const asked = await agentThat(says('0\n'))
    expect(errorObject(await launch(stdin, { env }))).toEqual(failed(code, words, version))
    expect(asked).toHaveLength(0)
  })
})
