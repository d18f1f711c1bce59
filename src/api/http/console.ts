/**
 * The console: its page, its modules and the libraries that it loads, all from this package. Modules of a checkout are TypeScript,
 * whose types are stripped here, once; an installed package has JavaScript. Nothing in it is secret, so it needs no token: what it
 * shows it gets by the API.
 */
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import type * as http from 'node:http'
import { stripTypeScriptTypes } from 'node:module'
import { extname } from 'node:path'
import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'

const ROOT = new URL('../../console/', import.meta.url)
/** By the name that modules import them by: the file that browsers can load. */
const LIBRARIES = {
  preact: 'preact',
  'preact/hooks': 'preact/hooks',
  htm: 'htm',
  'htm/preact': 'htm/preact',
  uplot: 'uplot/dist/uPlot.esm.js',
}
const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.ts': 'text/javascript; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
}

type File = {
  readonly type: string
  readonly body: Buffer
  readonly packed: Buffer
  readonly tag: string
}

const fileOf = (type: string, text: string): File => ({
  type,
  body: Buffer.from(text),
  packed: gzipSync(text, { level: 9 }),
  tag: `"${sha256(text)}"`,
})

const sha256 = (text: string) => createHash('sha256').update(text).digest('base64')

const IMPORTS = JSON.stringify({
  imports: Object.fromEntries(Object.keys(LIBRARIES).map((name) => [name, `/console/lib/${name}.js`])),
})

const MAIN = `main${extname(import.meta.filename)}`

const PAGE = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>ipledger</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/console/style.css">
<link rel="stylesheet" href="/console/lib/uplot.css">
<script type="importmap">${IMPORTS}</script>
<script type="module" src="/console/${MAIN}"></script>
</head>
<body><noscript>The console needs JavaScript. The command line and the API show the same.</noscript></body>
</html>
`

/** Scripts and styles of this server only; the import map stands in the page, so its hash is named. Styles that scripts set are allowed. */
const POLICY = [
  "default-src 'none'",
  `script-src 'self' 'sha256-${sha256(IMPORTS)}'`,
  "style-src 'self'",
  "connect-src 'self'",
  'img-src data:',
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ')

const HEADERS = {
  'content-security-policy': POLICY,
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  // Asked each time, and answered with 304 while it is the same.
  'cache-control': 'no-cache',
  vary: 'accept-encoding',
}

/** Without Node.js's warning that this is experimental: its version comes with the package. */
function stripped(text: string): string {
  const { emitWarning } = process
  process.emitWarning = () => {}
  try {
    return stripTypeScriptTypes(text)
  } finally {
    process.emitWarning = emitWarning
  }
}

function readFiles(): ReadonlyMap<string, File> {
  const own = readdirSync(ROOT, { recursive: true, encoding: 'utf8' }).filter(
    (name) => extname(name) in TYPES,
  )
  const module = (name: string) => {
    const text = readFileSync(new URL(name, ROOT), 'utf8')
    return extname(name) === '.ts' ? stripped(text) : text
  }
  const library = (name: string) => readFileSync(fileURLToPath(import.meta.resolve(name)), 'utf8')
  return new Map([
    ['/', fileOf(TYPES['.html']!, PAGE)],
    ...own.map((name) => [`/console/${name}`, fileOf(TYPES[extname(name)]!, module(name))] as const),
    ...Object.entries(LIBRARIES).map(
      ([name, file]) => [`/console/lib/${name}.js`, fileOf(TYPES['.js']!, library(file))] as const,
    ),
    ['/console/lib/uplot.css', fileOf(TYPES['.css']!, library('uplot/dist/uPlot.min.css'))],
  ])
}

/** True: it was the console's, and is answered. `/` is for who wants HTML. */
export function createConsole(): (request: http.IncomingMessage, response: http.ServerResponse) => boolean {
  const files = readFiles()
  return ({ url = '', method, headers }, response) => {
    const file = files.get(url)
    if (file === undefined || (method !== 'GET' && method !== 'HEAD')) return false
    if (url === '/' && !headers.accept?.includes('text/html')) return false
    const isSame = headers['if-none-match'] === file.tag
    const isPacked = /\bgzip\b/.test(String(headers['accept-encoding'] ?? ''))
    response.writeHead(isSame ? 304 : 200, {
      ...HEADERS,
      'content-type': file.type,
      etag: file.tag,
      ...(isPacked && { 'content-encoding': 'gzip' }),
    })
    response.end(isSame || method === 'HEAD' ? undefined : isPacked ? file.packed : file.body)
    return true
  }
}
