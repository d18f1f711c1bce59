/**
 * The login roles of docs/deploying.md. The passwords of service and jobs follow from the password in DATABASE_URL and the identity
 * of the cluster, so every process with this URL knows them and none is stored; the server gets a SCRAM verifier. Without a
 * password (peer, trust) the roles get none.
 *
 * A role has one password for the whole cluster. If it is not ours, the start stops: a new one would shut out the processes
 * that use the role now.
 *
 * Time-outs belong to the roles, not to sessions: PgBouncer keeps them, `set role` does not. Rights: `db/audit/90_grants.sql`.
 */

import { createHmac, hash, pbkdf2Sync } from 'node:crypto'
import pg from 'pg'
import type { Logger } from 'pino'
import { StartRefused } from '../config.ts'
import { connectUnchecked, readUrl, replaceLogin } from './connect.ts'
import { ConnectionLost, INSUFFICIENT_PRIVILEGE, sqlState } from './connection-lost.ts'

export const SERVICE_ROLE = 'ipledger_service'
export const JOBS_ROLE = 'ipledger_jobs'
export const AUDITOR_ROLE = 'ipledger_auditor'

type Settings = Readonly<Record<string, string>>

const SESSION: Settings = {
  timezone: 'UTC',
  datestyle: 'ISO, MDY',
  client_encoding: 'UTF8',
  default_transaction_isolation: 'read committed',
  synchronous_commit: 'on',
}

/** A process that is paused or gone must not hold a network's lock. */
export const SERVICE_SETTINGS: Settings = {
  ...SESSION,
  search_path: 'ipledger',
  idle_in_transaction_session_timeout: '2s',
  lock_timeout: '3s',
  statement_timeout: '5s',
  // Only this one ends a sender that stops in the middle of a packet. Since PostgreSQL 17.
  transaction_timeout: '10s',
  // A host that is gone is noticed after 5 s.
  tcp_keepalives_idle: '2',
  tcp_keepalives_interval: '1',
  tcp_keepalives_count: '3',
}

export const JOBS_SETTINGS: Settings = {
  ...SESSION,
  search_path: 'graphile_worker',
  idle_in_transaction_session_timeout: '60s',
  statement_timeout: '60s',
}

/** A forgotten session must not keep dead rows; a long query must not load the database. */
export const AUDITOR_SETTINGS: Settings = {
  timezone: 'UTC',
  datestyle: 'ISO, MDY',
  search_path: 'ipledger_audit',
  default_transaction_read_only: 'on',
  idle_in_transaction_session_timeout: '60s',
  lock_timeout: '3s',
  statement_timeout: '30s',
  jit: 'off',
}

const TIMEOUTS = [
  'idle_in_transaction_session_timeout',
  'lock_timeout',
  'statement_timeout',
  'transaction_timeout',
]

export type Logins = { readonly serviceUrl: string; readonly jobsUrl: string }

type Statement = { readonly text: string; readonly mayRun: boolean }
/** `url`: how it logs in; undefined: an operator sets its password, and of the service also allows the login. */
type Wanted = { readonly role: string; readonly settings: Settings; readonly url: string | undefined }

const LARGE_OBJECT_WRITERS = [
  'lo_creat(integer)',
  'lo_create(oid)',
  'lo_from_bytea(oid, bytea)',
  'lo_put(oid, bigint, bytea)',
  'lo_truncate(integer, integer)',
  'lo_truncate64(integer, bigint)',
  'lo_unlink(oid)',
  'lowrite(integer, bytea)',
]

const WRONG_PASSWORD: ReadonlySet<string | undefined> = new Set(['28P01', '28000'])
/** Another starter changed the same role at the same time: duplicate role, duplicate key, tuple concurrently updated. */
const COLLIDED: ReadonlySet<string | undefined> = new Set(['42710', '23505', 'XX000'])
const ATTEMPTS = 5

/** `administers`: it is a superuser, or owns the database or the schema. */
export async function inspectLogin(client: pg.Client) {
  const { rows } = await client.query<{ readonly role: string; readonly administers: boolean }>(
    `select current_user as role,
            (r.rolsuper
             or pg_has_role(d.datdba, 'usage')
             or coalesce(pg_has_role((select nspowner from pg_namespace where nspname = 'ipledger'), 'usage'), false)
            ) as administers
       from pg_roles r, pg_database d
      where r.rolname = current_user and d.datname = current_database()`,
  )
  return rows[0]!
}

/** The logins that follow from a DATABASE_URL, also for a process that may not create roles. */
export function deriveLogins(databaseUrl: string, systemIdentifier: string): Logins {
  const { password: secret } = readUrl(databaseUrl)
  const login = (user: string) => {
    if (!secret) return replaceLogin(databaseUrl, { user })
    const password = createHmac('sha256', secret).update(`${user}:${systemIdentifier}`).digest('base64url')
    return replaceLogin(databaseUrl, { user, password })
  }
  return { serviceUrl: login(SERVICE_ROLE), jobsUrl: login(JOBS_ROLE) }
}

