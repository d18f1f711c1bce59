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
const source = join(root, 'src', 'main.ts')
const main = existsSync(source) ? source : join(root, 'dist', 'src', 'main.js')

// What runs for long is told to keep its memory small (ops/decisions/0020).
const isService = ['serve', 'worker'].includes(process.argv[2])
const { config } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
const flags = isService ? config.serviceFlags.split(' ') : []

const isNew = Number.parseInt(process.versions.node, 10) >= 26
run(findNode())

function run(node) {
  const child = spawn(node, [...flags, main, ...process.argv.slice(2)], { stdio: 'inherit' })
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal))
  // npx runs this under a shell and, told to stop, stops only the shell.
  if (process.env.npm_command === 'exec') {
    const parent = process.ppid
    setInterval(() => process.ppid !== parent && child.kill('SIGTERM'), 200).unref()
  }
  child.on('error', (error) => {
    // Its binary wants glibc: musl has no loader for it.
    if (error.code === 'ENOENT' && isNew && node !== process.execPath) return run(process.execPath)
    const why =
      error.code === 'ENOENT'
        ? 'this system lacks what it is linked to (glibc): run ipledger with Node.js 26 of its own'
        : error.message
    console.error(`ipledger: cannot run ${node}: ${why}`)
    process.exit(1)
  })
  child.on('exit', (code, signal) => process.exit(signal === null ? code : 128 + constants.signals[signal]))
}

/** Of the optional package for this platform, in the package's own node_modules or a shared one; else the one that runs this, if it is new enough. */
function findNode() {
  const { platform, arch } = process
  const name = `node${platform === 'darwin' && arch === 'arm64' ? '-bin' : ''}-${platform}-${arch}`
  try {
    return join(dirname(createRequire(import.meta.url).resolve(`${name}/package.json`)), 'bin', 'node')
  } catch {}
  if (isNew) return process.execPath
  console.error(
    `ipledger: the package ${name}, the Node.js 26 that it runs on, is missing: install it without --omit=optional, or run ipledger with Node.js 26.`,
  )
  process.exit(1)
}
