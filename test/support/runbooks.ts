/** The alert rules and their pages as they are committed, and what a page says to type, with its variables filled in. */
import { readdirSync, readFileSync } from 'node:fs'
import type { Command } from 'commander'
import { parse } from 'yaml'
import { createProgram } from '../../src/cli/program.ts'
import { ROOT } from './root.ts'

const OPS = new URL('ops/', ROOT)
const read = (path: string): string => readFileSync(new URL(path, OPS), 'utf8')
const list = (path: string): readonly string[] => readdirSync(new URL(path, OPS)).sort()

type Alert = { readonly alert: string; readonly annotations: { readonly runbook_url: string } }
type Case = { readonly alertname: string; readonly exp_alerts: readonly unknown[] }

export function readAlerts(): readonly Alert[] {
  const { groups } = parse(read('prometheus/rules/ipledger.rules.yml')) as { groups: { rules: Alert[] }[] }
  return groups.flatMap(({ rules }) => rules.filter(({ alert }) => alert !== undefined))
}

export function readCases(): readonly Case[] {
  return list('prometheus/tests/').flatMap((file) => {
    const { tests } = parse(read(`prometheus/tests/${file}`)) as { tests: { alert_rule_test?: Case[] }[] }
    return tests.flatMap((one) => one.alert_rule_test ?? [])
  })
}

type Page = {
  readonly name: string
  /** One statement each. */
  readonly statements: readonly string[]
  /** One command each, as it is typed. */
  readonly commands: readonly string[]
}

export function readPages(): readonly Page[] {
  return list('runbooks/').map((name) => {
    const blocks = [...read(`runbooks/${name}`).matchAll(/^```(\w+)\n(.*?)^```$/gms)]
    const parts = (language: string, end: RegExp) =>
      blocks
        .flatMap(([, kind, body]) => (kind === language ? body!.split(end) : []))
        .filter((one) => one.trim() !== '')
    return { name, statements: parts('sql', /;\n/), commands: parts('sh', /\n/) }
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
