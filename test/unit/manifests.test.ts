/** ops/kubernetes and ops/systemd: the command line knows what they run, and the configuration what they set. */
import { globSync, readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { parseAllDocuments } from 'yaml'
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

function containersOf(file: string): readonly Container[] {
  return parseAllDocuments(readFileSync(file, 'utf8')).flatMap((one) => {
    const pod = one.toJS().spec?.template?.spec
    return pod === undefined ? [] : [...(pod.initContainers ?? []), ...pod.containers]
  })
}

const workloads = globSync('ops/kubernetes/*.yaml').flatMap((file) =>
  containersOf(file).map((one) => [file, one] as const),
)
const lineOf = ({ args = [], command = [] }: Container) =>
  /main\.ts (.*)/.exec(command.join(' '))?.[1] ?? args.join(' ')

test.each(workloads)('%s', (_, container) => {
  const { env = [] } = container
  expect(env.filter(({ name }) => name !== 'NODE' && !CONFIG.includes(`  ${name}: `))).toEqual([])
  const line = lineOf(container)
  // Some only copy files.
  expect(line === '' ? [] : unknownIn(line)).toEqual([])
})

test.each(globSync('ops/systemd/*.service'))('%s', (file) => {
  const [, line] = /^ExecStart=.*\/ipledger\.js (.*)$/m.exec(readFileSync(file, 'utf8'))!
  expect(unknownIn(line!)).toEqual([])
})
