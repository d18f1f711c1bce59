/** A server whose locks lock nothing, made of a real one: the start refuses it. */
import { pino } from 'pino'
import { expect, test } from 'vitest'
import { StartRefused } from '../../src/config.ts'
import { openDatabase } from '../../src/postgres/database.ts'
import { checkRowLocks, checkSessions } from '../../src/postgres/locks.ts'
import { type TestDatabase, useOwnDatabase, withClient } from '../support/database.ts'
import { serviceOn } from '../support/service.ts'

const open = ({ adminUrl }: TestDatabase) =>
  openDatabase(
    { databaseUrl: adminUrl, databaseAdminUrl: undefined, directory: '' },
    { log: pino({ level: 'silent' }), embedded: 'own' },
  )
const run = ({ adminUrl }: TestDatabase, sql: string) => withClient(adminUrl, (admin) => admin.query(sql))

/** Every row lock is granted: rows of a function are not locked. */
const NO_ROW_LOCKS = `
  alter table ipledger.network_lock rename to kept_lock;
  create function ipledger.locks() returns setof ipledger.kept_lock security definer language sql as 'select * from ipledger.kept_lock';
  create view ipledger.network_lock as select * from ipledger.locks();
  create function ipledger.keep_lock() returns trigger security definer language plpgsql as $$
    begin insert into ipledger.kept_lock (network_id) values (new.network_id); return new; end $$;
  create trigger keep instead of insert on ipledger.network_lock for each row execute function ipledger.keep_lock();
  grant select, insert, update (network_id) on ipledger.network_lock to ipledger_service`

test('locks that are locks: while other starts compare them, and while all networks are locked', async () => {
  const database = await useOwnDatabase()
  await run(database, `insert into ipledger.network_lock (network_id) values ('a'), ('b')`)
  const check = () =>
    Promise.all([checkSessions(database.serviceUrl), checkRowLocks(database.serviceUrl, 'a')])
  await Promise.all(Array.from({ length: 4 }, check))
  await withClient(database.adminUrl, async (holder) => {
    await holder.query('begin')
    await holder.query('select from ipledger.network_lock for no key update')
    await check()
  })
})

test.each([
  ['taken', ['pg_try_advisory_lock']],
  ['taken and given back', ['pg_try_advisory_lock', 'pg_advisory_unlock']],
])('an advisory lock that is always %s', async (_, names) => {
  const database = await useOwnDatabase()
  const lax = names.map(
    (name) => `create function lax.${name}(bigint) returns boolean language sql as 'select true';`,
  )
  await run(
    database,
    `create schema lax; grant usage on schema lax to public; ${lax.join(' ')}
     alter role ipledger_service in database ${database.name} set search_path = lax, pg_catalog, ipledger`,
  )
  const refused = open(database)
  await expect(refused).rejects.toThrow(StartRefused)
  await expect(refused).rejects.toThrow(
    /^Two sessions share one advisory lock of PostgreSQL at \S+, database "\w+": if that is a pooler, set its pool_mode = session, or/,
  )
})

test('a row lock that does not wait', async () => {
  const database = await useOwnDatabase()
  await run(database, NO_ROW_LOCKS)
  const refused = serviceOn({ database })
  await expect(refused).rejects.toThrow(StartRefused)
  await expect(refused).rejects.toThrow(
    /^Two sessions share one row lock of PostgreSQL at \S+, database "\w+", so two processes could hand out one address: let/,
  )
})
