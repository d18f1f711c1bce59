#!/usr/bin/env node
import { enableCompileCache } from 'node:module'
import { fileURLToPath } from 'node:url'

// A command starts in 0.3 s of processor time instead of 0.55. Not in the machine's temporary directory, where
// another user might have put something; where it cannot be written, everything is compiled each time.
enableCompileCache(fileURLToPath(new URL('../node_modules/.cache/compiled', import.meta.url)))

const { runCli } = await import('./cli/program.ts')
process.exitCode = await runCli(process.argv.slice(2))
