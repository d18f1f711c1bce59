/**
 * Each shell step of .github/workflows is run. Those that speak to npm, a registry of images, Sigstore or GitHub call programs that
 * only write down how they were called; "SBOM and CNI launcher" is run by test/docker/image.test.ts.
 */
import { execFileSync } from 'node:child_process'
import { chmodSync, cpSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { ROOT } from '../support/root.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'
import { runStep, stepsOf } from '../support/workflows.ts'

const root = fileURLToPath(ROOT)
const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
const [ci, release] = [stepsOf('ci'), stepsOf('release')]
const env = {
  GITHUB_REF_NAME: `v${version}`,
  GITHUB_ACTOR: 'somebody',
  GITHUB_TOKEN: 'secret',
  IMAGE: 'registry.example/ipledger',
  ARCHITECTURE: 'arm64',
}

/** `programs`: the script of each. Answers the calls in their order. */
function called(step: string, programs: Readonly<Record<string, string>>): readonly string[] {
  const cwd = temporaryDirectory()
  const bin = join(cwd, 'bin')
  mkdirSync(bin)
  mkdirSync(join(cwd, 'files'))
  writeFileSync(join(cwd, 'files', 'one'), '')
  for (const [name, script] of Object.entries(programs)) {
    writeFileSync(join(bin, name), `#!/bin/bash\necho "${name} $*" >>"$CALLS"\n${script}\n`)
    chmodSync(join(bin, name), 0o755)
  }
  const CALLS = join(cwd, 'calls')
  const PATH = `${bin}:${process.env.PATH}`
  const { status, said } = runStep(step, { cwd, env: { ...env, PATH, CALLS } })
  expect(said).not.toContain('secret')
  expect(status, said).toBe(0)
  return readFileSync(CALLS, 'utf8').trim().split('\n')
}

test('the steps are those that are run here', () => {
  expect([...ci.keys()]).toEqual(['What the steps need', 'All checks and tests'])
  expect([...release.keys()]).toEqual([
    'The tag is the version of both packages, and CHANGELOG has it',
    'Packages',
    'Publish',
    'Build',
    'SBOM and CNI launcher',
    'Push and sign',
    'One image of both architectures',
    'Checksums and notes',
    'Release',
  ])
})

test('ci', () => {
  expect(called(ci.get('What the steps need')!, { 'apt-get': '' })[0]).toBe('apt-get update')
  const script = ci.get('All checks and tests')!.trim()
  expect(existsSync(join(root, script))).toBe(true)
})

test('a tag of another version than that of the packages and of CHANGELOG is refused', () => {
  const step = release.get('The tag is the version of both packages, and CHANGELOG has it')!
  expect(runStep(step, { cwd: root, env })).toMatchObject({ status: 0 })
  expect(runStep(step, { cwd: root, env: { GITHUB_REF_NAME: 'v0.0.9' } })).toMatchObject({ status: 1 })
})

test('both packages are made and published, each once', () => {
  const packages = called(release.get('Packages')!, { npm: '' })
  expect(packages).toEqual([
    'npm ci',
    'npm run build:client',
    'npm pack --pack-destination packages',
    'npm pack --pack-destination packages ./dist/client',
  ])
  const publish = (name: string) => `npm publish --provenance --access public packages/${name}-${version}.tgz`
  const views = ['ipledger', 'ipledger-client'].map((name) => `npm view ${name}@${version} version`)
  const isNew = called(release.get('Publish')!, { npm: '[ "$1" != view ]' })
  expect(isNew).toEqual([views[0], publish('ipledger'), views[1], publish('ipledger-client')])
  expect(called(release.get('Publish')!, { npm: '' })).toEqual(views)
})

test('the image of each architecture is built, pushed and signed, then that of both', () => {
  expect(called(release.get('Build')!, { docker: '' })).toEqual([
    'docker build --pull --file ops/Dockerfile --tag built .',
  ])
  const docker =
    'case "$1 $2" in "inspect "*) echo "$IMAGE@sha256:1" ;; "buildx imagetools") echo sha256:2 ;; login*) cat >/dev/null ;; esac'
  const tag = `${env.IMAGE}:${version}`
  const login = 'docker login ghcr.io --username somebody --password-stdin'
  expect(called(release.get('Push and sign')!, { docker, cosign: '' })).toEqual([
    login,
    `docker tag built ${tag}-arm64`,
    `docker push ${tag}-arm64`,
    `docker inspect --format {{index .RepoDigests 0}} ${tag}-arm64`,
    `cosign sign --yes ${env.IMAGE}@sha256:1`,
    `cosign attest --yes --type cyclonedx --predicate files/ipledger-image-arm64.cdx.json ${env.IMAGE}@sha256:1`,
  ])
  expect(called(release.get('One image of both architectures')!, { docker, cosign: '' })).toEqual([
    login,
    `docker buildx imagetools create --tag ${tag} ${tag}-amd64 ${tag}-arm64`,
    `docker buildx imagetools inspect ${tag} --format {{.Manifest.Digest}}`,
    `cosign sign --yes ${env.IMAGE}@sha256:2`,
  ])
})

test('the release has the notes of its version, and checksums of its files', () => {
  const cwd = temporaryDirectory()
  mkdirSync(join(cwd, 'files'))
  writeFileSync(join(cwd, 'files', 'ipledger-cni-amd64'), 'program')
  cpSync(join(root, 'CHANGELOG.md'), join(cwd, 'CHANGELOG.md'))
  const step = release.get('Checksums and notes')!
  expect(runStep(step, { cwd, env })).toMatchObject({ status: 0 })
  execFileSync('sha256sum', ['--check', '--strict', 'SHA256SUMS'], {
    cwd: join(cwd, 'files'),
    stdio: 'ignore',
  })
  const changes = `## 2.0.0\n\nSecond.\n\n## ${version}\n\nThis.\n\n### Added\n\n- One.\n\n## 0.0.1\n\nFirst.\n`
  writeFileSync(join(cwd, 'CHANGELOG.md'), changes)
  expect(runStep(step, { cwd, env })).toMatchObject({ status: 0 })
  expect(readFileSync(join(cwd, 'notes.md'), 'utf8').trim()).toBe('This.\n\n### Added\n\n- One.')
  expect(runStep(step, { cwd, env: { GITHUB_REF_NAME: 'v3.0.0' } }).status).not.toBe(0)
})

test('a release that is there gets the files again', () => {
  const upload = `gh release upload v${version} --clobber files/one`
  const create = `gh release create v${version} --verify-tag --notes-file notes.md`
  const view = `gh release view v${version}`
  expect(called(release.get('Release')!, { gh: '' })).toEqual([view, upload])
  expect(called(release.get('Release')!, { gh: '[ "$2" != view ]' })).toEqual([view, create, upload])
})
