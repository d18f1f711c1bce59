/**
 * The login roles of DESIGN §5.
 *
 *   ipledger_service   the ledger and its readers; owns nothing, may insert into and read `event`
 *   ipledger_jobs      graphile-worker; owns only its schema
 *   ipledger_auditor   people and dashboards; reads schema `ipledger_audit` and nothing else
 *
 * When DATABASE_URL logs in as an owner or superuser, these roles are created and the first two used in its place. Their passwords
 * are derived from the password in DATABASE_URL and the identity of the cluster, so that every process that was given
 * the same URL knows them and none is stored; what is sent to the server is a SCRAM verifier, which its statement log
 * may show. Without a password in DATABASE_URL (peer, trust) the roles get none and log in the same way.
 *
 * Roles belong to the whole cluster and have one password each, so databases of one cluster share them only if their
 * DATABASE_URLs name the same login. A role's comment says from which login its password follows. A start with another
 * login stops: a new password would shut out, at their next connection, the processes that use the role now. With the
 * same login, its password was changed, and the role's follows it; processes that were given the old one are shut out.
 * The auditor gets no password from us: it logs in once an operator has set one, and what the operator set stays.
 *
 * Time-outs and plan settings belong to the roles, not to sessions: PgBouncer keeps them, `set role` does not.
 */

import { createHmac, hash, pbkdf2Sync } from 'node:crypto'
import pg from 'pg'
import { StartRefused } from '../config.ts'
import type { Logger } from '../telemetry.ts'
import { ConnectFailed, connectUnchecked, readUrl, replaceLogin } from './connect.ts'

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

/**
 * A paused process must not hold a network's lock: the three time-outs. The rest pins plans by shape. Every statement
 * of the service reads by a key or pages along one, and statistics of its tables swing: a plan made while a table was
 * small or full of dead rows once took 22,000 commands/s to 300 (DESIGN §2).
 */
export const SERVICE_SETTINGS: Settings = {
  ...SESSION,
  search_path: 'ipledger',
  idle_in_transaction_session_timeout: '2s',
  lock_timeout: '3s',
  statement_timeout: '5s',
  enable_seqscan: 'off',
  enable_bitmapscan: 'off',
  enable_hashjoin: 'off',
  enable_mergejoin: 'off',
  enable_sort: 'off',
  enable_incremental_sort: 'off',
  plan_cache_mode: 'force_generic_plan',
  jit: 'off',
}

export const JOBS_SETTINGS: Settings = {
  ...SESSION,
  search_path: 'graphile_worker',
  idle_in_transaction_session_timeout: '60s',
  statement_timeout: '60s',
}

/** Typed by people, refreshed by dashboards: a forgotten session must not keep dead rows, nor a wide question the database. */
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

const TIMEOUTS = ['idle_in_transaction_session_timeout', 'lock_timeout', 'statement_timeout'] as const

export type Logins = Readonly<{ serviceUrl: string; jobsUrl: string }>

export type LoginKind = Readonly<{
  role: string
  /** Superuser, or owner of the database or of the schema. */
  administers: boolean
}>

/** What we log in as, and the login that its password follows from. */
type OwnLogin = Readonly<{ url: string; follows: string }>
/** `operators`: nobody logs in as it unless an operator lets somebody; `auditors`: once an operator set a password. */
type Login = OwnLogin | 'operators' | 'auditors'

type Wanted = Readonly<{ role: string; settings: Settings; login: Login }>

type RoleState = Readonly<{
  canLogin: boolean
  /** Null: nobody said, and whoever set a password was not ipledger. */
  follows: string | null
  /** That login is still there. */
  followed: boolean
  settings: ReadonlySet<string>
}>

const INSUFFICIENT_PRIVILEGE = '42501'
const WRONG_PASSWORD: ReadonlySet<string> = new Set(['28P01', '28000'])
const ROLE_ATTEMPTS = 5

