import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { StartRefused } from '../../src/config.ts'
import { connectUnchecked, readUrl, replaceDatabase, replaceLogin } from '../../src/postgres/connect.ts'
import { openDatabase } from '../../src/postgres/database.ts'
import {
  AUDITOR_SETTINGS,
  checkServiceLogin,
  deriveLogins,
  ensureRoles,
  JOBS_SETTINGS,
  SERVICE_SETTINGS,
} from '../../src/postgres/roles.ts'
import { createLogger, type Logger } from '../../src/telemetry.ts'
import { withClient } from '../support/database.ts'
import { startTestServer } from '../support/server.ts'

const log = createLogger('silent')
// Roles belong to the whole server, so these tests have one of their own.
const server = await startTestServer()
afterAll(() => server.stop())

const asSuperuser = (...statements: readonly string[]): Promise<void> =>
  withClient(server.url('postgres'), async (admin) => {
    for (const statement of statements) await admin.query(statement)
  })

const open = (databaseUrl: string, databaseAdminUrl?: string) =>
  openDatabase({ databaseUrl, databaseAdminUrl, directory: '/nonexistent' }, { log, embedded: 'own' })

await asSuperuser('create database ledger')
const database = { ...(await open(server.url('ledger'))), adminUrl: server.url('ledger') }

async function role(name: string, how: string): Promise<string> {
  await asSuperuser(`create role ${name} login password 'secret' ${how}`)
  onTestFinished(async () => {
    await withClient(database.adminUrl, (admin) => admin.query(`drop owned by ${name}`))
    await asSuperuser(`drop role ${name}`)
  })
  return replaceLogin(database.adminUrl, { user: name, password: 'secret' })
}

describe('the roles an administrator gets', () => {
  test('have their settings as roles, where PgBouncer keeps them', async () => {
    await withClient(database.adminUrl, async (admin) => {
      const { rows } = await admin.query<{ role: string; settings: string[] }>(
        `select r.rolname as role, s.setconfig as settings
           from pg_db_role_setting s join pg_roles r on r.oid = s.setrole
          where s.setdatabase = 0 and r.rolname like 'ipledger\\_%' and r.rolname in ('ipledger_service', 'ipledger_jobs', 'ipledger_auditor')`,
      )
      const settings = new Map(
        rows.map((row) => [row.role, row.settings.map((one) => one.toLowerCase()).sort()]),
      )
      const wanted = (all: Readonly<Record<string, string>>) =>
        Object.entries(all)
          .map(([name, value]) => `${name}=${value}`.toLowerCase())
          .sort()
      expect(settings.get('ipledger_service')).toEqual(wanted(SERVICE_SETTINGS))
      expect(settings.get('ipledger_jobs')).toEqual(wanted(JOBS_SETTINGS))
      expect(settings.get('ipledger_auditor')).toEqual(wanted(AUDITOR_SETTINGS))
    })
  })

  test('apply to a session that logs in', async () => {
    await withClient(database.serviceUrl, async (service) => {
      const { rows } = await service.query(
        `select current_setting('idle_in_transaction_session_timeout') as idle, current_setting('lock_timeout') as lock,
                current_setting('statement_timeout') as statement, current_setting('enable_seqscan') as seqscan,
                current_setting('plan_cache_mode') as plans, current_setting('TimeZone') as zone`,
      )
      expect(rows).toEqual([
        { idle: '2s', lock: '3s', statement: '5s', seqscan: 'off', plans: 'force_generic_plan', zone: 'UTC' },
      ])
    })
  })

  test('own nothing and administer nothing', async () => {
    await withClient(database.adminUrl, async (admin) => {
      const { rows } = await admin.query(
        `select count(*) filter (where c.relowner = 'ipledger_service'::regrole) as service,
                count(*) filter (where c.relowner = 'ipledger_jobs'::regrole
                                   and n.nspname not in ('graphile_worker', 'pg_toast')) as jobs
           from pg_class c join pg_namespace n on n.oid = c.relnamespace`,
      )
      expect(rows).toEqual([{ service: 0, jobs: 0 }])
      const flags = await admin.query(
        `select rolsuper or rolcreatedb or rolcreaterole or rolreplication or rolbypassrls as any_power, rolcanlogin
           from pg_roles where rolname in ('ipledger_service', 'ipledger_jobs')`,
      )
      expect(flags.rows).toEqual([
        { any_power: false, rolcanlogin: true },
        { any_power: false, rolcanlogin: true },
      ])
    })
  })

  test('are the same for every process with the same URL, also when six set them up at once', async () => {
    await asSuperuser('alter role ipledger_service reset all', 'alter role ipledger_jobs reset all')
    const again = await Promise.all(
      Array.from({ length: 6 }, () =>
        withClient(database.adminUrl, (admin) => ensureRoles(admin, database.adminUrl, log)),
      ),
    )
    for (const logins of again) {
      expect(logins).toEqual({ serviceUrl: database.serviceUrl, jobsUrl: database.jobsUrl })
    }
    expect(deriveLogins('postgresql://o:secret@h/d', '7')).not.toEqual(
      deriveLogins('postgresql://o:secret@h/d', '8'),
    )
    expect(readUrl(deriveLogins('postgresql://o@h/d', '7').serviceUrl).password).toBeUndefined()
  })

  test('get a setting back that somebody changed', async () => {
    await asSuperuser(
      `alter role ipledger_jobs set statement_timeout = '1h'`,
      `alter role ipledger_jobs set jit = off`,
    )
    await withClient(database.adminUrl, (admin) => ensureRoles(admin, database.adminUrl, log))
    await withClient(database.jobsUrl, async (jobs) => {
      const { rows } = await jobs.query(`select current_setting('statement_timeout') as timeout`)
      expect(rows).toEqual([{ timeout: '1min' }])
    })
    await asSuperuser('alter role ipledger_jobs reset jit')
  })
})

