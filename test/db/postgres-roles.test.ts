import { pino } from 'pino'
import { afterAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { StartRefused } from '../../src/config.ts'
import { readUrl, replaceLogin } from '../../src/postgres/connect.ts'
import { openDatabase } from '../../src/postgres/database.ts'
import {
  AUDITOR_SETTINGS,
  checkServiceLogin,
  deriveLogins,
  ensureRoles,
  JOBS_SETTINGS,
  SERVICE_SETTINGS,
} from '../../src/postgres/roles.ts'
import { withClient } from '../support/database.ts'
import { startTestServer } from '../support/server.ts'

const log = pino({ level: 'silent' })
// Roles belong to the whole server, so these tests have one of their own.
const server = await startTestServer()
afterAll(() => server.stop())

const query = (url: string, sql: string) => withClient(url, async (client) => (await client.query(sql)).rows)
const asSuperuser = (...statements: readonly string[]): Promise<void> =>
  withClient(server.url('postgres'), async (admin) => {
    for (const statement of statements) await admin.query(statement)
  })
const open = (databaseUrl: string, databaseAdminUrl?: string) =>
  openDatabase({ databaseUrl, databaseAdminUrl, directory: '/nonexistent' }, { log, embedded: 'own' })
const refusalOf = (url: string): Promise<string> =>
  open(url).then(
    () => 'opened',
    (error: unknown) => (error instanceof StartRefused ? error.message : `no refusal: ${error}`),
  )

await asSuperuser('create database ledger')
const adminUrl = server.url('ledger')
const database = await open(adminUrl)

const version = (await query(adminUrl, `select current_setting('server_version_num')::int as n`))[0]
  .n as number
const hasTransactionTimeout = version >= 170_000

/** The roles as a start without any finds them, then again as the other tests have them. */
async function forgetPasswords(): Promise<void> {
  await asSuperuser('alter role ipledger_service nologin', 'alter role ipledger_jobs nologin')
}
async function giveBack(): Promise<void> {
  await forgetPasswords()
  await withClient(adminUrl, (admin) => ensureRoles(admin, adminUrl, log))
}

describe('the roles an administrator gets', () => {
  test('have their settings as roles, where PgBouncer keeps them', async () => {
    const rows = await query(
      adminUrl,
      `select r.rolname as role, s.setconfig as settings
         from pg_db_role_setting s join pg_roles r on r.oid = s.setrole where s.setdatabase = 0`,
    )
    const settings = new Map(rows.map((row) => [row.role, row.settings.sort()]))
    const wanted = (all: Readonly<Record<string, string>>) =>
      Object.entries(all)
        .filter(([name]) => name !== 'transaction_timeout' || hasTransactionTimeout)
        .map(([name, value]) => `${{ timezone: 'TimeZone', datestyle: 'DateStyle' }[name] ?? name}=${value}`)
        .sort()
    expect(settings.get('ipledger_service')).toEqual(wanted(SERVICE_SETTINGS))
    expect(settings.get('ipledger_jobs')).toEqual(wanted(JOBS_SETTINGS))
    expect(settings.get('ipledger_auditor')).toEqual(wanted(AUDITOR_SETTINGS))
  })

  test('are the same for every process with the same URL, also when six set them up at once', async () => {
    await asSuperuser('alter role ipledger_service reset all', 'alter role ipledger_jobs reset all')
    const again = await Promise.all(
      Array.from({ length: 6 }, () => withClient(adminUrl, (admin) => ensureRoles(admin, adminUrl, log))),
    )
    for (const logins of again) {
      expect(logins).toEqual({ serviceUrl: database.serviceUrl, jobsUrl: database.jobsUrl })
    }
    const service = (identifier: string) => deriveLogins('postgresql://o:secret@h/d', identifier).serviceUrl
    expect(service('7')).not.toEqual(service('8'))
    expect(readUrl(deriveLogins('postgresql://o@h/d', '7').serviceUrl).password).toBeUndefined()
  })

  test('get a setting back that somebody changed', async () => {
    await asSuperuser(`alter role ipledger_jobs set statement_timeout = '1h'`)
    await withClient(adminUrl, (admin) => ensureRoles(admin, adminUrl, log))
    expect(await query(database.jobsUrl, 'show statement_timeout')).toEqual([{ statement_timeout: '1min' }])
  })

  test('leave the password of the auditor to the operator', async () => {
    const login = replaceLogin(adminUrl, { user: 'ipledger_auditor', password: 'chosen' })
    await expect(query(login, 'select 1')).rejects.toThrow('password authentication failed')
    await asSuperuser(`alter role ipledger_auditor password 'chosen'`)
    await open(adminUrl)
    expect(await query(login, 'select 1::int as one')).toEqual([{ one: 1 }])
  })

  test('end a transaction that idles, or whose sender stops, and never hold a lock for ever', async () => {
    await withClient(database.serviceUrl, async (service) => {
      const { rows } = await service.query(
        `select string_agg(name || '=' || current_setting(name, true), ' ') as timeouts
           from unnest(array['idle_in_transaction_session_timeout', 'lock_timeout', 'statement_timeout', 'transaction_timeout']) as name`,
      )
      expect(rows[0].timeouts).toBe(
        `idle_in_transaction_session_timeout=2s lock_timeout=3s statement_timeout=5s${hasTransactionTimeout ? ' transaction_timeout=10s' : ''}`,
      )
      const gone = new Promise((resolve) => service.once('end', resolve))
      await service.query('begin')
      await gone
    })
  })
})

describe('two databases in one server', () => {
  beforeEach(async () => {
    await asSuperuser(
      `create role ann login password 'of ann' superuser`,
      `create role bob login password 'of bob' superuser`,
      'create database prod owner ann',
      'create database staging owner bob',
    )
    await forgetPasswords()
    return async () => {
      await asSuperuser('drop database prod with (force)', 'drop database staging with (force)')
      await asSuperuser('drop role ann', 'drop role bob')
      await giveBack()
    }
  })
  const as = (user: string, name: string, password = `of ${user}`) =>
    replaceLogin(server.url(name), { user, password })
  const takenFrom = (role: string) =>
    `Role "${role}" has another password than the one that follows from this DATABASE_URL. Roles belong to the whole server`

  test('with one login for both share the roles', async () => {
    const prod = await open(as('ann', 'prod'))
    const staging = await open(as('ann', 'staging'))
    expect(readUrl(staging.serviceUrl).password).toBe(readUrl(prod.serviceUrl).password)
    await query(prod.serviceUrl, 'select 1')
  })

  test('with other logins: the second start stops, changes nothing, and says what to do', async () => {
    const prod = await open(as('ann', 'prod'))
    // The jobs' role is ann's, the service's as an operator makes it who keeps the owner's password.
    await asSuperuser('alter role ipledger_service nologin')
    const roles = () =>
      query(
        server.url('postgres'),
        `select r.rolname, r.rolcanlogin, a.rolpassword, r.rolconfig
           from pg_roles r join pg_authid a on a.oid = r.oid where r.rolname like 'ipledger%' order by 1`,
      )
    const before = await roles()
    const refusal = await refusalOf(as('bob', 'staging'))
    expect(refusal).toContain(takenFrom('ipledger_jobs'))
    expect(await roles()).toEqual(before)
    await query(prod.jobsUrl, 'select 1')
    await asSuperuser(refusal.split('\n').at(-1)!)
    await open(as('bob', 'staging'))
  })

  test('the password of the login was changed: the start says what to do', async () => {
    await open(as('ann', 'prod'))
    await asSuperuser(`alter role ann password 'new'`)
    expect(await refusalOf(as('ann', 'prod', 'new'))).toContain(takenFrom('ipledger_service'))
    await forgetPasswords()
    await query((await open(as('ann', 'prod', 'new'))).serviceUrl, 'select 1')
  })
})

test('an owner who may not set up the roles is told the statements, which are enough', async () => {
  await asSuperuser(`create role owner login password 'own'`, 'create database owned owner owner')
  await forgetPasswords()
  await asSuperuser('alter role ipledger_auditor reset lock_timeout')
  onTestFinished(async () => {
    await asSuperuser('drop database owned with (force)', 'drop role owner')
    await giveBack()
  })
  const url = replaceLogin(server.url('owned'), { user: 'owner', password: 'own' })
  const refusal = await refusalOf(url)
  expect(refusal).toContain(
    'Role "owner" may not set up the roles of ipledger. Let a superuser run this once in database "owned", then start again:',
  )
  expect(refusal).not.toContain("'own'")
  const statements = refusal.split('\n').filter((line) => line.startsWith('  '))
  expect(statements.map((line) => line.replace(/SCRAM.*'/, "…'"))).toEqual([
    `  alter role "ipledger_service" login password '…';`,
    `  alter role "ipledger_jobs" login password '…';`,
    `  alter role "ipledger_auditor" set lock_timeout = '3s';`,
    '  revoke temporary on database owned from public;',
    expect.stringMatching(/^ {2}revoke execute on function lo_creat\(integer\), .* from public;$/),
  ])
  await withClient(server.url('owned'), async (superuser) => {
    for (const statement of statements) await superuser.query(statement)
  })
  await open(url)
  const again = await open(url)
  expect(await query(again.serviceUrl, 'select current_user as role')).toEqual([{ role: 'ipledger_service' }])
})

test('the role of the service gets the password that an operator chose, and starts without the owner', async () => {
  await asSuperuser('create database chosen')
  await forgetPasswords()
  onTestFinished(async () => {
    await asSuperuser('drop database chosen with (force)')
    await giveBack()
  })
  const url = replaceLogin(server.url('chosen'), { user: 'ipledger_service', password: 'of my own' })
  const made = await open(url, server.url('chosen'))
  expect(made.serviceUrl).toBe(url)
  expect(await open(url)).toMatchObject({ serviceUrl: url, jobsUrl: made.jobsUrl, adminUrl: undefined })
})

test('what a restored database lets everybody write is revoked by the next start', async () => {
  await query(
    adminUrl,
    'grant temporary on database ledger to public; grant execute on function lo_create(oid) to public',
  )
  await open(adminUrl)
  const writes = `select has_database_privilege('ipledger_auditor', current_database(), 'temporary') as temporary,
                         has_function_privilege('ipledger_auditor', 'lo_create(oid)', 'execute') as objects`
  expect(await query(adminUrl, writes)).toEqual([{ temporary: false, objects: false }])
})

describe('a login that is not an administrator is used as it is, and checked', () => {
  async function role(name: string, how: string): Promise<string> {
    await asSuperuser(`create role ${name} login password 'secret' ${how}`)
    onTestFinished(async () => {
      await query(adminUrl, `drop owned by ${name}`)
      await asSuperuser(`drop role ${name}`)
    })
    return replaceLogin(adminUrl, { user: name, password: 'secret' })
  }
  const check = (url: string) => withClient(url, checkServiceLogin)

  test('granted the service role, with time-outs', async () => {
    const url = await role('app', 'in role ipledger_service')
    for (const [name, value] of Object.entries(SERVICE_SETTINGS)) {
      if (name !== 'transaction_timeout' || hasTransactionTimeout)
        await asSuperuser(`alter role app set ${name} = ${name === 'search_path' ? value : `'${value}'`}`)
    }
    await forgetPasswords()
    onTestFinished(giveBack)
    const opened = await open(url, adminUrl)
    expect(opened.serviceUrl).toBe(url)
    // Without the administrator, the same logins are found.
    expect(await open(url)).toMatchObject({ serviceUrl: url, jobsUrl: opened.jobsUrl, adminUrl: undefined })
    await giveBack()
    expect(await refusalOf(url)).toContain('Cannot log in as "ipledger_jobs": run "ipledger migrate"')
  })

  test('without time-outs', async () => {
    const url = await role('patient', 'in role ipledger_service')
    await asSuperuser(`alter role patient set lock_timeout = '1s'`)
    await expect(check(url)).rejects.toThrow(
      `has no idle_in_transaction_session_timeout, statement_timeout${hasTransactionTimeout ? ', transaction_timeout' : ''}, ` +
        `so a paused process could hold a network's lock for ever. Let an administrator run this, then start again:\n` +
        `  alter role "patient" set idle_in_transaction_session_timeout = '2s';`,
    )
  })

  test('that may rewrite the log', async () => {
    const url = await role('writer', 'in role ipledger_service')
    for (const privilege of ['update', 'delete', 'truncate']) {
      await query(adminUrl, `grant ${privilege} on ipledger.event to writer`)
      await expect(check(url)).rejects.toThrow(
        /may change or delete events.*\n {2}revoke update, delete, truncate/s,
      )
      await query(adminUrl, `revoke ${privilege} on ipledger.event from writer`)
    }
  })

  test('all that it lacks is asked for at once, and is enough', async () => {
    const url = await role('bare', '')
    const refusal = await check(url).then(String, String)
    const statements = refusal.split('\n').filter((line) => line.startsWith('  '))
    expect(statements).toHaveLength(hasTransactionTimeout ? 5 : 4)
    await asSuperuser(...statements.map((statement) => statement.replace(/;$/, '')))
    await check(url)
  })

  test('that may not write it, that owns a table, a superuser', async () => {
    await expect(check(await role('reader', ''))).rejects.toThrow('grant ipledger_service to "reader"')
    await expect(check(adminUrl)).rejects.toThrow('is a superuser and could rewrite the log')
    const url = await role('owning', 'in role ipledger_service')
    await query(adminUrl, 'create table ipledger.mine (id int primary key)')
    await query(adminUrl, 'alter table ipledger.mine owner to owning')
    await expect(check(url)).rejects.toThrow('owns ipledger.mine')
  })

  test('on a database nobody migrated', async () => {
    await asSuperuser('create database unmigrated')
    const url = new URL('/unmigrated', database.serviceUrl).href
    expect(await refusalOf(url)).toContain('run "ipledger migrate"')
  })
})