/** Differs between clusters; the same in a replica and after failover. */
export async function readSystemIdentifier(client: pg.Client): Promise<string> {
  const { rows } = await client.query<{ identifier: string }>(
    'select system_identifier::text as identifier from pg_control_system()',
  )
  return rows[0]!.identifier
}

/**
 * Creates the roles and brings their settings up to date, in one transaction. With `keepService` the service logs in as
 * DATABASE_URL says.
 *
 * @throws StartRefused with the statements to run when this login may not, or when others use the roles already
 */
export async function ensureRoles(
  admin: pg.Client,
  databaseUrl: string,
  log: Logger,
  keepService = false,
): Promise<Logins> {
  const logins = deriveLogins(databaseUrl, await readSystemIdentifier(admin))
  // DATABASE_URL names the service's role itself, with its password, or a role that was granted it.
  const kept = readUrl(databaseUrl).user === SERVICE_ROLE ? databaseUrl : undefined
  const wanted: readonly Wanted[] = [
    { role: SERVICE_ROLE, settings: SERVICE_SETTINGS, url: keepService ? kept : logins.serviceUrl },
    { role: JOBS_ROLE, settings: JOBS_SETTINGS, url: logins.jobsUrl },
    { role: AUDITOR_ROLE, settings: AUDITOR_SETTINGS, url: undefined },
  ]
  for (let attempt = 1; ; attempt++) {
    try {
      await admin.query('begin')
      const statements: Statement[] = []
      for (const one of wanted)
        for (const text of await missing(admin, one)) statements.push({ text, mayRun: true })
      await setUp(admin, [...statements, ...(await revocations(admin))])
      await admin.query('commit')
      if (statements.length > 0)
        log.info({ statements: statements.length }, 'roles created or brought up to date')
      return keepService ? { ...logins, serviceUrl: databaseUrl } : logins
    } catch (error) {
      // After a broken connection, the first error says so.
      await admin.query('rollback').catch(() => {})
      if (!COLLIDED.has(sqlState(error)) || attempt === ATTEMPTS) throw error
    }
  }
}

/**
 * The service's login must not be able to rewrite the log or to hold a network's lock for ever. A database without
 * tables is checked for the rest.
 *
 * @throws StartRefused
 */
export async function checkServiceLogin(service: pg.Client): Promise<void> {
  const { rows } = await service.query<{
    role: string
    superuser: boolean
    owned: string | null
    rewrites: boolean
    appends: boolean
    /** Null: this server does not have it. */
    settings: Readonly<Record<string, string | null>>
  }>(
    `select current_user as role,
            (select rolsuper from pg_roles where rolname = current_user) as superuser,
            (select min(relname) from pg_class
              where relnamespace = to_regnamespace('ipledger') and pg_has_role(relowner, 'usage')) as owned,
            coalesce(has_table_privilege(event.oid, 'update, delete, truncate'), false) as rewrites,
            coalesce(has_schema_privilege(event.relnamespace, 'usage')
                     and has_table_privilege(event.oid, 'insert'), event.oid is null) as appends,
            (select jsonb_object_agg(name, current_setting(name, true)) from unnest($1::text[]) as name) as settings
       from (select 1) as always
       left join pg_class as event
         on event.relname = 'event' and event.relnamespace = to_regnamespace('ipledger')`,
    [TIMEOUTS],
  )
  const { superuser, owned, rewrites, appends, settings, ...login } = rows[0]!
  const role = pg.escapeIdentifier(login.role)
  const refuse = (what: string): never => {
    throw new StartRefused(`The service's role ${role} ${what}`)
  }
  const advice = `let DATABASE_URL log in as ${SERVICE_ROLE}, or as a role that was only granted it`
  if (superuser) refuse(`is a superuser and could rewrite the log: ${advice}`)
  if (owned !== null) refuse(`owns ipledger.${owned} and could rewrite the log: ${advice}`)
  const endless = TIMEOUTS.filter((name) => /^0\D*$/.test(settings[name] ?? ''))
  const checks: readonly (readonly [isWrong: boolean, what: string, statements: readonly string[]])[] = [
    [
      rewrites,
      'may change or delete events',
      [`revoke update, delete, truncate on ipledger.event from ${role}`],
    ],
    [!appends, 'may not write events', [`grant ${SERVICE_ROLE} to ${role}`]],
    [
      endless.length > 0,
      `has no ${endless.join(', ')}, so a paused process could hold a network's lock for ever`,
      endless.map((name) => alterSetting(login.role, name, SERVICE_SETTINGS[name]!)),
    ],
  ]
  const wrong = checks.filter(([isWrong]) => isWrong)
  if (wrong.length === 0) return
  const what = `${wrong.map(([, one]) => one).join('; ')}. Let an administrator run this, then start again:`
  const statements = wrong.flatMap(([, , needed]) => needed)
  refuse(toRun(what, statements))
}

