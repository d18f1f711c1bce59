#!/usr/bin/env node
// Runs src/main.ts on the Node.js this project brings, whatever runs this file: plain JavaScript that old versions know.
import { spawn } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { constants } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = dirname(dirname(fileURLToPath(import.meta.url)))
const node = join(root, 'node_modules', 'node', 'bin', 'node')
if (!existsSync(node)) {
  console.error(`ipledger: ${node} is missing. Run "npm ci" in ${root} first.`)
  process.exit(1)
}

// What runs for long is told to keep its memory small (ops/decisions/0020).
const isService = ['serve', 'worker'].includes(process.argv[2])
const { config } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
const flags = isService ? config.serviceFlags.split(' ') : []

const child = spawn(node, [...flags, join(root, 'src', 'main.ts'), ...process.argv.slice(2)], {
  stdio: 'inherit',
})
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
