/**
 * The image of ops/Dockerfile, built and run by a real engine. Its bases are made of this machine's files, since no registry
 * of images is asked: what is not seen is the bases that the Dockerfile names. npm's registry is asked as this machine asks it.
 */
import { execFileSync, spawnSync } from 'node:child_process'
import {
  appendFileSync,
  chmodSync,
  copyFileSync,
  cpSync,
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { text } from 'node:stream/consumers'
import { setImmediate } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import type Docker from 'dockerode'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { parseAllDocuments } from 'yaml'
import { createToken } from '../../src/api/tokens.ts'
import { createClient } from '../../src/client/client.ts'
import { createTestDatabase } from '../support/database.ts'
import { freePort } from '../support/free-port.ts'
import { ROOT } from '../support/root.ts'
import { waitFor } from '../support/wait-for.ts'
import { runStep, stepsOf } from '../support/workflows.ts'
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
  for (const program of [
    `/usr/bin/${machine}-gcc`,
    '/usr/bin/as',
    '/usr/bin/ld',
    '/usr/bin/strip',
    ...helpers,
  ])
    for (const path of [program, ...linkedBy(program)]) place(root, path)
}

function baseTree(): string {
  const root = tree('base', (library) => !library.includes('libatomic'))
  for (const tool of ['ip', 'nsenter', 'arping', 'ndisc6']) {
    const program = execFileSync('sh', ['-c', `realpath $(command -v ${tool})`], { encoding: 'utf8' }).trim()
    for (const path of [program, ...linkedBy(program)]) place(root, path)
  }
  const known = ['libc6', 'libgcc-s1', 'libstdc++6', 'iproute2', 'iputils-arping', 'ndisc6', 'util-linux']
  mkdirSync(join(root, 'var/lib/dpkg'), { recursive: true })
  writeFileSync(join(root, 'var/lib/dpkg/status'), execFileSync('dpkg-query', ['--status', ...known]))
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

async function build(t: string, nocache: boolean): Promise<void> {
  const building = await engine.docker.buildImage(packed(fileURLToPath(ROOT), readContext()), {
    t,
    nocache,
    dockerfile: 'ops/Dockerfile',
    networkmode: 'host',
    buildargs: { NODE: 'node:test', BASE: 'base:test' },
  })
  await finished(engine.docker, building)
}

/** As the release makes them: the SBOM and the launcher, and the digest of the files. */
function contentsOf(image: string) {
  const cwd = mkdtempSync(join(home, 'release-'))
  symlinkSync(fileURLToPath(new URL('ops', ROOT)), join(cwd, 'ops'))
  const script = stepsOf('release').get('SBOM and CNI launcher')!.replaceAll(' built', ` ${image}`)
  const env = { DOCKER_HOST: `unix://${engine.socketPath}`, ARCHITECTURE: 'any' }
  const { status, said } = runStep(script, { cwd, env })
  expect(status, said).toBe(0)
  const read = (name: string) => readFileSync(join(cwd, 'files', name), 'utf8')
  type Sbom = { readonly components: readonly { readonly purl: string }[] }
  const sbom: Sbom = JSON.parse(read('ipledger-image-any.cdx.json'))
  const launcher = execFileSync(join(cwd, 'files/ipledger-cni-any'), {
    env: { CNI_COMMAND: 'VERSION' },
    input: '{}',
    encoding: 'utf8',
  })
  return {
    digest: /^sha256:[0-9a-f]{64}$/m.exec(said)?.[0],
    sbom,
    launcher,
    bundle: read('ipledger-cni.mjs'),
  }
}

/** As strictly as a cluster may run them. */
const CONFINED = { ReadonlyRootfs: true, CapDrop: ['ALL'], SecurityOpt: ['no-new-privileges'] }

test('built twice it is the same, and its SBOM says what is inside', { timeout: 500_000 }, async () => {
  const began = performance.now()
  await build(IMAGE, false)
  const { Size } = await engine.docker.getImage(IMAGE).inspect()
  console.log(`built in ${((performance.now() - began) / 1_000).toFixed(1)} s, ${(Size / 1e6).toFixed(0)} MB`)
  await build('ipledger:again', true)
  const { digest, sbom, launcher, bundle } = contentsOf(IMAGE)
  expect(digest).toBeDefined()
  expect(contentsOf('ipledger:again').digest).toBe(digest)
  expect(JSON.parse(launcher).supportedVersions).toContain('1.1.0')
  expect(bundle).not.toBe('')
  const purls = sbom.components.map(({ purl }) => purl)
  const { version } = JSON.parse(readFileSync(new URL('node_modules/pg/package.json', ROOT), 'utf8'))
  const kubernetes = /^pkg:npm\/%40kubernetes\/client-node@\d/
  expect(purls).toEqual(
    expect.arrayContaining([
      `pkg:npm/pg@${version}`,
      `pkg:generic/node@${process.versions.node}`,
      expect.stringMatching(kubernetes),
      expect.stringMatching(/^pkg:deb\/debian\/libc6@\d.*\?arch=/),
    ]),
  )
  expect(purls.filter((one) => /vitest|node-linux|%40embedded-postgres/.test(one))).toEqual([])
})

test('it serves as a user that is not root, on files that it cannot change, without capabilities', async () => {
  const { docker } = engine
  const database = await createTestDatabase({ empty: true })
  const [port, grpcPort] = [await freePort(), await freePort()]
  const tokens = join(home, 'tokens.jsonl')
  const token = createToken({ file: tokens, name: 'boss', role: 'admin' })
  const shared = createToken({ file: tokens, name: 'agents', role: 'admin', networks: ['default', 'nodes'] })
  chmodSync(tokens, 0o644)
  const Env = [
    `DATABASE_URL=${database.adminUrl}`,
    `IPLEDGER_PORT=${port}`,
    `IPLEDGER_GRPC_PORT=${grpcPort}`,
    'IPLEDGER_TOKENS=/tokens.jsonl',
    'IPLEDGER_METRICS=yes',
  ]
  const HostConfig = { NetworkMode: 'host', Binds: [`${tokens}:/tokens.jsonl:ro`], ...CONFINED }
  const container = await docker.createContainer({
    Image: IMAGE,
    Env,
    Healthcheck: { Interval: 1e9 },
    HostConfig,
  })
  await container.start()
  const url = `http://127.0.0.1:${port}`
  await waitFor(async () => (await container.inspect()).State.Health?.Status === 'healthy', {
    timeout: 60_000,
    every: 200,
    what: 'the container to be healthy',
  })
  const client = createClient({ url, token })
  await client.pools.createPool({ name: 'web', cidr: '10.0.0.0/24' })
  const { Pid } = (await container.inspect()).State
  const status = readFileSync(`/proc/${Pid}/status`, 'utf8')
  expect(status).toMatch(/^Uid:\t1000\t1000/m)
  expect(status).toMatch(/^CapBnd:\t0+$/m)
  const workers = [await freePort(), await freePort()].map(async (port) => {
    const worker = await docker.createContainer({
      Image: IMAGE,
      Cmd: ['worker'],
      Env: [...Env, `IPLEDGER_METRICS_PORT=${port}`],
      HostConfig,
    })
    await worker.start()
    for (const probe of ['readinessProbe', 'livenessProbe', 'startupProbe'] as const)
      await waitFor(
        async () => (await fetch(`http://127.0.0.1:${port}${WORKER[probe].httpGet.path}`)).status === 200,
        { timeout: 60_000, every: 200, what: `the ${probe} of a worker` },
      )
    return worker
  })
  const started = await Promise.all(workers)
  await nodeOfACluster(url, client, shared)
  for (const one of [...started, container]) {
    await one.stop()
    expect((await one.inspect()).State.ExitCode).toBe(0)
  }
  await database.drop()
})

const manifest = (name: string) =>
  parseAllDocuments(readFileSync(new URL(`ops/kubernetes/${name}.yaml`, ROOT), 'utf8'))[0]!.toJS()
const WORKER = manifest('worker').spec.template.spec.containers[0]

/** The containers of ops/kubernetes/agent.yaml as a kubelet runs them, with directories of its own for the node's. */
async function nodeOfACluster(
  url: string,
  client: ReturnType<typeof createClient>,
  token: string,
): Promise<void> {
  const { initContainers, containers, ...pod } = manifest('agent').spec.template.spec
  const on = (volume: string) => join(home, 'host', volume)
  for (const { name } of pod.volumes) mkdirSync(on(name), { recursive: true })
  const generators = manifest('kustomization').configMapGenerator
  const literalsOf = (wanted: string): readonly string[] =>
    generators.find(({ name }: { readonly name: string }) => name === wanted).literals
  const [, conflist] = /^conflist=(.*)$/s.exec(literalsOf('ipledger-network')[0]!)!
  writeFileSync(join(on('network'), 'conflist'), conflist!.replace('"web"', '"@NODE@"'))
  const settings = {
    IPLEDGER_URL: url,
    AGENT_OPTIONS: '--bridge=none0 --pool=@NODE@',
    NODE_BLOCKS: 'blocks',
  }
  const named = literalsOf('ipledger-agent').map((one) => one.split('=')[0])
  expect(named).toEqual(Object.keys(settings))
  await client.networks.createNetwork({ name: 'nodes' })
  await client.pools.createPool({
    network: 'nodes',
    name: 'blocks',
    cidr: '10.64.0.0/16',
    prefixLength: 24,
  })
  type Given = { readonly settings?: object; readonly binds?: readonly string[] }
  const run = async (spec: (typeof containers)[number], given: Given = {}) => {
    const { command, volumeMounts, securityContext } = spec
    const [Entrypoint, ...Cmd] = command
    const { capabilities, readOnlyRootFilesystem, allowPrivilegeEscalation } = securityContext
    type Mount = { readonly name: string; readonly mountPath: string; readonly readOnly?: boolean }
    const bind = ({ name, mountPath, readOnly }: Mount) => `${on(name)}:${mountPath}${readOnly ? ':ro' : ''}`
    const env = { ...settings, ...given.settings, NODE: 'node-1', IPLEDGER_TOKEN: token }
    const container = await engine.docker.createContainer({
      Image: IMAGE,
      Entrypoint: [Entrypoint],
      Cmd,
      User: String(pod.securityContext.runAsUser),
      Env: Object.entries(env).map((one) => one.join('=')),
      HostConfig: {
        Binds: [...volumeMounts.map(bind), ...(given.binds ?? [])],
        NetworkMode: 'host',
        PidMode: 'host',
        ReadonlyRootfs: readOnlyRootFilesystem,
        CapDrop: capabilities.drop,
        CapAdd: capabilities.add ?? [],
        SecurityOpt: [
          'seccomp=unconfined',
          ...(allowPrivilegeEscalation === false ? ['no-new-privileges'] : []),
        ],
      },
    })
    await container.start()
    return container
  }
  const said = async (container: Docker.Container) =>
    (await container.logs({ stdout: true, stderr: true })).toString('utf8')
  const ended = async (spec: (typeof containers)[number], given?: Given) => {
    const container = await run(spec, given)
    const { StatusCode } = await container.wait()
    return { StatusCode, said: await said(container) }
  }
  const [plugin, node] = initContainers
  const [agentContainer] = containers
  const away = { settings: { IPLEDGER_URL: 'http://127.0.0.1:1' } }
  const good = expect.objectContaining({ StatusCode: 0 })
  const bad = expect.objectContaining({ StatusCode: 1 })

  // A node that is new waits for the service, one that is known goes on without it; and a second start changes nothing.
  expect(await ended(node, away)).toEqual(bad)
  for (const _ of ['start', 'start again'])
    for (const one of initContainers) expect(await ended(one)).toEqual(good)
  expect(await ended(node, away)).toEqual(good)
  const { sources } = await client.liveness.listSources({})
  expect(sources).toMatchObject([{ id: 'node-1', sight: { node: 'node-1' }, state: 2 }])
  const { pools } = await client.pools.listPools({})
  expect(pools.find(({ name }) => name === 'node-1')).toMatchObject({
    cidr: '10.64.0.0/24',
    gateway: '10.64.0.1',
  })
  const written = readFileSync(join(on('configurations'), '10-ipledger.conflist'), 'utf8')
  expect(JSON.parse(written).plugins[0].ipam.pools).toEqual(['node-1'])

  const probe = agentContainer.readinessProbe.exec.command
  expect(await ended({ ...agentContainer, command: probe })).toEqual(bad)
  const agent = await run(agentContainer)
  await waitFor(async () => (await said(agent)).includes('agent: node node-1'), {
    what: 'the agent to listen',
  })
  const exec = async (Cmd: string[], container = agent) => {
    const running = await container.exec({ Cmd, AttachStdout: true, AttachStderr: true })
    const output = await text(await running.start({}))
    return { ...(await running.inspect()), output }
  }
  expect(await exec(probe)).toMatchObject({ ExitCode: 0 })
  /** What it answers to STATUS; nothing: an ADD would succeed. */
  const call = (ipam: object, PATH = '', program = 'ipledger-cni') =>
    spawnSync(join(on('plugins'), program), {
      env: { CNI_COMMAND: 'STATUS', PATH },
      input: JSON.stringify({
        cniVersion: '1.1.0',
        name: 'blue',
        ipam: { type: 'ipledger-cni', agentSocket: join(on('run'), 'agent.sock'), ...ipam },
      }),
      encoding: 'utf8',
    }).stdout
  expect(call({ pools: ['node-1'] })).toBe('')
  expect(call({ pools: ['none'] })).toContain('"code":50')
  // By name: the shell of the base that was made here has some of them built in.
  const look = ['nsenter', `--net=/proc/${process.pid}/ns/net`, 'ip', '-j', 'addr']
  for (const tool of [look, ['arping', '-V'], ['ndisc6', '-V']])
    expect(await exec(tool)).toMatchObject({ ExitCode: 0 })

  // Of another version, while pods start: program and bundle change at once.
  const first = readlinkSync(join(on('plugins'), 'ipledger-cni'))
  const version = join(on('plugins'), dirname(first))
  const longAgo = new Date('2020-01-01')
  utimesSync(version, longAgo, longAgo)
  const next = join(home, 'next')
  cpSync(version, next, { recursive: true })
  appendFileSync(join(next, 'ipledger-cni.mjs'), '\n')
  let isReplacing = true
  const replaced = ended(plugin, { binds: [`${next}:/opt/ipledger/cni:ro`] }).finally(() => {
    isReplacing = false
  })
  while (isReplacing) {
    expect(call({ pools: ['node-1'] })).toBe('')
    await setImmediate()
  }
  expect(await replaced).toEqual(good)
  const second = readlinkSync(join(on('plugins'), 'ipledger-cni'))
  expect(second).not.toBe(first)
  // Where no agent listens, the program finds its bundle, which wants to know more.
  const nobody = { agentSocket: join(on('run'), 'nobody') }
  const wantsMore = (program: string) =>
    expect(call(nobody, dirname(process.execPath), program)).toContain('ipam.node: must name this node')
  wantsMore('ipledger-cni')
  // So does a call that began before, until the plugin is installed again.
  wantsMore(first)
  expect(await ended(plugin)).toEqual(good)
  wantsMore(second)
  expect(existsSync(version)).toBe(false)
  await agent.stop()

  // A node with settings of its own: nothing is registered for it. Its agent answers while the service is away.
  rmSync(join(on('state'), 'introduced'))
  const own = `IPLEDGER_URL=${away.settings.IPLEDGER_URL}\nAGENT_OPTIONS="--bridge=own0"\n`
  writeFileSync(join(on('settings'), 'agent.env'), own)
  expect(await ended(node, away)).toEqual(good)
  const alone = await run(agentContainer)
  await waitFor(async () => (await said(alone)).includes('agent: node node-1'), {
    what: 'its agent to listen',
  })
  expect(await exec(probe, alone)).toMatchObject({ ExitCode: 0 })
  await alone.stop()
}

/** What .dockerignore lets through. */
function readContext(): string[] {
  const lines = readFileSync(new URL('.dockerignore', ROOT), 'utf8').split('\n')
  return ['ops/Dockerfile', ...lines.filter((line) => line.startsWith('!')).map((line) => line.slice(1))]
}
