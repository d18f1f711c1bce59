#!/usr/bin/env node
// Runs src/main.ts on the Node.js this project brings, whatever runs this file: plain JavaScript that old versions know.
import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { constants } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = dirname(dirname(fileURLToPath(import.meta.url)))
const node = join(root, 'node_modules', 'node', 'bin', 'node')
if (!existsSync(node)) {
  console.error(`ipledger: ${node} is missing. Run "npm ci" in ${root} first.`)
  process.exit(1)
}

const child = spawn(node, [join(root, 'src', 'main.ts'), ...process.argv.slice(2)], { stdio: 'inherit' })
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
