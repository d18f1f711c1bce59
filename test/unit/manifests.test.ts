/** ops/kubernetes and ops/systemd: the command line knows what they run, and the configuration what they set. */
import { execFileSync, spawnSync } from 'node:child_process'
import { globSync, readFileSync } from 'node:fs'
import { dumpYaml, loadAllYaml } from '@kubernetes/client-node'
import { expect, test } from 'vitest'
import { parse, parseAllDocuments } from 'yaml'
import { complaints } from '../support/runbooks.ts'

const CONFIG = readFileSync('src/config.ts', 'utf8')

type Container = {
  readonly args?: readonly string[]
  readonly command?: readonly string[]
  readonly env?: readonly { readonly name: string }[]
}

/** What the command line does not know; a variable of the shell stands for what it wants besides. */
const unknownIn = (line: string) =>
  complaints(line.split(' ')).filter((one) => /^(no|there is no) /.test(one))

const documents = globSync('ops/kubernetes/{service,worker,agent}.yaml')
  .sort()
  .flatMap((file) => parseAllDocuments(readFileSync(file, 'utf8')).map((one) => one.toJS()))

function containersOf(file: string): readonly Container[] {
  return parseAllDocuments(readFileSync(file, 'utf8')).flatMap((one) => {
    const pod = one.toJS().spec?.template?.spec
    return pod === undefined ? [] : [...(pod.initContainers ?? []), ...pod.containers]
  })
}

const workloads = globSync('ops/kubernetes/*.yaml').flatMap((file) =>
  containersOf(file).map((one) => [file, one] as const),
)
/** Of its arguments, or of a script: up to what the shell makes of the rest. */
const linesOf = ({ args = [], command = [] }: Container) => {
  const script = command.join('\n')
  const called = [...script.matchAll(/(?:main\.ts|\bipledger) ([a-z][^>|\n]*[^>|\n ])/g)].map(
    ([, line]) => line!,
  )
  return args.length > 0 ? [args.join(' ')] : called
}

test.each(workloads)('%s', (_, container) => {
  const { env = [] } = container
  expect(env.filter(({ name }) => name !== 'NODE' && !CONFIG.includes(`  ${name}: `))).toEqual([])
  expect(linesOf(container).flatMap(unknownIn)).toEqual([])
})

const kustomization = parse(readFileSync('ops/kubernetes/kustomization.yaml', 'utf8'))

test('what the owner of a cluster changes has names that are known, and fits the workloads', () => {
  type Generator = { readonly name: string; readonly literals: readonly string[] }
  const generators: readonly Generator[] = kustomization.configMapGenerator
  const named = generators.flatMap(({ literals }) => literals.map((one) => one.split('=')[0]!))
  const own = ['AGENT_OPTIONS', 'NODE_BLOCKS', 'conflist']
  expect(named.filter((name) => !own.includes(name) && !CONFIG.includes(`  ${name}: `))).toEqual([])
  const options = generators.flatMap(({ literals }) => literals).find((one) => /^AGENT_OPTIONS=/.test(one))!
  expect(unknownIn(options.replace('AGENT_OPTIONS=', 'agent '))).toEqual([])
  const texts = globSync('ops/kubernetes/*.yaml').map((file) => readFileSync(file, 'utf8'))
  for (const { name } of generators) expect(texts.join()).toContain(`{ name: ${name} }`)
  for (const { patch } of kustomization.patches) {
    const { kind, metadata, spec } = parse(patch)
    const [container] = spec.template.spec.containers
    const { template } = documents.find(
      (one) => one.kind === kind && one.metadata.name === metadata.name,
    )!.spec
    expect(template.spec.containers.map(({ name }: { readonly name: string }) => name)).toEqual([
      container.name,
    ])
    // Probes and the Service name the ports.
    const ports = (container.ports ?? []).map(({ name }: { readonly name: string }) => name)
    for (const [, port] of JSON.stringify(template).matchAll(/"port":"(\w+)"/g)) expect(ports).toContain(port)
  }
})

test('the API of Kubernetes knows their fields', () => {
  const files = globSync('ops/kubernetes/{namespace,service,worker,agent}.yaml')
  type Patch = { readonly patch: string }
  const patches = kustomization.patches.map(({ patch }: Patch) => patch)
  for (const text of [...files.map((file) => readFileSync(file, 'utf8')), ...patches]) {
    // Its client drops what it does not know.
    const known = loadAllYaml(text).map((one) => parse(dumpYaml(one)))
    expect(known).toEqual(parseAllDocuments(text).map((one) => one.toJS()))
  }
})

test('workloads drop all capabilities, cannot change their files, and survive the loss of a node', () => {
  const pods = documents.flatMap(({ spec }) => spec?.template?.spec ?? [])
  for (const { initContainers = [], containers } of pods)
    for (const { securityContext } of [...initContainers, ...containers])
      expect(securityContext).toMatchObject({
        readOnlyRootFilesystem: true,
        capabilities: { drop: ['ALL'] },
      })
  const budgets = documents.filter(({ kind }) => kind === 'PodDisruptionBudget')
  const deployments = documents.filter(({ kind }) => kind === 'Deployment')
  const labels = deployments.map(({ spec }) => spec.template.metadata.labels)
  expect(budgets.map(({ spec }) => spec.selector.matchLabels)).toEqual(labels)
})

const hasKubectl = spawnSync('kubectl', ['version', '--client']).status === 0
test.runIf(hasKubectl)('kustomize makes them', () => {
  const made = execFileSync('kubectl', ['kustomize', 'ops/kubernetes'], { encoding: 'utf8' })
  const pods = parseAllDocuments(made).flatMap((one) => one.toJS().spec?.template?.spec ?? [])
  expect(pods).toHaveLength(3)
  const [tag] = kustomization.images
  for (const { initContainers = [], containers } of pods)
    for (const { image } of [...initContainers, ...containers])
      expect(image).toBe(`${tag.newName}:${tag.newTag}`)
})

test.each(globSync('ops/systemd/*.service'))('%s', (file) => {
  const [, line] = /^ExecStart=.*\/ipledger\.js (.*)$/m.exec(readFileSync(file, 'utf8'))!
  expect(unknownIn(line!)).toEqual([])
})
