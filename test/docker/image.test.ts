/**
 * The image of ops/Dockerfile, built and run by a real engine. Its bases are made of this machine's files, since no registry
 * of images is asked: what is not seen is the bases that the Dockerfile names. npm's registry is asked as this machine asks it.
 */
import { execFileSync } from 'node:child_process'
import {
  copyFileSync,
  cpSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { parse } from 'yaml'
import { createClient } from '../../src/client/client.ts'
import { createTestDatabase } from '../support/database.ts'
import { ROOT } from '../support/root.ts'
import { waitFor } from '../support/wait-for.ts'
import { BUSYBOX, type Engine, finished, importTree, openEngine, packed } from './engine.ts'

const IMAGE = 'ipledger:test'
const CERTIFICATES = '/etc/ssl/certs/ca-certificates.crt'
const home = mkdtempSync(join(tmpdir(), 'ipledger-image-'))
let engine: Engine

beforeAll(async () => {
  engine = await openEngine('172.31.249.0/24')
  await importTree(engine.docker, baseTree(), 'base:test')
  await importTree(engine.docker, nodeTree(), 'node:test')
})
afterAll(async () => {
  await engine?.close()
  rmSync(home, { recursive: true })
})

/** What Node.js links to, as Debian lays it out, and a shell. */
function tree(name: string, isWanted: (library: string) => boolean): string {
  const root = join(home, name)
  for (const directory of ['bin', 'lib', 'lib64', 'local/bin'])
    mkdirSync(join(root, 'usr', directory), { recursive: true })
  for (const directory of ['bin', 'lib', 'lib64']) symlinkSync(`usr/${directory}`, join(root, directory))
  for (const library of linkedBy(process.execPath).filter(isWanted)) place(root, library)
  for (const tool of ['sh', 'env', 'find', 'mkdir', 'cp', 'rm'])
    copyFileSync(BUSYBOX, join(root, 'bin', tool))
  return root
}

function linkedBy(program: string): readonly string[] {
  const linked = execFileSync('ldd', [program], { encoding: 'utf8' }).matchAll(/(\/\S+) \(0x/g)
  return [...linked].map(([, library]) => library!)
}

/** At the same path. */
function place(root: string, path: string): void {
  mkdirSync(join(root, dirname(path)), { recursive: true })
  execFileSync('cp', ['--recursive', '--dereference', '--no-target-directory', path, join(root, path)])
}

/** What the package musl-tools brings, without the compilers of other languages; and what rolldown links to. */
function placeTools(root: string): void {
  const say = (...args: string[]) => execFileSync('gcc', args, { encoding: 'utf8' }).trim()
  const machine = say('-dumpmachine')
  const inside = dirname(say('-print-file-name=libgcc.a'))
  const parts = ['libgcc.a', 'libgcc_eh.a', 'crtbeginS.o', 'crtendS.o', 'include'].map((name) =>
    join(inside, name),
  )
  const musl = machine.replace('gnu', 'musl')
  for (const path of ['/usr/bin/musl-gcc', `/usr/lib/${musl}`, `/usr/include/${musl}`, ...parts])
    place(root, path)
  const [rolldown] = globSync('node_modules/@rolldown/binding-*/*.node', { cwd: ROOT })
  for (const path of linkedBy(fileURLToPath(new URL(rolldown!, ROOT)))) place(root, path)
  const helpers = ['cc1', 'collect2', 'liblto_plugin.so'].map((name) => join(inside, name))
  for (const program of [`/usr/bin/${machine}-gcc`, '/usr/bin/as', '/usr/bin/ld', ...helpers])
    for (const path of [program, ...linkedBy(program)]) place(root, path)
}

function baseTree(): string {
  const root = tree('base', (library) => !library.includes('libatomic'))
  for (const tool of ['ip', 'nsenter', 'arping', 'ndisc6']) {
    const program = execFileSync('sh', ['-c', `realpath $(command -v ${tool})`], { encoding: 'utf8' }).trim()
    for (const path of [program, ...linkedBy(program)]) place(root, path)
  }
  return root
}

function nodeTree(): string {
  const root = tree('node', () => true)
  const local = join(root, 'usr/local')
  copyFileSync(process.execPath, join(local, 'bin/node'))
  placeTools(root)
  const npm = (...args: string[]) => execFileSync('npm', args, { encoding: 'utf8' }).trim()
  cpSync(join(npm('root', '--global'), 'npm'), join(local, 'lib/node_modules/npm'), { recursive: true })
  symlinkSync('../lib/node_modules/npm/bin/npm-cli.js', join(local, 'bin/npm'))
  mkdirSync(join(root, dirname(CERTIFICATES)), { recursive: true })
  copyFileSync(CERTIFICATES, join(root, CERTIFICATES))
  mkdirSync(join(local, 'etc'))
  writeFileSync(
    join(local, 'etc/npmrc'),
    `registry=${npm('config', 'get', 'registry')}\ncafile=${CERTIFICATES}\n`,
  )
  return root
}

test('it is built, and serves as a user that is not root', { timeout: 300_000 }, async () => {
  const { docker } = engine
  const began = performance.now()
  const building = await docker.buildImage(packed(fileURLToPath(ROOT), readContext()), {
    t: IMAGE,
    dockerfile: 'ops/Dockerfile',
    networkmode: 'host',
    buildargs: { NODE: 'node:test', BASE: 'base:test' },
  })
  await finished(docker, building)
  const { Size, Config } = await docker.getImage(IMAGE).inspect()
  console.log(`built in ${((performance.now() - began) / 1_000).toFixed(1)} s, ${(Size / 1e6).toFixed(0)} MB`)
  expect(Config.User).toBe('1000:1000')
  const database = await createTestDatabase({ empty: true })
  const container = await docker.createContainer({
    Image: IMAGE,
    Env: [`DATABASE_URL=${database.adminUrl}`, 'IPLEDGER_PORT=0', 'IPLEDGER_GRPC_PORT=0'],
    HostConfig: { NetworkMode: 'host' },
  })
  await container.start()
  const said = async () => (await container.logs({ stdout: true, stderr: true })).toString('utf8')
  const url = await waitFor(async () => /is ready: (http:\/\/\S+:\d+)/.exec(await said())?.[1], {
    timeout: 60_000,
    every: 200,
    what: 'the container to serve',
  })
  const client = createClient({ url })
  const { pool } = await client.pools.createPool({ name: 'web', cidr: '10.0.0.0/24' })
  expect(pool?.name).toBe('web')
  const { Pid } = (await container.inspect()).State
  expect(readFileSync(`/proc/${Pid}/status`, 'utf8')).toMatch(/^Uid:\t1000\t1000/m)
  await agentOfTheNode(url)
  await container.stop()
  expect((await container.inspect()).State.ExitCode).toBe(0)
  await database.drop()
})

/** The containers of ops/kubernetes/agent.yaml as a kubelet runs them, with directories of its own for the node's. */
async function agentOfTheNode(url: string): Promise<void> {
  const { initContainers, containers, ...pod } = parse(
    readFileSync(new URL('ops/kubernetes/agent.yaml', ROOT), 'utf8'),
  ).spec.template.spec
  const on = (volume: string) => join(home, 'host', volume)
  for (const { name } of pod.volumes) mkdirSync(on(name), { recursive: true })
  writeFileSync(
    join(on('settings'), 'agent.env'),
    `IPLEDGER_URL=${url}\nAGENT_OPTIONS="--bridge=none0 --pool=web"\n`,
  )
  const started = async ({ command, volumeMounts, securityContext }: (typeof containers)[number]) => {
    const [Entrypoint, ...Cmd] = command
    const bind = ({ name, mountPath }: { readonly name: string; readonly mountPath: string }) =>
      `${on(name)}:${mountPath}`
    const container = await engine.docker.createContainer({
      Image: IMAGE,
      Entrypoint: [Entrypoint],
      Cmd,
      User: String(pod.securityContext.runAsUser),
      Env: ['NODE=node-1'],
      HostConfig: {
        Binds: volumeMounts.map(bind),
        NetworkMode: 'host',
        PidMode: 'host',
        CapAdd: securityContext?.capabilities.add ?? [],
        SecurityOpt: ['seccomp=unconfined'],
      },
    })
    await container.start()
    return container
  }
  expect(await (await started(initContainers[0])).wait()).toMatchObject({ StatusCode: 0 })
  const agent = await started(containers[0])
  const said = async () => (await agent.logs({ stdout: true, stderr: true })).toString('utf8')
  await waitFor(async () => (await said()).includes('agent: node node-1'), { what: 'the agent to listen' })
  const call = (command: string, ipam: object) =>
    execFileSync(join(on('plugins'), 'ipledger-cni'), {
      env: { CNI_COMMAND: command },
      input: JSON.stringify({
        cniVersion: '1.1.0',
        name: 'blue',
        ipam: { type: 'ipledger-cni', agentSocket: join(on('run'), 'agent.sock'), ...ipam },
      }),
      encoding: 'utf8',
    })
  expect(call('STATUS', { pools: ['web'] })).toBe('')
  expect(() => call('STATUS', { pools: ['none'] })).toThrow('ipledger-cni')
  // By name: the shell of the base that was made here has some of them built in.
  const look = ['nsenter', `--net=/proc/${process.pid}/ns/net`, 'ip', '-j', 'addr']
  for (const Cmd of [look, ['arping', '-V'], ['ndisc6', '-V']]) {
    const looking = await agent.exec({ Cmd, AttachStdout: true, AttachStderr: true })
    const said = await text(await looking.start({}))
    expect(await looking.inspect(), said).toMatchObject({ ExitCode: 0 })
  }
  await agent.stop()
}

/** What .dockerignore lets through. */
function readContext(): string[] {
  const lines = readFileSync(new URL('.dockerignore', ROOT), 'utf8').split('\n')
  return ['ops/Dockerfile', ...lines.filter((line) => line.startsWith('!')).map((line) => line.slice(1))]
}
