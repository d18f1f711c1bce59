/** The alert rules and their pages as they are committed, and what a page says to type, with its variables filled in. */
import { readdirSync, readFileSync } from 'node:fs'
import type { Command } from 'commander'
import { createProgram } from '../../src/cli/program.ts'
import { ROOT } from './root.ts'

const RULES = 'ops/prometheus/rules/ipledger.rules.yml'
const RULE_TESTS = 'ops/prometheus/tests/'
const PAGES = 'ops/runbooks/'

const read = (path: string): string => readFileSync(new URL(path, ROOT), 'utf8')
const list = (path: string): readonly string[] => readdirSync(new URL(path, ROOT)).sort()

type Alert = {
  readonly name: string
  readonly severity: string
  readonly summary: string
  readonly description: string
  readonly runbook: string
}

/** What this repository writes of YAML, read line by line: whatever is not as expected is undefined, and fails a test. */
export function readAlerts(): readonly Alert[] {
  return read(RULES)
    .split(/^ {6}- alert: /m)
    .slice(1)
    .map((text) => {
      const one = (key: string) => new RegExp(`^ {10}${key}: (.+)$`, 'm').exec(text)?.[1]
      return {
        name: /^\w+/.exec(text)![0],
        severity: /^ {8}labels: \{ severity: (\w+) \}$/m.exec(text)?.[1] ?? '',
        summary: one('summary') ?? '',
        description: one('description') ?? '',
        // The setting is as in prometheus.yml.
        runbook: /^'\{\{ \$externalLabels\.runbooks \}\}\/(.+)'$/.exec(one('runbook_url') ?? '')?.[1] ?? '',
      }
    })
}

type AlertCase = { readonly alert: string; readonly fires: boolean }

export function readAlertCases(): readonly AlertCase[] {
  return list(RULE_TESTS).flatMap((file) =>
    [...read(RULE_TESTS + file).matchAll(/^ {8}alertname: (\w+)\n {8}exp_alerts:(.*)$/gm)].map(
      ([, alert, expected]) => ({ alert: alert!, fires: expected!.trim() !== '[]' }),
    ),
  )
}

export type Page = {
  readonly path: string
  readonly text: string
  /** One statement each. */
  readonly statements: readonly string[]
  /** One command each, as it is typed. */
  readonly commands: readonly string[]
}

export function readPages(): readonly Page[] {
  return list(PAGES)
    .filter((file) => file.endsWith('.md'))
    .map((file) => {
      const text = read(PAGES + file)
      const blocks = [...text.matchAll(/^```(\w+)\n(.*?)^```$/gms)]
      const of = (language: string) => blocks.flatMap(([, kind, body]) => (kind === language ? [body!] : []))
      return {
        path: PAGES + file,
        text,
        statements: of('sql').flatMap((body) => body.split(/;\n/).filter((one) => one.trim() !== '')),
        commands: of('sh').flatMap((body) => body.split('\n').filter((one) => one.trim() !== '')),
      }
    })
}

export type PageValues = Readonly<Record<string, string>>

/** As psql fills in `:'name'`. */
export function filledStatement(statement: string, values: PageValues): string {
  return statement.replaceAll(
    /:'(\w+)'/g,
    (_, name: string) => `'${value(values, name).replaceAll("'", "''")}'`,
  )
}

/** As a shell fills in `"$NAME"`: the words after `ipledger`. */
export function filledCommand(command: string, values: PageValues): readonly string[] {
  const [program, ...words] = [...command.matchAll(/"([^"]*)"|(\S+)/g)].map(
    ([, quoted, bare]) => quoted ?? bare!,
  )
  if (program !== 'ipledger') throw new Error(`not a command of ipledger: ${command}`)
  return words.map((word) =>
    word.replace(/^\$(\w+)$/, (_, name: string) => value(values, name.toLowerCase())),
  )
}

function value(values: PageValues, name: string): string {
  const found = values[name]
  if (found === undefined) throw new Error(`pages have no variable ${name}`)
  return found
}

/** What the command line would say against the words, without doing what they say; empty: nothing. */
export function complaints(words: readonly string[]): readonly string[] {
  let command: Command = createProgram()
  let at = 0
  for (; at < words.length; at += 1) {
    const next = command.commands.find((one) => one.name() === words[at])
    if (next === undefined) break
    command = next
  }
  if (command.commands.length > 0) return [`there is no command ${words.slice(0, at + 1).join(' ')}`]
  const rest = words.slice(at)
  if (rest.includes('--help')) return []
  const { operands, unknown } = command.parseOptions([...rest])
  const { registeredArguments: taken } = command
  const least = taken.filter(({ required }) => required).length
  const most = taken.some(({ variadic }) => variadic) ? Number.POSITIVE_INFINITY : taken.length
  return [
    ...unknown.map((one) => `no option ${one}`),
    ...(operands.length < least || operands.length > most ? [`${operands.length} arguments`] : []),
    ...command.options
      .filter((one) => one.mandatory && command.getOptionValue(one.attributeName()) === undefined)
      .map((one) => `without ${one.long}`),
  ]
}
