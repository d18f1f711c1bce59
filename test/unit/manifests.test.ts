/** ops/kubernetes and ops/systemd name only what is there: variables, commands, secrets, ports, volumes, accounts. */
import { globSync, readdirSync, readFileSync } from 'node:fs'
import { basename } from 'node:path'
import { describe, expect, test } from 'vitest'
import { parse, parseAllDocuments } from 'yaml'
import { createProgram } from '../../src/cli/program.ts'

const text = (file: string) => readFileSync(file, 'utf8')
const CONFIG = text('src/config.ts')
const DEPLOYING = text('docs/deploying.md')
const isVariable = (name: string) => CONFIG.includes(`  ${name}: `)

/** Why a command line would be refused; empty: it would not. Variables of the shell stand for options that they have. */
function refusal(line: string): string {
  const words = line.split(/\s+/).filter((word) => word !== '')
  const command = createProgram().commands.find((one) => one.name() === words[0])
  if (command === undefined) return `no command ${words[0]}`
  const unknown = words.filter(
    (word) => word.startsWith('--') && !command.options.some(({ long }) => long === word),
  )
  return unknown.join(' ')
}

// biome-ignore lint/suspicious/noExplicitAny: YAML as it came
type Any = any
const kustomization = parse(text('ops/kubernetes/kustomization.yaml'))
const manifests = readdirSync('ops/kubernetes').filter((name) => name !== 'kustomization.yaml')
const documents: readonly Any[] = manifests.flatMap((name) =>
  parseAllDocuments(text(`ops/kubernetes/${name}`)).map((one) => one.toJS()),
)
const ofKind = (...kinds: readonly string[]) => documents.filter(({ kind }) => kinds.includes(kind))
const workloads = ofKind('Deployment', 'DaemonSet').map(({ metadata, spec }) => ({
  name: metadata.name,
  labels: spec.template.metadata.labels,
  selector: spec.selector.matchLabels,
  pod: spec.template.spec,
  containers: [...(spec.template.spec.initContainers ?? []), ...spec.template.spec.containers],
}))

test('every manifest is part of the whole, and the image has one name', () => {
  expect([...kustomization.resources].sort()).toEqual([...manifests].sort())
  const images = workloads.flatMap(({ containers }) => containers.map(({ image }: Any) => image))
  expect(new Set(images)).toEqual(new Set(kustomization.images.map(({ name }: Any) => name)))
})

describe.each(workloads)('$name', ({ labels, selector, pod, containers }) => {
  test('its variables and commands are ours', () => {
    const variables = containers.flatMap(({ env = [] }: Any) => env.map(({ name }: Any) => name))
    expect(variables.filter((name: string) => name !== 'NODE' && !isVariable(name))).toEqual([])
    const lines: readonly string[] = containers.flatMap(({ args = [], command = [] }: Any) =>
      [args.join(' '), /main\.ts (.*)/.exec(command.join(' '))?.[1] ?? ''].filter((line) => line !== ''),
    )
    expect(lines).not.toEqual([])
    for (const line of lines) expect(refusal(line), line).toBe('')
  })

  test('its secrets are those that the docs make', () => {
    const asked = containers.flatMap(({ env = [] }: Any) =>
      env.flatMap(({ valueFrom }: Any) => valueFrom?.secretKeyRef ?? []),
    )
    const mounted = (pod.volumes ?? []).flatMap(({ secret }: Any) =>
      secret === undefined
        ? []
        : secret.items.map(({ key }: Any) => ({ name: secret.secretName, key: key as string })),
    )
    for (const { name, key } of [...asked, ...mounted]) {
      expect(DEPLOYING).toContain(`create secret generic ${name} `)
      expect(DEPLOYING).toMatch(new RegExp(`--from-(literal|file)=${key}=`))
    }
  })

  test('what it mounts, probes, selects and runs as is there', () => {
    const volumes = (pod.volumes ?? []).map(({ name }: Any) => name)
    const mounts = containers.flatMap(({ volumeMounts = [] }: Any) =>
      volumeMounts.map(({ name }: Any) => name),
    )
    expect(new Set(mounts)).toEqual(new Set(volumes))
    expect(labels).toEqual(selector)
    const accounts = ofKind('ServiceAccount').map(({ metadata }) => metadata.name)
    if (pod.serviceAccountName !== undefined) expect(accounts).toContain(pod.serviceAccountName)
    for (const { ports = [], readinessProbe, livenessProbe, startupProbe } of containers) {
      const names = ports.map(({ name }: Any) => name)
      for (const probe of [readinessProbe, livenessProbe, startupProbe])
        if (probe !== undefined) {
          expect(names).toContain(probe.httpGet.port)
          expect(text('src/api/http/pages.ts')).toContain(`'${probe.httpGet.path}':`)
        }
      for (const { containerPort } of ports) expect(CONFIG).toContain(`65_535, ${containerPort})`)
    }
  })
})

test('services and disruption budgets select a workload, and services name its ports', () => {
  for (const { spec } of ofKind('Service', 'PodDisruptionBudget')) {
    const wanted = spec.selector.matchLabels ?? spec.selector
    const found = workloads.find(({ labels }) => JSON.stringify(labels) === JSON.stringify(wanted))
    const ports = found!.containers.flatMap(({ ports: all = [] }: Any) => all.map(({ name }: Any) => name))
    for (const { targetPort } of spec.ports ?? []) expect(ports).toContain(targetPort)
  }
})

test('the worker may do in its cluster what the source asks there, and no more', () => {
  const [role] = ofKind('ClusterRole')
  const [binding] = ofKind('ClusterRoleBinding')
  expect([binding.roleRef.name, binding.subjects[0].name]).toEqual([role.metadata.name, 'ipledger-worker'])
  expect(binding.subjects[0].namespace).toBe(kustomization.namespace)
  const may = role.rules.map(({ resources, resourceNames = [], verbs }: Any) =>
    [...verbs, resources, ...resourceNames].join(' '),
  )
  expect(text('src/sources/kubernetes.ts')).toContain('list and get pods, get the namespace kube-system')
  expect(may).toEqual(['get list pods', 'get namespaces kube-system'])
})

test.each(globSync('ops/systemd/*.service'))('%s', (file) => {
  const unit = text(file)
  const [, line = ''] = /^ExecStart=.*\/ipledger\.js (.*)$/m.exec(unit)!
  expect(basename(file)).toContain(line.split(' ')[0])
  expect(refusal(line)).toBe('')
  const settings = [.../^EnvironmentFile=(.*)$/gm[Symbol.matchAll](unit)].map(([, path]) => path!)
  expect(settings).toHaveLength(1)
  expect(DEPLOYING).toContain(settings[0])
})