/** What the login of this connection may do. */
export async function inspectLogin(client: pg.Client): Promise<LoginKind> {
  const { rows } = await client.query<LoginKind>(
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

/** The logins that belong to a DATABASE_URL; pure, so that a process that may not create roles finds them too. */
export function deriveLogins(databaseUrl: string, systemIdentifier: string): Logins {
  return {
    serviceUrl: loginUrl(databaseUrl, SERVICE_ROLE, systemIdentifier),
    jobsUrl: loginUrl(databaseUrl, JOBS_ROLE, systemIdentifier),
  }
}

/** Sixty-four bits, differs between clusters, stays the same in a replica and after failover. */
export async function readSystemIdentifier(client: pg.Client): Promise<string> {
  const { rows } = await client.query<{ identifier: string }>(
    'select system_identifier::text as identifier from pg_control_system()',
  )
  return rows[0]!.identifier
}

/**
 * Creates the roles and brings their settings up to date; changes nothing when nothing differs, and nothing when it
 * refuses: all of it is one transaction. With `keepService` the service's password is the operator's, who named the role
 * in DATABASE_URL.
 *
 * @throws StartRefused with the statements to run when this login may not, or when others use the roles already
 */
export async function ensureRoles(
  admin: pg.Client,
  databaseUrl: string,
  log: Logger,
  options: Readonly<{ keepService?: boolean }> = {},
): Promise<Logins> {
  const logins = deriveLogins(databaseUrl, await readSystemIdentifier(admin))
  const { user: follows } = readUrl(databaseUrl)
  const service: Login = options.keepService ? 'operators' : { url: logins.serviceUrl, follows }
  await ensureAll(
    admin,
    [
      { role: SERVICE_ROLE, settings: SERVICE_SETTINGS, login: service },
      { role: JOBS_ROLE, settings: JOBS_SETTINGS, login: { url: logins.jobsUrl, follows } },
      { role: AUDITOR_ROLE, settings: AUDITOR_SETTINGS, login: 'auditors' },
    ],
    log,
  )
  return options.keepService ? { ...logins, serviceUrl: databaseUrl } : logins
}

/**
 * The login the service writes with must not be able to rewrite history, and must not be able to hold a network's lock
 * for ever.
 *
 * @throws StartRefused
 */
export async function checkServiceLogin(service: pg.Client, log: Logger): Promise<void> {
  const { rows } = await service.query<{
    role: string
    superuser: boolean
    owned: string | null
    rewrites: boolean
    appends: boolean
    settings: Record<string, string>
  }>(
    `select current_user as role,
            (select rolsuper from pg_roles where rolname = current_user) as superuser,
            (select min(relname) from pg_class
              where relnamespace = to_regnamespace('ipledger') and pg_has_role(relowner, 'usage')) as owned,
            coalesce(has_table_privilege(event.oid, 'update, delete, truncate'), false) as rewrites,
            coalesce(has_schema_privilege(event.relnamespace, 'usage')
                     and has_table_privilege(event.oid, 'insert'), false) as appends,
            (select jsonb_object_agg(name, current_setting(name)) from unnest($1::text[]) as name) as settings
       from (select 1) as always
       left join pg_class as event
         on event.relname = 'event' and event.relnamespace = to_regnamespace('ipledger')`,
    [Object.keys(SERVICE_SETTINGS)],
  )
  const login = rows[0]!
  const role = pg.escapeIdentifier(login.role)
  const advice = `let DATABASE_URL log in as ${SERVICE_ROLE}, or as a role that was only granted it`
  if (login.superuser) {
    throw new StartRefused(`The service's role ${role} is a superuser and could rewrite the log: ${advice}.`)
  }
  if (login.owned !== null) {
    throw new StartRefused(
      `The service's role ${role} owns ipledger.${login.owned} and could rewrite the log: ${advice}.`,
    )
  }
  if (login.rewrites) {
    throw new StartRefused(
      `The service's role ${role} may change or delete events: revoke update, delete, truncate on ipledger.event from ${role}.`,
    )
  }
  if (!login.appends) {
    throw new StartRefused(
      `The service's role ${role} may not write events: grant ${SERVICE_ROLE} to ${role}.`,
    )
  }
  const endless = TIMEOUTS.filter((name) => /^0\D*$/.test(login.settings[name] ?? '0'))
  if (endless.length > 0) {
    throw new StartRefused(
      `The service's role ${role} has no ${endless.join(', ')}, so a paused process could hold a network's lock for ever. Run:\n` +
        endless.map((name) => `  ${alterSetting(login.role, name, SERVICE_SETTINGS[name]!)};`).join('\n'),
    )
  }
  const different = Object.entries(SERVICE_SETTINGS).filter(
    ([name, value]) =>
      !TIMEOUTS.some((timeout) => timeout === name) &&
      login.settings[name]?.toLowerCase() !== value.toLowerCase(),
  )
  if (different.length > 0) {
    log.warn(
      { run: different.map(([name, value]) => alterSetting(login.role, name, value)) },
      `role ${login.role} lacks settings the service was measured with`,
    )
  }
}

/**
 * Roles belong to the cluster: several starters, in several databases, may change the same row at once. And what a start
 * changed before it was refused would stay for all of them, so a refusal at the second role takes back the first.
 */
async function ensureAll(admin: pg.Client, wanted: readonly Wanted[], log: Logger): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      await admin.query('begin')
      const altered: string[] = []
      for (const one of wanted) if (await ensureRole(admin, one, log)) altered.push(one.role)
      await admin.query('commit')
      for (const role of altered) log.info({ role }, 'role created or brought up to date')
      return
    } catch (error) {
      // Where the connection is lost, that is what is told.
      await admin.query('rollback').catch(() => undefined)
      const state = error instanceof pg.DatabaseError ? error.code : undefined
      const collided = state === '42710' || state === '23505' || state === 'XX000'
      if (!collided || attempt === ROLE_ATTEMPTS) throw error
    }
  }
}

