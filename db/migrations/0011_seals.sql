-- Seals: digests of closed stretches of each network's log, each of which names the one before. Who changes or removes an
-- event that was sealed, with whatever rights, changes what its seal says; who makes the seals anew changes the digests
-- that were exported before (`ipledger verify --seals`, `ipledger audit`).
--
-- A leaf is the first half of the SHA-256 of an event's line, a digest is the whole SHA-256 of what seal_digest() says. Both
-- are made where the rows lie, and can be made again outside, with nothing but a file of lines.

-- One spelling of a row: no session setting has a part in it. Times are seconds since 1970 with six places, numeric and not
-- float; json and jsonb are the text that is stored, and the text of jsonb is canonical. Bound when it was made, it does
-- not follow a search_path either.
create function ipledger.event_line(event ipledger.event) returns text
  language sql stable parallel safe
  return array_to_json(array[
    event.network_id,
    event.seq::text,
    event.type,
    extract(epoch from event.at)::text,
    event.actor,
    event.cause,
    event.request_id,
    event.trace_id,
    event.pool_id::text,
    event.address::text,
    event.prefix_length::text,
    event.fencing_token::text,
    event.state,
    event.quarantine_reason,
    extract(epoch from event.quarantined_at)::text,
    event.quarantined_by,
    event.quarantine_why,
    event.owner_kind,
    event.owner_name,
    event.owner_uid,
    event.owner_uid_named::text,
    event.owner_incarnation,
    event.owner_interface,
    event.node,
    event.boot,
    event.labels::text,
    event.witness,
    extract(epoch from event.reserved_at)::text,
    extract(epoch from event.confirmed_at)::text,
    extract(epoch from event.confirm_by)::text,
    extract(epoch from event.available_at)::text,
    event.removal_confirmed::text,
    event.settings::text,
    event.evidence::text
  ])::text;
comment on function ipledger.event_line(ipledger.event) is
  'The canonical line of an event: a JSON array of the texts of all columns in their order, null where they are. A column that '
  'is added later goes to its end, as its name and its text, and only where it is not null: lines of before stay what they were.';

create function ipledger.event_leaf(event ipledger.event) returns bytea
  language sql stable parallel safe
  return substr(sha256(convert_to(ipledger.event_line(event), 'UTF8')), 1, 16);
comment on function ipledger.event_leaf(ipledger.event) is
  'What a seal keeps of an event: the first 16 bytes of the SHA-256 of its line.';

create function ipledger.seal_digest(
  previous_digest bytea, network_id text, first_seq bigint, last_seq bigint, leaves bytea) returns bytea
  language sql immutable parallel safe
  return sha256(
    previous_digest
    || convert_to(network_id || ' ' || first_seq::text || ' ' || last_seq::text || chr(10), 'UTF8')
    || leaves);
comment on function ipledger.seal_digest(bytea, text, bigint, bigint, bytea) is
  'SHA-256 of the digest before (32 bytes, zeros before the first), a line "network first last" and the leaves one after the other.';

create table ipledger.seal (
  network_id text collate "C" not null,
  first_seq bigint not null,
  last_seq bigint not null,
  leaves bytea not null,
  digest bytea not null,
  previous_digest bytea not null,
  sealed_at timestamptz not null,
  constraint event_is_sealed_once primary key (network_id, first_seq),
  constraint seal_covers_some_events check (first_seq > 0 and last_seq >= first_seq),
  -- Four times as long as they are made.
  constraint seal_is_short_enough_to_be_read_at_once check (last_seq - first_seq < 16384),
  constraint seal_stays_within_an_era check (first_seq >> 40 = last_seq >> 40),
  -- With a gap in the log there is no seal over it.
  constraint seal_has_a_leaf_for_each_event check (octet_length(leaves) = 16 * (last_seq - first_seq + 1)),
  constraint seal_names_a_digest_before_it check (octet_length(previous_digest) = 32),
  constraint seal_digest_is_of_its_leaves check (
    digest = ipledger.seal_digest(previous_digest, network_id, first_seq, last_seq, leaves))
);
comment on table ipledger.seal is
  'Closed stretches of the log, without a gap within an era, in a chain per network. Inserted by a job, never changed.';
comment on column ipledger.seal.last_seq is
  'Its last event. The next seal begins with the event after it, which may be the first of a later era.';
comment on column ipledger.seal.leaves is 'event_leaf() of each event, in order of number: 16 bytes each.';
comment on column ipledger.seal.digest is 'seal_digest() of the columns beside it; the next seal names it.';
comment on column ipledger.seal.previous_digest is 'Of the seal before; 32 zeros before the first.';

-- Nothing in a digest can be compressed.
alter table ipledger.seal alter leaves set storage external;

grant select, insert on ipledger.seal to ipledger_service;

-- Plans pinned by statistics, as in 0001 (ops/decisions/0002-plans.md).

alter table ipledger.seal alter network_id set (n_distinct = 1), alter first_seq set (n_distinct = -1);
insert into ipledger.seal
  select 'sample', 1, 1, l.leaves, ipledger.seal_digest(l.zeros, 'sample', 1, 1, l.leaves), l.zeros, now()
    from (select decode(repeat('00', 16), 'hex') as leaves, decode(repeat('00', 32), 'hex') as zeros) l;
analyze ipledger.seal;
savepoint sampled;
truncate ipledger.seal;
release savepoint sampled;
