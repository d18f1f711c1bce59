/**
 * README and docs, pasted: each page on a service of its own with the PostgreSQL that ipledger brings, in the order of the page.
 * What a page shows is what was printed, up to times, digests and what it leaves out by `…`; `--update` writes it.
 *
 * Run: blocks of `console` (commands after `$`) and of `sql` (as the auditor; the block of `text` below is what psql would print).
 * Written to a file before: blocks with a file's name beside their language. Only looked at: blocks of `sh`, whose commands of
 * ipledger must exist.
 */
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { CommanderError } from 'commander'
import type pg from 'pg'
import { describe, expect, test } from 'vitest'
import { withClient } from '../support/database.ts'
import { PAGES, textOf } from '../support/docs.ts'
import { ROOT } from '../support/root.ts'
import { complaints } from '../support/runbooks.ts'
import { openShell } from '../support/shell.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'
import { waitFor } from '../support/wait-for.ts'
import { MAIN, serve, stop } from './commands.ts'

const SHOWN_URL = 'http://127.0.0.1:8080'
const SHOWN_DIRECTORY = '/home/you/ipledger'

type Block = { readonly language: string; readonly file: string | undefined; readonly body: string }
const BLOCK = /^```(\w+)(?: (\S+))?\n(.*?)^```$/gms

const blocksOf = (text: string): readonly Block[] =>
  [...text.matchAll(BLOCK)].map(([, language, file, body]) => ({ language: language!, file, body: body! }))

type Step = { readonly command: string; readonly shown: string }

/** Commands begin with `$ `; lines right below that are indented by four belong to them. */
function stepsOf(body: string): readonly Step[] {
  return body
    .split(/^\$ /m)
    .slice(1)
    .map((text) => {
      const command = /^.*\n(?: {4}.*\n)*/.exec(text)![0]
      return { command, shown: text.slice(command.length) }
    })
}

/** As a shell splits them. */
const typedWords = (line: string): readonly string[] =>
  [...line.matchAll(/'([^']*)'|"([^"]*)"|(\S+)/g)].map(
    ([, single, double, bare]) => single ?? double ?? bare!,
  )

/** What the command line has against it. Of a command that is only named, what it needs besides is left out. */
function wrongWith(line: string): readonly string[] {
  if (/^help\b/.test(line)) return []
  try {
    return complaints(typedWords(line.replaceAll(/ …|…/g, ''))).filter(
      (one) => !/^(without|\d+ arguments)/.test(one),
    )
  } catch (error) {
    const isLeftOut = error instanceof CommanderError && error.code === 'commander.optionMissingArgument'
    return isLeftOut || line.includes('<') ? [] : [String(error)]
  }
}

/** What differs each time is as good as the same. */
const steady = (text: string): string =>
  text
    // Columns and lines are as wide as what is in them.
    .replaceAll(/\s+/g, ' ')
    .replaceAll(/\d{4}-\d\d-\d\d([T ])\d\d:\d\d:\d\d(\.\d+)?/g, '2026-01-31$100:00:00')
    .replaceAll(/\b[0-9a-f]{64}\b/g, 'digest')
    .replaceAll(/"\d+(\.\d+)?s"/g, '"1.000s"')
    .replaceAll(/(?<=try again in )\S+/g, '2m')
    // Ages.
    .replaceAll(/\b\d+s\b/g, '1s')
    .trim()