/** True if something was missing. */
async function ensureRole(
  admin: pg.Client,
  { role, settings, login }: Wanted,
  log: Logger,
): Promise<boolean> {
  const statements = await missing(admin, role, settings, login, log)
  if (statements.length === 0) return false
  const self = await currentRole(admin)
  try {
    for (const statement of statements) await admin.query(statement)
    return true
  } catch (error) {
    if (error instanceof pg.DatabaseError && error.code === INSUFFICIENT_PRIVILEGE)
      throw refuseRole(self, role, statements, error)
    throw error
  }
}

/** The statements that are still to run, in order. */
async function missing(
  admin: pg.Client,
  role: string,
  settings: Settings,
  login: Login,
  log: Logger,
): Promise<readonly string[]> {
  const name = pg.escapeIdentifier(role)
  const statements: string[] = []
  const state = await readRole(admin, role)
  const own = typeof login === 'string' ? undefined : login
  const password = own === undefined ? undefined : readUrl(own.url).password
  const secret = password === undefined ? '' : ` password '${scramVerifier(password)}'`
  const comment =
    login === 'auditors'
      ? AUDITOR
      : own === undefined || password === undefined
        ? null
        : FOLLOWS + own.follows
  const said = comment === null ? [] : [`comment on role ${name} is ${pg.escapeLiteral(comment)}`]
  if (state === undefined) {
    // An operator's own service login still needs the role to exist: migrations grant to it.
    const logsIn = login === 'operators' ? 'nologin' : 'login'
    statements.push(
      `create role ${name} ${logsIn} nosuperuser nocreatedb nocreaterole noreplication${secret}`,
      ...said,
    )
  } else if (own !== undefined && (!state.canLogin || !(await canLogIn(own.url)))) {
    if (state.canLogin && password !== undefined) requireOwn(role, state, own, log)
    statements.push(`alter role ${name} login${secret}`, ...said)
  }
  for (const [setting, value] of Object.entries(settings)) {
    if (!state?.settings.has(`${setting}=${value}`.toLowerCase())) {
      statements.push(alterSetting(role, setting, value))
    }
  }
  const { rows } = await admin.query<{ database: string; connects: boolean }>(
    `select current_database() as database,
            case when to_regrole($1) is null then has_database_privilege('public', current_database(), 'connect')
                 else has_database_privilege($1, current_database(), 'connect') end as connects`,
    [role],
  )
  if (!rows[0]!.connects) {
    statements.push(`grant connect on database ${pg.escapeIdentifier(rows[0]!.database)} to ${name}`)
  }
  return statements
}

const AUDITOR =
  'of ipledger; reads schema ipledger_audit and nothing else; has no password until an operator sets one'