describe('the auditor', () => {
  const login = (password: string) => replaceLogin(database.adminUrl, { user: 'ipledger_auditor', password })
  const logsIn = async (password: string) => {
    const client = await connectUnchecked({ url: login(password), applicationName: 'test' }).catch(() => null)
    await client?.end()
    return client !== null
  }

  test('has no password until an operator sets one, and keeps it', async () => {
    await withClient(database.adminUrl, async (admin) => {
      const { rows } = await admin.query(
        `select rolpassword, rolcanlogin, shobj_description(oid, 'pg_authid') as said from pg_authid where rolname = 'ipledger_auditor'`,
      )
      expect(rows).toEqual([
        {
          rolpassword: null,
          rolcanlogin: true,
          said: 'of ipledger; reads schema ipledger_audit and nothing else; has no password until an operator sets one',
        },
      ])
    })
    expect(await logsIn('')).toBe(false)
    await asSuperuser(`alter role ipledger_auditor password 'chosen'`)
    await open(server.url('ledger'))
    expect(await logsIn('chosen')).toBe(true)
    // Whoever shut it out meant it.
    await asSuperuser('alter role ipledger_auditor nologin')
    await open(server.url('ledger'))
    expect(await logsIn('chosen')).toBe(false)
    await asSuperuser('alter role ipledger_auditor login password null')
  })

  test('is made by who may, or by the statements that are told', async () => {
    await asSuperuser(
      `create role ipledger_small_owner login password 'own'`,
      'create database small owner ipledger_small_owner',
    )
    onTestFinished(async () => {
      await asSuperuser('drop database small with (force)', 'drop role ipledger_small_owner')
      await giveBack()
    })
    // As a release before it left the server; only databases of this test are in it.
    await withClient(database.adminUrl, (admin) => admin.query('drop owned by ipledger_auditor'))
    await asSuperuser('drop owned by ipledger_auditor', 'drop role ipledger_auditor')
    await asSuperuser('alter role ipledger_service nologin', 'alter role ipledger_jobs nologin')
    const url = replaceLogin(server.url('small'), { user: 'ipledger_small_owner', password: 'own' })
    for (const role of ['ipledger_service', 'ipledger_jobs', 'ipledger_auditor']) {
      const refusal = await open(url).then(
        () => '',
        (error: Error) => error.message,
      )
      expect(refusal).toContain(
        `Role "ipledger_small_owner" may not set up role "${role}". Let a superuser run this once`,
      )
      const statements = refusal.split('\n').filter((line) => line.startsWith('  '))
      if (role === 'ipledger_auditor')
        expect(statements.slice(0, 2)).toEqual([
          '  create role "ipledger_auditor" login nosuperuser nocreatedb nocreaterole noreplication;',
          `  comment on role "ipledger_auditor" is 'of ipledger; reads schema ipledger_audit and nothing else; has no password until an operator sets one';`,
        ])
      await asSuperuser(...statements.map((statement) => statement.replace(/;$/, '')))
    }
    await (await open(url)).stop()
    await withClient(server.url('small'), async (admin) => {
      await admin.query('set role ipledger_auditor')
      expect((await admin.query('select network from ipledger_audit.network')).rows).toEqual([])
    })
    // A database whose grants went with the role has them again after its next start.
    await giveBack()
    await open(server.url('ledger'))
    await withClient(database.adminUrl, async (admin) => {
      await admin.query('set role ipledger_auditor')
      await admin.query('select network from ipledger_audit.network')
    })
  })
})

