/** What the figures were measured on. Rates without it say nothing. */
import { spawnSync } from 'node:child_process'
import { closeSync, fdatasyncSync, openSync, rmSync, statfsSync, writeSync } from 'node:fs'
import { arch, availableParallelism, cpus, platform, release, totalmem } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type pg from 'pg'
import { createSamples } from './statistics.ts'

export type Machine = {
  readonly cpu: string
  readonly cores: number
  readonly memoryGib: number
  readonly system: string
  readonly node: string
  readonly postgres: string
  /** Null: the database's disk is not ours to try. */
  readonly fdatasyncMs: { readonly p50: number; readonly p99: number } | null
  readonly fileSystem: string | null
  readonly revision: string | null
}

export async function describeMachine(
  admin: pg.Client,
  directory: string | undefined,
  fsyncForMs: number,
): Promise<Machine> {
  const { rows } = await admin.query<{ server_version: string }>('show server_version')
  return {
    cpu: cpus()[0]?.model.trim() ?? arch(),
    cores: availableParallelism(),
    memoryGib: Math.round((totalmem() / 2 ** 30) * 10) / 10,
    system: `${platform()} ${release()} ${arch()}`,
    node: process.version,
    postgres: rows[0]!.server_version,
    fdatasyncMs: directory === undefined ? null : timeFdatasync(directory, fsyncForMs),
    fileSystem: directory === undefined ? null : nameFileSystem(statfsSync(directory).type),
    revision: readRevision(),
  }
}

/** 8 kB written over and made durable, again and again: what a commit must wait for (as pg_test_fsync does it). */
function timeFdatasync(directory: string, forMs: number): { p50: number; p99: number } {
  const file = join(directory, 'fdatasync')
  const block = Buffer.alloc(8_192, 0x5a)
  const samples = createSamples()
  const descriptor = openSync(file, 'w')
  try {
    writeSync(descriptor, block, 0, block.length, 0)
    fdatasyncSync(descriptor)
    const end = performance.now() + forMs
    for (let begun = performance.now(); begun < end; begun = performance.now()) {
      writeSync(descriptor, block, 0, block.length, 0)
      fdatasyncSync(descriptor)
      samples.add(performance.now() - begun)
    }
  } finally {
    closeSync(descriptor)
    rmSync(file)
  }
  const { p50, p99 } = samples.take()
  return { p50, p99 }
}

const FILE_SYSTEMS: Readonly<Record<number, string>> = {
  61267: 'ext4',
  1481003842: 'xfs',
  2435016766: 'btrfs',
  801189825: 'zfs',
  2035054128: 'overlay',
}

function nameFileSystem(type: number): string {
  return FILE_SYSTEMS[type] ?? `0x${type.toString(16)}`
}

function readRevision(): string | null {
  const root = fileURLToPath(new URL('..', import.meta.url))
  const said = spawnSync('git', ['-C', root, 'describe', '--always', '--dirty'], { encoding: 'utf8' })
  return said.status === 0 ? said.stdout.trim() : null
}