/** A role's comment begins so. */
const FOLLOWS = 'of ipledger; its password follows from that of login '

/** Whose password it is may be replaced by us, since nobody else's start knows it. */
function requireOwn(role: string, { follows, followed }: RoleState, own: OwnLogin, log: Logger): void {
  if (follows === own.follows) {
    log.warn(
      { role, login: own.follows },
      'the password of DATABASE_URL was changed: restart all processes that were given the old one',
    )
    return
  }
  if (follows !== null && !followed) return
  const whose = follows === null ? 'that ipledger did not set' : `that follows from the login "${follows}"`
  throw new StartRefused(
    `Role "${role}" has a password ${whose}, not from "${own.follows}" of this DATABASE_URL. Roles belong to the whole ` +
      'server, all its databases, and a new password would shut out the processes that use this one: ' +
      `${follows === null ? '' : `let DATABASE_URL log in as "${follows}" here too, or `}give this database a server of its own. ` +
      `If nobody uses the role, run this and start again:\n  alter role ${pg.escapeIdentifier(role)} nologin;`,
  )
}

async function readRole(admin: pg.Client, role: string): Promise<RoleState | undefined> {
  const { rows } = await admin.query<{
    can_login: boolean
    follows: string | null
    followed: boolean
    settings: readonly string[]
  }>(
    `select r.rolcanlogin as can_login, coalesce(r.rolconfig, '{}') as settings, said.follows,
            exists (select from pg_roles f where f.rolname = said.follows) as followed
       from pg_roles r,
            lateral (select case when starts_with(shobj_description(r.oid, 'pg_authid'), $2)
                                 then substr(shobj_description(r.oid, 'pg_authid'), length($2) + 1) end as follows) said
      where r.rolname = $1`,
    [role, FOLLOWS],
  )
  const row = rows[0]
  if (row === undefined) return undefined
  return {
    canLogin: row.can_login,
    follows: row.follows,
    followed: row.followed,
    settings: new Set(row.settings.map((setting) => setting.toLowerCase())),
  }
}

async function canLogIn(url: string): Promise<boolean> {
  try {
    await (await connectUnchecked({ url, applicationName: 'ipledger roles' })).end()
    return true
  } catch (error) {
    const cause = error instanceof ConnectFailed ? error.cause : undefined
    if (cause instanceof pg.DatabaseError && WRONG_PASSWORD.has(cause.code ?? '')) return false
    throw error
  }
}

async function currentRole(client: pg.Client): Promise<string> {
  const { rows } = await client.query<{ role: string }>('select current_user as role')
  return rows[0]!.role
}

function refuseRole(self: string, role: string, statements: readonly string[], cause: unknown): StartRefused {
  return new StartRefused(
    `Role "${self}" may not set up role "${role}". Let a superuser run this once, then start again:\n` +
      statements.map((statement) => `  ${statement};`).join('\n'),
    { cause },
  )
}

function alterSetting(role: string, name: string, value: string): string {
  const list = name === 'search_path' ? pg.escapeIdentifier(value) : pg.escapeLiteral(value)
  return `alter role ${pg.escapeIdentifier(role)} set ${name} = ${list}`
}

function loginUrl(databaseUrl: string, role: string, systemIdentifier: string): string {
  const { password } = readUrl(databaseUrl)
  if (password === undefined || password === '') return replaceLogin(databaseUrl, { user: role })
  const derived = createHmac('sha256', password).update(`${role}:${systemIdentifier}`).digest('base64url')
  return replaceLogin(databaseUrl, { user: role, password: derived })
}

/** What PostgreSQL stores for a password (RFC 5803); the salt follows from the password, which is random enough. */
function scramVerifier(password: string): string {
  const iterations = 4096
  const salt = createHmac('sha256', password).update('salt').digest().subarray(0, 16)
  const salted = pbkdf2Sync(password, salt, iterations, 32, 'sha256')
  const key = (name: string): Buffer => createHmac('sha256', salted).update(name).digest()
  const stored = hash('sha256', key('Client Key'), 'base64')
  return `SCRAM-SHA-256$${iterations}:${salt.toString('base64')}$${stored}:${key('Server Key').toString('base64')}`
}
