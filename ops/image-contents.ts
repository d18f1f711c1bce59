/**
 * `image-contents.ts IMAGE`: what is in an image, as an SBOM of CycloneDX: the packages of npm and Debian, and Node.js. On stderr the
 * SHA-256 of its files as a sorted tar with fixed times and owners. Runs nothing of the image, so its architecture may be another one.
 *
 * Code that is bundled into a package (of Kubernetes's client, of the CNI plugin) is named by that package alone.
 */
import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const say = (command: string, ...args: readonly string[]) =>
  execFileSync(command, args, { encoding: 'utf8', maxBuffer: 64 * 1024 * 1024 }).trim()
const [, , image] = process.argv
const home = mkdtempSync(join(tmpdir(), 'ipledger-image-'))
try {
  const root = exportFiles(image!)
  console.error(`sha256:${digestOf(root)}`)
  console.log(JSON.stringify(bill(root), null, 2))
} finally {
  rmSync(home, { recursive: true })
}

function exportFiles(image: string): string {
  const root = join(home, 'root')
  const tar = join(home, 'image.tar')
  mkdirSync(root)
  const container = say('docker', 'create', image)
  try {
    say('docker', 'export', '--output', tar, container)
  } finally {
    say('docker', 'rm', container)
  }
  say('tar', '--extract', '--preserve-permissions', '--no-same-owner', '--file', tar, '--directory', root)
  return root
}

function digestOf(root: string): string {
  const fixed = ['--sort=name', '--format=gnu', '--mtime=@0', '--owner=0', '--group=0', '--numeric-owner']
  const tar = join(home, 'sorted.tar')
  say('tar', '--create', ...fixed, '--file', tar, '--directory', root, '.')
  return say('sha256sum', tar).slice(0, 64)
}

function bill(root: string): object {
  const app = join(root, 'app')
  const file = join(app, 'package.json')
  const { devDependencies, optionalDependencies: _, ...read } = JSON.parse(readFileSync(file, 'utf8'))
  // The image has what is used of Kubernetes's client.
  read.dependencies['@kubernetes/client-node'] = devDependencies['@kubernetes/client-node']
  writeFileSync(file, JSON.stringify(read))
  const sbom = JSON.parse(say('npm', 'sbom', '--sbom-format', 'cyclonedx', '--prefix', app))
  sbom.components.push(...debian(root), nodeJs(root))
  return sbom
}

function debian(root: string): readonly object[] {
  const format = `${['Package', 'Version', 'Architecture'].map((field) => `$\{${field}}`).join(' ')}\\n`
  const admindir = join(root, 'var/lib/dpkg')
  const packages = say('dpkg-query', `--admindir=${admindir}`, '--show', `--showformat=${format}`)
  return packages.split('\n').map((line) => {
    const [name, version, architecture] = line.split(' ')
    const purl = `pkg:deb/debian/${name}@${encodeURIComponent(version!)}?arch=${architecture}`
    return { 'bom-ref': purl, type: 'library', name, version, purl }
  })
}

function nodeJs(root: string): object {
  const version = readFileSync(join(root, 'usr/local/share/node-version'), 'utf8').trim().slice(1)
  const purl = `pkg:generic/node@${version}`
  return { 'bom-ref': purl, type: 'application', name: 'node', version, purl }
}