function isShown(shown: string, printed: string): boolean {
  const pattern = steady(shown)
    .split(/ ?… ?/)
    .map((part) => part.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&'))
    .join('.*')
  return new RegExp(`^${pattern}$`, 's').test(steady(printed))
}

const NUMBERS: readonly number[] = [20, 21, 23, 700, 701, 1700]

/** As psql prints it. */
function psqlTable({ fields, rows }: pg.QueryResult): string {
  const columns = fields.map(({ name, dataTypeID }) => {
    const cells = rows.map((row) => String(row[name] ?? ''))
    const width = Math.max(name.length, ...cells.map((cell) => cell.length))
    const left = Math.floor((width - name.length) / 2)
    const isNumber = NUMBERS.includes(dataTypeID)
    return {
      name: name.padStart(name.length + left).padEnd(width),
      rule: '-'.repeat(width + 2),
      cells: cells.map((cell) => (isNumber ? cell.padStart(width) : cell.padEnd(width))),
    }
  })
  const line = (cells: readonly string[]) =>
    cells
      .map((cell) => ` ${cell} `)
      .join('|')
      .trimEnd()
  return [
    line(columns.map(({ name }) => name)),
    columns.map(({ rule }) => rule).join('+'),
    ...rows.map((_, at) => line(columns.map(({ cells }) => cells[at]!))),
    `(${rows.length} row${rows.length === 1 ? '' : 's'})`,
  ].join('\n')
}

/** A checkout as the reader has it; `ipledger` and `npx` without the launcher. */
function checkout(): string {
  const directory = join(temporaryDirectory(), 'ipledger')
  mkdirSync(join(directory, 'path'), { recursive: true })
  for (const name of ['src', 'node_modules', 'package.json', 'ops', 'proto', 'db'])
    symlinkSync(fileURLToPath(new URL(name, ROOT)), join(directory, name))
  writeFileSync(
    join(directory, 'path', 'npx'),
    `#!/bin/sh
program=$1
shift
case $program in
  node) IPLEDGER_URL=http://127.0.0.1:$IPLEDGER_PORT exec ${process.execPath} "$@" ;;
  *) echo "npx $program?" >&2; exit 1 ;;
esac
`,
    { mode: 0o755 },
  )
  const launcher = join(directory, 'path', 'ipledger')
  writeFileSync(launcher, `#!/bin/sh\nexec ${process.execPath} ${MAIN} "$@"\n`, { mode: 0o755 })
  return directory
}

/** The page with what its commands print now. */
async function played(text: string): Promise<string> {
  const directory = checkout()
  const env = { IPLEDGER_DIR: join(directory, '.ipledger') }
  const service = await serve({ ...env, IPLEDGER_METRICS: 'yes' })
  try {
    // A reader is slower than the load of the networks.
    await waitFor(async () => (await fetch(`${service.url}/readyz`)).ok, { what: 'its networks' })
    await using shell = openShell(directory, {
      ...env,
      PATH: `${join(directory, 'path')}:${process.env.PATH}`,
      HOME: directory,
      NO_COLOR: '1',
      IPLEDGER_PORT: new URL(service.url).port,
    })
    const run = async (command: string) => {
      const { printed, code } = await shell.run(command.replaceAll(SHOWN_URL, service.url))
      return {
        printed: printed.replaceAll(service.url, SHOWN_URL).replaceAll(directory, SHOWN_DIRECTORY),
        code,
      }
    }
    let page = ''
    let from = 0
    let asked: string | undefined
    for (const found of text.matchAll(BLOCK)) {
      const [whole, language, file, body] = found
      let now = whole
      if (file !== undefined) writeFileSync(join(directory, file), body!)
      if (language === 'console') {
        const lines: string[] = []
        for (const { command, shown } of stepsOf(body!)) {
          const { printed, code } = await run(command)
          if (code !== 0) expect(printed, command).toMatch(/^ipledger: /)
          const gap = /\n\n$/.test(shown) || shown === '\n' ? '\n' : ''
          lines.push(
            `$ ${command}${isShown(shown, printed) ? shown : `${printed}\n${gap}`.replace(/^\n/, '')}`,
          )
        }
        now = `\`\`\`console\n${lines.join('')}\`\`\``
      }
      if (language === 'sql') {
        const { printed: url } = await run('ipledger database url')
        asked = await withClient(url.split('\n')[0]!, async (client) => {
          await client.query('set role ipledger_auditor')
          await client.query("set search_path = ipledger_audit; set timezone = 'UTC'")
          // Texts as psql prints them.
          return psqlTable(
            await client.query({ text: body!, types: { getTypeParser: () => (value: string) => value } }),
          )
        })
      } else if (language === 'text' && asked !== undefined) {
        if (!isShown(body!, asked)) now = `\`\`\`text\n${asked}\n\`\`\``
        asked = undefined
      }
      page += text.slice(from, found.index) + now
      from = found.index + whole.length
    }
    return page + text.slice(from)
  } finally {
    await stop(service)
  }
}

describe.each(PAGES)('%s', (path) => {
  const text = textOf(path)
  const blocks = blocksOf(text)

  const typed = [
    ...blocks.flatMap(({ language, body }) =>
      language === 'sh' ? body.replaceAll('\\\n', ' ').split('\n') : [],
    ),
    ...[...text.replaceAll(BLOCK, '').matchAll(/`(ipledger [^`]+)`/g)].map(([, code]) => code!),
  ].flatMap((line) =>
    [...line.matchAll(/(?:^|[\s(])ipledger ([a-z](?:'[^']*'|"[^"]*"|[^#;|)'"])*)/g)].map(([, rest]) =>
      rest!.trim(),
    ),
  )

  test.runIf(typed.length > 0)('names commands that are there', () => {
    const wrong = typed.flatMap((line) => wrongWith(line).map((one) => `${line}: ${one}`))
    expect(wrong).toEqual([])
  })

  const isPlayed = blocks.some(({ language }) => ['console', 'sql'].includes(language))
  test.runIf(isPlayed)('shows what is printed', { timeout: 180_000 }, async () => {
    await expect(await played(text)).toMatchFileSnapshot(fileURLToPath(new URL(path, ROOT)))
  })
})
