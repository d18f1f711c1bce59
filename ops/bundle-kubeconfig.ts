/** `bundle-kubeconfig.ts FILE`: src/sources/kubeconfig.ts with all that it needs, and beside it the licences of what is inside. */
import { existsSync, globSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { rolldown } from 'rolldown'

const [, , file] = process.argv
const bundle = await rolldown({
  input: 'src/sources/kubeconfig.ts',
  platform: 'node',
  logLevel: 'warn',
})
const { output } = await bundle.write({ file: file!, format: 'esm', minify: true })

const roots = output
  .flatMap((one) => (one.type === 'chunk' ? one.moduleIds : []))
  .flatMap((id) => /^.*\/node_modules\/(?:@[^/]+\/)?[^/]+/.exec(id)?.[0] ?? [])
const licences = [...new Set(roots)].sort().map((root) => {
  const { name, version, license } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
  const [text] = globSync('{LICEN[CS]E,licen[cs]e}*', { cwd: root })
  return `${name} ${version} (${license})\n\n${text !== undefined && existsSync(join(root, text)) ? readFileSync(join(root, text), 'utf8') : ''}`
})
writeFileSync(`${file}.LICENSES.txt`, licences.join(`\n${'-'.repeat(80)}\n`))
