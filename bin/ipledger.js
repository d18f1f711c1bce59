#!/usr/bin/env node
// Runs ipledger on the Node.js that comes with it: plain JavaScript that old versions know. A checkout runs src as it is; an
// installed package has dist, because Node.js strips no types below node_modules.
import { spawn } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { constants } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = dirname(dirname(fileURLToPath(import.meta.url)))
const node = findNode()
const source = join(root, 'src', 'main.ts')
const main = existsSync(source) ? source : join(root, 'dist', 'src', 'main.js')

// What runs for long is told to keep its memory small (ops/decisions/0020).
const isService = ['serve', 'worker'].includes(process.argv[2])
const { config } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
const flags = isService ? config.serviceFlags.split(' ') : []

const child = spawn(node, [...flags, main, ...process.argv.slice(2)], { stdio: 'inherit' })
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal))
// npx runs this under a shell and, told to stop, stops only the shell.
if (process.env.npm_command === 'exec') {
  const parent = process.ppid
  setInterval(() => process.ppid !== parent && child.kill('SIGTERM'), 200).unref()
}
child.on('error', (error) => {
  console.error(`ipledger: cannot run ${node}: ${error.message}`)
  process.exit(1)
})
child.on('exit', (code, signal) => process.exit(signal === null ? code : 128 + constants.signals[signal]))

/** The package "node" has the binary that its install script put there, in a package's own or in a shared node_modules. */
function findNode() {
  try {
    const binary = join(dirname(createRequire(import.meta.url).resolve('node/package.json')), 'bin', 'node')
    if (existsSync(binary)) return binary
  } catch {}
  if (Number.parseInt(process.versions.node, 10) >= 26) return process.execPath
  console.error(
    `ipledger: the Node.js that it runs on is missing. Run "npm ci" in ${root} (without --ignore-scripts), where it was installed as a package "npm rebuild node", or use Node.js 26.`,
  )
  process.exit(1)
}