/** The roles, to the other tests' administrator. */
async function giveBack(): Promise<void> {
  await asSuperuser('alter role ipledger_service nologin', 'alter role ipledger_jobs nologin')
  await withClient(database.adminUrl, (admin) => ensureRoles(admin, database.adminUrl, log))
}

describe('two databases in one server', () => {
  const loginsIn = async (url: string) => {
    await withClient(url, (client) => client.query('select 1'))
  }
  beforeEach(async () => {
    await asSuperuser(
      `create role ann login password 'of ann' superuser`,
      `create role bob login password 'of bob' superuser`,
      'create database prod owner ann',
      'create database staging owner bob',
      'alter role ipledger_service nologin',
      'alter role ipledger_jobs nologin',
    )
    return async () => {
      await asSuperuser('drop database prod with (force)', 'drop database staging with (force)')
      await asSuperuser('drop role ann', 'drop role if exists bob')
      await giveBack()
    }
  })
  const as = (user: string, name: string, password = `of ${user}`) =>
    replaceLogin(server.url(name), { user, password })

  test('of other owners: the second start stops, and the processes of the first go on', async () => {
    const prod = await open(as('ann', 'prod'))
    const refusal = await open(as('bob', 'staging')).catch((error: unknown) => error)
    expect(refusal).toBeInstanceOf(StartRefused)
    expect((refusal as Error).message).toBe(
      'Role "ipledger_service" has a password that follows from the login "ann", not from "bob" of this DATABASE_URL. ' +
        'Roles belong to the whole server, all its databases, and a new password would shut out the processes that use ' +
        'this one: let DATABASE_URL log in as "ann" here too, or give this database a server of its own. ' +
        'If nobody uses the role, run this and start again:\n  alter role "ipledger_service" nologin;',
    )
    await loginsIn(prod.serviceUrl)
    await loginsIn(prod.jobsUrl)
    // With one login for both there is one password.
    const staging = await open(as('ann', 'staging'))
    expect(readUrl(staging.serviceUrl).password).toBe(readUrl(prod.serviceUrl).password)
    await loginsIn(prod.serviceUrl)
  })

  test('a start that is refused for the one role has not touched the other', async () => {
    // The service's role as an operator makes it who keeps the owner's password; of ann, since the jobs' is hers.
    await open(as('ann', 'prod'))
    await asSuperuser('alter role ipledger_service nologin', 'comment on role ipledger_service is null')
    const roles = () =>
      withClient(server.url('postgres'), async (admin) => {
        const { rows } = await admin.query(
          `select r.rolname, r.rolcanlogin, a.rolpassword, r.rolconfig, shobj_description(r.oid, 'pg_authid') as said
             from pg_roles r join pg_authid a on a.oid = r.oid where r.rolname like 'ipledger\\_%' order by 1`,
        )
        return rows
      })
    const before = await roles()
    await expect(open(as('bob', 'staging'))).rejects.toThrow(
      'Role "ipledger_jobs" has a password that follows from the login "ann", not from "bob"',
    )
    expect(await roles()).toEqual(before)
  })

  test('a password that nobody says anything of is not ours to replace', async () => {
    await asSuperuser(
      `alter role ipledger_jobs login password 'by hand'`,
      'comment on role ipledger_jobs is null',
    )
    await expect(open(as('ann', 'prod'))).rejects.toThrow(
      'Role "ipledger_jobs" has a password that ipledger did not set',
    )
    await loginsIn(replaceLogin(server.url('postgres'), { user: 'ipledger_jobs', password: 'by hand' }))
  })

  test('what the sentence says is enough, and a login that is gone holds nothing', async () => {
    await open(as('ann', 'prod'))
    await asSuperuser('alter role ipledger_service nologin', 'alter role ipledger_jobs nologin')
    await open(as('bob', 'staging'))
    await asSuperuser('alter database staging owner to ann', 'reassign owned by bob to ann')
    await withClient(server.url('staging'), (admin) => admin.query('reassign owned by bob to ann'))
    await asSuperuser('drop role bob')
    await open(as('ann', 'prod'))
  })

  test("the password of the login was changed: the roles' follow it, and the log says what to do", async () => {
    await open(as('ann', 'prod'))
    await asSuperuser(`alter role ann password 'new'`)
    const warnings: string[] = []
    const warned = { ...log, warn: (_: object, words: string) => warnings.push(words) } as unknown as Logger
    const url = as('ann', 'prod', 'new')
    const logins = await withClient(url, (admin) => ensureRoles(admin, url, warned))
    expect(warnings).toEqual([
      'the password of DATABASE_URL was changed: restart all processes that were given the old one',
      'the password of DATABASE_URL was changed: restart all processes that were given the old one',
    ])
    await loginsIn(logins.serviceUrl)
  })
})