async function setUp(admin: pg.Client, statements: readonly Statement[]): Promise<void> {
  try {
    for (const { text, mayRun } of statements) if (mayRun) await admin.query(text)
  } catch (error) {
    if (sqlState(error) !== INSUFFICIENT_PRIVILEGE) throw error
    const what = `Role "${admin.user}" may not set up the roles of ipledger. Let a superuser run this once in database "${admin.database}", then start again:`
    const all = statements.map(({ text }) => text)
    throw new StartRefused(toRun(what, all), { cause: error })
  }
}

/**
 * By default every role may write temporary tables and large objects. The database's owner can revoke the first, and only a
 * superuser the second: without one, as in many clouds, ipledger starts all the same. At each start, because a restored dump
 * grants them again.
 */
async function revocations(admin: pg.Client): Promise<readonly Statement[]> {
  const { rows } = await admin.query<Statement>(
    `select format('revoke temporary on database %I from public', d.datname) as text, pg_has_role(d.datdba, 'usage') as "mayRun"
       from pg_database d where d.datname = current_database() and has_database_privilege('public', d.oid, 'temporary')
     union all
     select 'revoke execute on function ' || string_agg(f, ', ') || ' from public',
            (select rolsuper from pg_roles where rolname = current_user)
       from unnest($1::text[]) as f where has_function_privilege('public', f, 'execute') having count(*) > 0`,
    [LARGE_OBJECT_WRITERS],
  )
  return rows
}

function toRun(what: string, statements: readonly string[]): string {
  return [what, ...statements.map((statement) => `  ${statement};`)].join('\n')
}

/** The statements that are still to run, in order. */
async function missing(admin: pg.Client, { role, settings, url }: Wanted): Promise<readonly string[]> {
  const { rows } = await admin.query<{
    present: boolean
    can_login: boolean | null
    settings: readonly string[] | null
    known: readonly string[]
    database: string
    connects: boolean
  }>(
    `select r.oid is not null as present, r.rolcanlogin as can_login, r.rolconfig as settings,
            (select array_agg(lower(name)) from pg_settings where lower(name) = any ($2)) as known,
            current_database() as database,
            has_database_privilege(coalesce(r.rolname, 'public'), current_database(), 'connect') as connects
       from (select $1::name as name) as wanted left join pg_roles r on r.rolname = wanted.name`,
    [role, Object.keys(settings)],
  )
  const { present, can_login: canLogin, settings: set, known, database, connects } = rows[0]!
  const name = pg.escapeIdentifier(role)
  const password = url === undefined ? undefined : readUrl(url).password
  const secret = password === undefined ? '' : ` password '${scramVerifier(password)}'`
  const statements: string[] = []
  if (!present) {
    // Tables are granted to the role, so it must exist even if another login is used.
    const logsIn = url === undefined && role === SERVICE_ROLE ? 'nologin' : 'login'
    statements.push(
      `create role ${name} ${logsIn} nosuperuser nocreatedb nocreaterole noreplication${secret}`,
    )
  } else if (url !== undefined && !canLogin) {
    statements.push(`alter role ${name} login${secret}`)
  } else if (url !== undefined && !(await canLogIn(url))) {
    throw new StartRefused(
      `Role "${role}" has another password than the one that follows from this DATABASE_URL. Roles belong to the whole ` +
        'server, all its databases, and a new password would shut out the processes that use this one: log in as the ' +
        'other databases do, or give this one a server of its own. If the role is not in use, or the password in ' +
        `DATABASE_URL was changed, run this and start again:\n  alter role ${name} nologin;`,
    )
  }
  const already = new Set(set?.map((setting) => setting.toLowerCase()))
  for (const [setting, value] of Object.entries(settings)) {
    // `known`: an older server lacks transaction_timeout.
    if (known.includes(setting) && !already.has(`${setting}=${value}`.toLowerCase())) {
      statements.push(alterSetting(role, setting, value))
    }
  }
  if (!connects) statements.push(`grant connect on database ${pg.escapeIdentifier(database)} to ${name}`)
  return statements
}

async function canLogIn(url: string): Promise<boolean> {
  try {
    await (await connectUnchecked({ url, applicationName: 'ipledger roles' })).end()
    return true
  } catch (error) {
    if (error instanceof ConnectionLost && WRONG_PASSWORD.has(sqlState(error.cause))) return false
    throw error
  }
}

function alterSetting(role: string, name: string, value: string): string {
  const list = name === 'search_path' ? pg.escapeIdentifier(value) : pg.escapeLiteral(value)
  return `alter role ${pg.escapeIdentifier(role)} set ${name} = ${list}`
}

/** As PostgreSQL stores a password (RFC 5803); the salt follows from the password, which is random enough. */
function scramVerifier(password: string): string {
  const iterations = 4096
  const salt = createHmac('sha256', password).update('salt').digest().subarray(0, 16)
  const salted = pbkdf2Sync(password, salt, iterations, 32, 'sha256')
  const key = (name: string): Buffer => createHmac('sha256', salted).update(name).digest()
  const stored = hash('sha256', key('Client Key'), 'base64')
  return `SCRAM-SHA-256$${iterations}:${salt.toString('base64')}$${stored}:${key('Server Key').toString('base64')}`
}
