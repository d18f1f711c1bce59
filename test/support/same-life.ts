/** The log of a database that was stored, not lived: the service goes on with it as its own, in no new era. */
export const SAME_LIFE = `create or replace function ipledger.identity() returns text language sql as $$ select 'one' $$`
