/**
 * Three PostgreSQLs of Debian under Patroni, each in a network namespace of its own, so that a partition is one; an etcd and an
 * HAProxy beside them. A commit is acknowledged once a standby has it (`synchronous_mode_strict`). As root, with Debian's patroni,
 * etcd-server, haproxy and postgresql-15.
 *
 * The members use version 2 of etcd's API: with version 3 a Patroni before 3.0.3, as Debian's, takes the lock of the primary without
 * looking whose it is (patroni#2689). A primary that was paused came back as the primary, and 978 acknowledged events were lost.
 */
import { type ChildProcess, execFile, execFileSync, spawn } from 'node:child_process'
import { chmodSync, chownSync, mkdirSync, mkdtempSync, openSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { withClient } from '../support/database.ts'
import { HOME } from '../support/server.ts'
import { waitFor } from '../support/wait-for.ts'

const run = promisify(execFile)
const LOGIN = 'postgres:secret'
const authentication = {
  superuser: { username: 'postgres', password: 'secret' },
  replication: { username: 'replicator', password: 'secret' },
}

export type Member = { readonly name: string; readonly address: string; readonly space: string }
type Seen = {
  readonly role: string
  readonly state: string
  readonly timeline: number
  readonly lag?: number
}

export class Cluster {
  readonly #tag: string
  readonly #directory: string
  readonly #guard: ChildProcess
  readonly #patronis = new Map<string, ChildProcess>()
  readonly members: readonly Member[]
  readonly #hub: string
  /** All hosts, in the order of their names. */
  readonly url: string
  /** HAProxy, which asks each Patroni whether it is the primary. */
  readonly proxyUrl: string

  /** `ttlSeconds`: how long a primary that is silent stays the primary. */
  static async start({ ttlSeconds }: { readonly ttlSeconds: number }): Promise<Cluster> {
    const cluster = new Cluster(ttlSeconds)
    try {
      await cluster.untilWhole()
      await cluster.untilReached()
      await withClient(toPostgres(cluster.url), (admin) => admin.query('create database ipledger'))
      return cluster
    } catch (error) {
      await cluster.stop()
      throw error
    }
  }

  private constructor(ttlSeconds: number) {
    const tag = `plf${process.pid % 100_000}`
    const net = `10.${210 + ((process.pid >> 8) % 40)}.${process.pid % 256}`
    this.#tag = tag
    this.#directory = mkdtempSync(join(HOME, 'ipledger-patroni-'))
    chmodSync(this.#directory, 0o711)
    this.#hub = `${net}.2`
    this.members = ['a', 'b', 'c'].map((name, index) => {
      return { name, address: `${net}.${11 + index}`, space: `${tag}-${name}` }
    })
    const hosts = this.members.map(({ address }) => `${address}:5432`).join(',')
    this.url = `postgresql://${LOGIN}@${hosts}/ipledger`
    this.proxyUrl = `postgresql://${LOGIN}@${this.#hub}:5000/ipledger`
    this.#guard = this.#endAllWithThisProcess()
    this.#connect(net)
    this.#startInHub('etcd', [
      '--enable-v2',
      ...['--data-dir', join(this.#directory, 'etcd'), '--listen-peer-urls', 'http://127.0.0.1:2380'],
      ...['--listen-client-urls', `http://${this.#hub}:2379`],
      ...['--advertise-client-urls', `http://${this.#hub}:2379`],
    ])
    this.#startInHub('haproxy', ['-db', '-f', this.#write('haproxy.cfg', this.#haproxy())])
    this.#write('ctl.yml', JSON.stringify({ scope: 'ipledger', etcd: { hosts: `${this.#hub}:2379` } }))
    for (const member of this.members) {
      this.#write(`${member.name}.yml`, JSON.stringify(this.#patroni(member, ttlSeconds)))
      this.startMember(member)
    }
  }

  /** However this process ends, a shell reads the end of its input, and nothing is left. */
  #endAllWithThisProcess(): ChildProcess {
    const script = `read -r _
      ip link del dev $0
      for space in a b c hub; do
        ip netns pids $0-$space | xargs --no-run-if-empty kill -KILL
        ip netns del $0-$space
      done
      rm --recursive --force "$1"`
    return spawn('/bin/sh', ['-c', script, this.#tag, this.#directory], {
      detached: true,
      stdio: ['pipe', 'ignore', 'ignore'],
    })
  }

  /** A bridge in a namespace of its own: no firewall of this machine sees what goes over it. */
  #connect(net: string): void {
    const hub = `${this.#tag}-hub`
    const ip = (...args: readonly string[]) => execFileSync('ip', args)
    ip('netns', 'add', hub)
    ip('-n', hub, 'link', 'add', 'dev', 'bridge', 'type', 'bridge')
    ip('-n', hub, 'addr', 'add', `${this.#hub}/24`, 'dev', 'bridge')
    ip('link', 'add', 'dev', this.#tag, 'type', 'veth', 'peer', 'name', 'services', 'netns', hub)
    ip('addr', 'add', `${net}.1/24`, 'dev', this.#tag)
    ip('link', 'set', 'dev', this.#tag, 'up')
    for (const { name, address, space } of this.members) {
      ip('netns', 'add', space)
      ip('link', 'add', 'dev', 'eth0', 'netns', space, 'type', 'veth', 'peer', 'name', name, 'netns', hub)
      ip('-n', space, 'addr', 'add', `${address}/24`, 'dev', 'eth0')
      for (const device of ['lo', 'eth0']) ip('-n', space, 'link', 'set', 'dev', device, 'up')
    }
    for (const port of ['services', ...this.members.map(({ name }) => name)])
      ip('-n', hub, 'link', 'set', 'dev', port, 'master', 'bridge', 'up')
    for (const device of ['lo', 'bridge']) ip('-n', hub, 'link', 'set', 'dev', device, 'up')
  }

  #patroni({ name, address }: Member, ttl: number) {
    const home = join(this.#directory, name)
    mkdirSync(home, { mode: 0o700 })
    const [uid, gid] = ['-u', '-g'].map((flag) => Number(execFileSync('id', [flag, 'postgres'])))
    chownSync(home, uid!, gid!)
    return {
      scope: 'ipledger',
      name,
      restapi: { listen: `${address}:8008`, connect_address: `${address}:8008` },
      etcd: { hosts: `${this.#hub}:2379` },
      bootstrap: {
        dcs: {
          ...{ ttl, loop_wait: 1, retry_timeout: 3, synchronous_mode: true, synchronous_mode_strict: true },
          postgresql: {
            use_pg_rewind: true,
            parameters: {
              max_connections: 200,
              shared_buffers: '64MB',
              min_wal_size: '64MB',
              // A standby finds no slot at a primary that is new, and tries again after 5 s. No commit is confirmed until then.
              wal_retrieve_retry_interval: '500ms',
            },
          },
        },
        initdb: [{ encoding: 'UTF8' }],
      },
      postgresql: {
        listen: `${address}:5432`,
        connect_address: `${address}:5432`,
        data_dir: join(home, 'data'),
        bin_dir: '/usr/lib/postgresql/15/bin',
        pgpass: join(home, 'pgpass'),
        authentication,
        pg_hba: ['all', 'replication'].map((what) => `host ${what} all 0.0.0.0/0 scram-sha-256`),
        parameters: { unix_socket_directories: home },
      },
    }
  }

  #haproxy(): string {
    const servers = this.members.map(({ name, address }) => `server ${name} ${address}:5432 check port 8008`)
    return `defaults
  mode tcp
  timeout connect 2s
  timeout client 1h
  timeout server 1h
listen primary
  bind ${this.#hub}:5000
  option httpchk GET /primary
  http-check expect status 200
  default-server inter 500ms fall 2 rise 1 on-marked-down shutdown-sessions
  ${servers.join('\n  ')}
`
  }

  #write(file: string, text: string): string {
    writeFileSync(join(this.#directory, file), text, { mode: 0o644 })
    return join(this.#directory, file)
  }

  #startInHub(program: string, args: readonly string[]): void {
    this.#spawn(`${this.#tag}-hub`, program, [program, ...args])
  }

  #spawn(space: string, log: string, command: readonly string[]): ChildProcess {
    const output = openSync(join(this.#directory, `${log}.log`), 'a')
    return spawn('ip', ['netns', 'exec', space, ...command], { stdio: ['ignore', output, output] })
  }

  startMember({ name, space }: Member): void {
    const user = ['setpriv', '--reuid=postgres', '--regid=postgres', '--clear-groups']
    const command = [...user, 'patroni', join(this.#directory, `${name}.yml`)]
    // `ip` and `setpriv` become the program.
    this.#patronis.set(name, this.#spawn(space, name, command))
  }

  /** A process beside a member, which a partition cuts off with it. */
  beside({ space }: Member, command: readonly string[], env: NodeJS.ProcessEnv): ChildProcess {
    return spawn('ip', ['netns', 'exec', space, ...command], { env, stdio: ['ignore', 'pipe', 'inherit'] })
  }

  /** Patroni and the processes of PostgreSQL. */
  signal({ space }: Member, signal: NodeJS.Signals): void {
    for (const pid of processesIn(space)) {
      try {
        process.kill(pid, signal)
      } catch {
        // A connection that has ended since.
      }
    }
  }

  /** Patroni and the postmaster. */
  kill({ name }: Member): void {
    const [postmaster] = readFileSync(join(this.#directory, name, 'data/postmaster.pid'), 'utf8').split('\n')
    for (const pid of [Number(postmaster), this.#patronis.get(name)!.pid!]) process.kill(pid, 'SIGKILL')
  }

  /** From everything else: the other members, etcd and the services. */
  async cut({ name }: Member, is: boolean): Promise<void> {
    await run('ip', ['-n', `${this.#tag}-hub`, 'link', 'set', 'dev', name, is ? 'down' : 'up'])
  }

  /** It is refused while a standby is not synchronous yet. */
  async switchover(): Promise<void> {
    const { name } = await this.primary()
    const options = ['-c', join(this.#directory, 'ctl.yml'), 'switchover', '--primary', name, '--force']
    const done = async () => {
      await run('patronictl', options).catch(() => {})
      return (await this.primary()).name !== name
    }
    await waitFor(done, { what: 'a switchover' })
  }

  /** By all hosts, and through HAProxy, which looks each half second. */
  async untilReached(): Promise<void> {
    for (const url of [this.url, this.proxyUrl]) {
      const asks = () => withClient(toPostgres(url), (admin) => admin.query('select 1'))
      await waitFor(asks, { what: 'the primary to be reached' })
    }
  }

  /** What Patroni lets all members do. */
  async configure(change: object): Promise<void> {
    const { address } = await this.primary()
    const body = JSON.stringify(change)
    await fetch(`http://${address}:8008/config`, { method: 'PATCH', body })
  }

  /** That holds the lock of etcd and takes writes. */
  async primary({ but }: { readonly but?: Member } = {}): Promise<Member> {
    return waitFor(
      () => Promise.any(this.members.filter((one) => one !== but).map((one) => this.#isPrimary(one))),
      { what: 'a primary', every: 50 },
    )
  }

  async untilDeposed(member: Member): Promise<void> {
    const isPrimary = () => this.#isPrimary(member).catch(() => null)
    await waitFor(async () => (await isPrimary()) === null, { what: `${member.name} to be deposed` })
  }

  async #isPrimary(member: Member): Promise<Member> {
    const signal = AbortSignal.timeout(1_000)
    const { ok } = await fetch(`http://${member.address}:8008/primary`, { signal })
    if (!ok) throw new Error(`${member.name} is not the primary`)
    return member
  }

  /** Three members of one timeline; a primary that waits for a standby, unless other roles are given. */
  async untilWhole(wanted = 'leader,replica,sync_standby'): Promise<void> {
    const isWhole = async () => {
      const { address } = await this.primary()
      const signal = AbortSignal.timeout(1_000)
      const seen = (await (await fetch(`http://${address}:8008/cluster`, { signal })).json()) as {
        members: readonly Seen[]
      }
      const roles = seen.members.map(({ role }) => role).toSorted()
      return (
        roles.join() === wanted &&
        seen.members.every(({ state }) => state === 'running' || state === 'streaming') &&
        new Set(seen.members.map(({ timeline }) => timeline)).size === 1
      )
    }
    await waitFor(isWhole, { what: 'a primary and two standbys', every: 100, timeout: 110_000 })
  }

  async stop(): Promise<void> {
    const ended = new Promise((resolve) => this.#guard.once('close', resolve))
    this.#guard.stdin!.end('done\n')
    await ended
  }
}

const toPostgres = (url: string) => url.replace(/ipledger$/, 'postgres')

function processesIn(space: string): readonly number[] {
  const lines = execFileSync('ip', ['netns', 'pids', space], { encoding: 'utf8' }).split('\n')
  return lines.filter((line) => line !== '').map(Number)
}