describe('an owner who is no superuser', () => {
  const owner = 'ipledger_test_owner'
  let ownerUrl: string

  beforeAll(async () => {
    await asSuperuser(`create role ${owner} login password 'own' createrole`)
  })
  beforeEach(async () => {
    await asSuperuser(`create database owned owner ${owner}`)
    ownerUrl = replaceLogin(server.url('owned'), { user: owner, password: 'own' })
    return () => asSuperuser('drop database owned with (force)')
  })
  afterAll(() => asSuperuser(`drop role ${owner}`))

  test('who may not set up the roles is told the statements, which are enough', async () => {
    await asSuperuser(
      `alter role ${owner} nocreaterole`,
      'alter role ipledger_service nologin',
      'alter role ipledger_jobs nologin',
    )
    const refusal = await open(ownerUrl).then(
      () => '',
      (error: Error) => error.message,
    )
    const statements = refusal.split('\n').filter((line) => line.startsWith('  '))
    expect(refusal).toContain(
      `Role "${owner}" may not set up role "ipledger_service". Let a superuser run this once`,
    )
    expect(statements[0]).toMatch(/^ {2}alter role "ipledger_service" login password 'SCRAM-SHA-256\$4096:/)
    expect(refusal).not.toContain("own'")
    onTestFinished(giveBack)
    await asSuperuser(...statements.map((statement) => statement.replace(/;$/, '')))
    const second = await open(ownerUrl).then(
      () => '',
      (error: Error) => error.message,
    )
    expect(second).toContain('may not set up role "ipledger_jobs"')
    await asSuperuser(
      ...second
        .split('\n')
        .filter((line) => line.startsWith('  '))
        .map((line) => line.replace(/;$/, '')),
    )
    const opened = await open(ownerUrl)
    await withClient(opened.serviceUrl, async (service) => {
      const { rows } = await service.query('select current_user as role')
      expect(rows).toEqual([{ role: 'ipledger_service' }])
    })
    await opened.stop()
  })
})

describe('a login that is not an administrator is used as it is, and checked', () => {
  const settings = (name: string) =>
    Object.entries(SERVICE_SETTINGS).map(([setting, value]) =>
      setting === 'search_path'
        ? `alter role ${name} set search_path = ${value}`
        : `alter role ${name} set ${setting} = '${value}'`,
    )

  test('granted the service role, with the settings', async () => {
    const url = await role('ipledger_test_app', 'in role ipledger_service')
    await asSuperuser(...settings('ipledger_test_app'))
    // Its password is another than the one from which that of the jobs follows.
    await expect(open(url, database.adminUrl)).rejects.toThrow('alter role "ipledger_jobs" nologin')
    await asSuperuser('alter role ipledger_jobs nologin')
    onTestFinished(giveBack)
    const opened = await open(url, database.adminUrl)
    expect(opened.serviceUrl).toBe(url)
    // Without the administrator, the same logins are found.
    const alone = await open(url)
    expect(alone).toMatchObject({ serviceUrl: url, jobsUrl: opened.jobsUrl, adminUrl: undefined })
    await giveBack()
    await expect(open(url)).rejects.toThrow('Cannot log in as "ipledger_jobs": run "ipledger migrate"')
  })

  test('without time-outs', async () => {
    const url = await role('ipledger_test_patient', 'in role ipledger_service')
    await asSuperuser(`alter role ipledger_test_patient set lock_timeout = '1s'`)
    await withClient(url, (service) =>
      expect(checkServiceLogin(service, log)).rejects.toThrow(
        "has no idle_in_transaction_session_timeout, statement_timeout, so a paused process could hold a network's lock for ever. Run:\n" +
          `  alter role "ipledger_test_patient" set idle_in_transaction_session_timeout = '2s';`,
      ),
    )
  })

  test('that may rewrite the log', async () => {
    const url = await role('ipledger_test_writer', 'in role ipledger_service')
    await withClient(database.adminUrl, async (admin) => {
      for (const privilege of ['update', 'delete', 'truncate']) {
        await admin.query(`grant ${privilege} on ipledger.event to ipledger_test_writer`)
        await withClient(url, (service) =>
          expect(checkServiceLogin(service, log)).rejects.toThrow(
            'may change or delete events: revoke update, delete, truncate',
          ),
        )
        await admin.query(`revoke ${privilege} on ipledger.event from ipledger_test_writer`)
      }
    })
  })

  test('that may not write it', async () => {
    const url = await role('ipledger_test_reader', '')
    await withClient(url, (service) =>
      expect(checkServiceLogin(service, log)).rejects.toThrow(
        'grant ipledger_service to "ipledger_test_reader"',
      ),
    )
  })

  test('that owns a table', async () => {
    const url = await role('ipledger_test_owning', 'in role ipledger_service')
    await withClient(database.adminUrl, async (admin) => {
      await admin.query('create table ipledger.mine (id int primary key)')
      await admin.query('alter table ipledger.mine owner to ipledger_test_owning')
    })
    await withClient(url, (service) =>
      expect(checkServiceLogin(service, log)).rejects.toThrow('owns ipledger.mine'),
    )
  })

  test('a superuser', async () => {
    await withClient(database.adminUrl, (service) =>
      expect(checkServiceLogin(service, log)).rejects.toThrow('is a superuser and could rewrite the log'),
    )
  })

  test('on a database nobody migrated', async () => {
    await asSuperuser('create database unmigrated')
    await expect(open(replaceDatabase(database.serviceUrl, 'unmigrated'))).rejects.toThrow(
      /run "ipledger migrate"/,
    )
  })
})
