/** One address, and from there its leases and its owners: who had it, who gave it away, and on what evidence. */
import { TO_ADDRESS, TO_LEASE, TO_OWNER, TO_SOURCES } from './links.ts'
import { type Colour, type Column, table, timeline } from './panels.ts'
import { ADDRESS, FROM, LEASE, NETWORK, OWNER, sql, TO } from './queries.ts'
import { dashboard, NETWORK_VARIABLE } from './sheet.ts'

const STATES: Readonly<Record<string, Colour>> = {
  RESERVED: 'yellow',
  ACTIVE: 'green',
  'QUARANTINED CONFLICT': 'red',
  'QUARANTINED SUPERSEDED': 'orange',
  'QUARANTINED REMOVAL_UNCONFIRMED': 'orange',
  'QUARANTINED OPERATOR': 'orange',
  'QUARANTINED RELEASED_BUT_LIVE': 'red',
  'QUARANTINED FOREIGN': 'red',
}

/** At most so many bands: an address, or the addresses of a small CIDR. */
const MOST_BANDS = 20
const MOST_ROWS = 500

/** Where none was chosen: the owner, and the lease, of the address at the end of the time range. */
const SHOWN_OWNER = `coalesce(${OWNER}, (select w.owner_name from ipledger_audit.who_had(${NETWORK}, ${ADDRESS}, ${TO}) w limit 1))`
const SHOWN_LEASE = `coalesce(${LEASE}, (select w.lease_id from ipledger_audit.who_had(${NETWORK}, ${ADDRESS}, ${TO}) w limit 1))`

const HOLDER = `case when h.type in ('lease.released', 'lease.reaped') then null
                          else coalesce(concat_ws(' ', h.owner_name, nullif(h.owner_incarnation, '')), 'an unknown owner') end`
const STATE = `case when h.type in ('lease.released', 'lease.reaped') then null
                          else concat_ws(' ', h.state, h.quarantine_reason) end`

const EVENT_COLUMNS: Readonly<Record<string, Column>> = {
  at: { title: 'At', width: 170 },
  seq: { title: 'Number', unit: 'none', decimals: 0, width: 110 },
  network: { hidden: true },
  what: { title: 'What', look: 'wrapped' },
  type: { title: 'Type', width: 140 },
  address: { title: 'Address', links: [TO_ADDRESS], width: 140 },
  lease: { title: 'Lease', links: [TO_LEASE], width: 120 },
  state: { title: 'State after it', width: 130 },
  reason: { title: 'Reason' },
  owner: { title: 'Owner', links: [TO_OWNER] },
  incarnation: { title: 'Life' },
  node: { title: 'Node' },
  actor: { title: 'By' },
  cause: { title: 'Cause' },
  evidence: { title: 'Evidence', look: 'json', width: 260 },
  trace: { title: 'Trace' },
}

const EVENT_FIELDS = `h.at, h.seq, h.what, h.type, h.network, abbrev(h.address) as address, h.lease_id as lease, h.state,
                   h.quarantine_reason as reason, h.owner_name as owner, h.owner_incarnation as incarnation, h.node, h.actor, h.cause,
                   h.evidence::text as evidence, h.trace_id as trace`

export const address = dashboard({
  target: 'address',
  title: 'Address and lease',
  about:
    'One address, or a small CIDR: its holders over time, its events with their evidence, and the lives of its owner. Type an address, or come by a link from another dashboard.',
  variables: [
    NETWORK_VARIABLE,
    {
      name: 'address',
      label: 'Address or CIDR',
      about: 'As 10.8.64.2, 10.8.64.0/28 or fd00::2. A text, because a list of a pool would have millions.',
      from: 'text',
    },
    {
      name: 'owner',
      label: 'Owner',
      about: 'Name of an owner; empty: who held the address at the end of the time range.',
      from: 'text',
    },
    {
      name: 'lease',
      label: 'Lease',
      about: 'Id of a lease, as default/42; empty: that of the address at the end of the time range.',
      from: 'text',
    },
  ],
  marked: true,
  rows: [
    {
      title: 'Why it is as it is',
      panels: [
        table({
          title: 'Why, at the end of the time range',
          help: {
            shows:
              'Why the address is free, cooling, held or quarantined: the first line is the answer, the others are the events that led there, with the answers of sources.',
            normal: 'held by the owner that you expect, or free.',
            act: 'Set the end of the time range to the moment you ask about; the answer is as of then.',
          },
          width: 24,
          height: 9,
          tall: true,
          query: sql(`
            select step, at, seq, what, evidence::text as evidence
              from ipledger_audit.explain_address(${NETWORK}, ${ADDRESS}, ${TO})
             order by step
             limit ${MOST_ROWS}`),
          columns: {
            step: { title: '', unit: 'none', decimals: 0, width: 50 },
            at: { title: 'At', width: 170 },
            seq: { title: 'Number', unit: 'none', decimals: 0, width: 110 },
            what: { title: 'What', look: 'wrapped' },
            evidence: { title: 'Evidence', look: 'json', width: 300 },
          },
        }),
      ],
    },
    {
      title: 'Who held it',
      panels: [
        timeline({
          title: 'Holders and states',
          help: {
            shows: 'For each address a band of its holders and one of its states; a gap is free or cooling.',
            normal:
              'one holder after the other with a gap between them: the cooldown. The same holder may come back sooner.',
            act: 'A red state: read the events below.',
          },
          width: 24,
          height: 9,
          by: 'address',
          colours: STATES,
          query: sql(`
            with story as (
              select ${FROM} as at, h.seq, h.address, coalesce(concat_ws(' ', h.owner_name, nullif(h.owner_incarnation, '')), 'an unknown owner') as holder,
                     concat_ws(' ', h.state, h.quarantine_reason) as state
                from ipledger_audit.who_had(${NETWORK}, ${ADDRESS}, ${FROM}) h
              union all
              select h.at, h.seq, h.address, ${HOLDER} as holder,
                     ${STATE} as state
                from ipledger_audit.address_history(${NETWORK}, ${ADDRESS}, ${FROM}, ${TO}) h
               where h.type like 'lease.%'
            ), shown as (
              select address from story group by address order by address limit ${MOST_BANDS}
            ), last as (
              select distinct on (s.address, s.at) s.at, s.address, s.holder, s.state
                from story s
                join shown on shown.address = s.address
               order by s.address, s.at, s.seq desc
            )
            select at as time, abbrev(address) as address, holder, state
              from last
             order by at, address`),
        }),
        table({
          title: 'Held at the end of the time range',
          help: {
            shows:
              'The lease at the address then: who gave it, its owner, how long it lasted, and how it ended.',
            normal: 'one line an address, or none.',
            act: 'Follow the owner for its other addresses, the lease for its events.',
          },
          width: 24,
          height: 5,
          query: sql(`
            select network, abbrev(address) as address, pool, lease_id as lease, concat_ws(' ', state, quarantine_reason) as state,
                   owner_kind as kind, owner_name as owner, owner_uid as uid, owner_incarnation as incarnation, node, since, seq,
                   given_by, given_cause, until, ended_as
              from ipledger_audit.who_had(${NETWORK}, ${ADDRESS}, ${TO})
             order by who_had.address
             limit ${MOST_ROWS}`),
          columns: {
            network: { hidden: true },
            address: { title: 'Address', links: [TO_ADDRESS], width: 140 },
            pool: { title: 'Pool' },
            lease: { title: 'Lease', links: [TO_LEASE] },
            state: { title: 'State' },
            kind: { title: 'Kind' },
            owner: { title: 'Owner', links: [TO_OWNER] },
            uid: { title: 'Uid' },
            incarnation: { title: 'Life' },
            node: { title: 'Node' },
            since: { title: 'Since', width: 170 },
            seq: { title: 'Number', unit: 'none', decimals: 0 },
            given_by: { title: 'Given by' },
            given_cause: { title: 'For' },
            until: { title: 'Until', width: 170 },
            ended_as: { title: 'Ended as' },
          },
        }),
        table({
          title: 'Events',
          help: {
            shows:
              'Everything the ledger decided about the address within the time range, with what each decision rested on.',
            normal: 'reserved, confirmed, released, and again.',
            act: 'Open the evidence of a reap or a quarantine. The trace id is that of the call that made the event.',
          },
          width: 24,
          height: 11,
          query: sql(`
            select ${EVENT_FIELDS}
              from ipledger_audit.address_history(${NETWORK}, ${ADDRESS}, ${FROM}, ${TO}) h
             order by h.seq desc
             limit ${MOST_ROWS}`),
          columns: EVENT_COLUMNS,
        }),
      ],
    },
    {
      title: 'On what evidence',
      panels: [
        table({
          title: 'Reaps of this address, with their proof',
          help: {
            shows:
              'For each reap and source: which counted reports missed the workload, at which heads, when it was last listed, and what the look-up answered.',
            normal: 'three misses, all begun after the last change, and a look-up that says gone.',
            act: 'If a reap was wrong, the source was wrong: look at the source, not at ipledger. `ipledger audit rejudge` judges it again.',
          },
          width: 24,
          height: 7,
          query: sql(`
            select at, network, abbrev(address) as address, lease_id as lease, owner_name as owner, cause, actor, source, why,
                   array_to_string(snapshots, ', ') as snapshots, array_to_string(heads, ', ') as heads, misses,
                   last_sighted_at, lookup_answer, lookup_at, lookup_detail, policy::text as policy
              from ipledger_audit.reaps(${FROM}, ${TO})
             where network = ${NETWORK} and address && ${ADDRESS}
             order by at desc, seq desc, source
             limit ${MOST_ROWS}`),
          columns: {
            at: { title: 'At', width: 170 },
            network: { hidden: true },
            address: { title: 'Address', links: [TO_ADDRESS], width: 140 },
            lease: { title: 'Lease', links: [TO_LEASE] },
            owner: { title: 'Owner', links: [TO_OWNER] },
            cause: { title: 'Cause' },
            actor: { title: 'By' },
            source: { title: 'Source', links: [TO_SOURCES] },
            why: { title: 'Witness by' },
            snapshots: { title: 'Missed by reports' },
            heads: { title: 'at heads' },
            misses: { title: 'Misses', unit: 'none', decimals: 0 },
            last_sighted_at: { title: 'Last seen', width: 170 },
            lookup_answer: { title: 'Look-up' },
            lookup_at: { title: 'Asked', width: 170 },
            lookup_detail: { title: 'Its message' },
            policy: { title: 'Policy', look: 'json' },
          },
        }),
        table({
          title: 'Owners that were seen here, by source',
          help: {
            shows:
              'Who is listed at the address now, by which source, and who was listed there for a lease that is still held. Not of the time range: the past is in the log.',
            normal: 'one live line: the holder.',
            act: 'Somebody else live: a conflict, or an address that is used without being asked for.',
          },
          width: 24,
          height: 7,
          query: sql(`
            select network, abbrev(address) as address, source, owner_kind as kind, owner_name as owner, node, state, live,
                   appeared_at, last_seen_at, vanished_at, appeared_seq, appeared_head, vanished_seq
              from ipledger_audit.sightings
             where network = ${NETWORK} and address <<= ${ADDRESS}
             order by appeared_at desc
             limit ${MOST_ROWS}`),
          columns: {
            network: { hidden: true },
            address: { title: 'Address', links: [TO_ADDRESS], width: 140 },
            source: { title: 'Source', links: [TO_SOURCES] },
            kind: { title: 'Kind' },
            owner: { title: 'Who', links: [TO_OWNER] },
            node: { title: 'Node' },
            state: { title: 'State' },
            live: { title: 'Live' },
            appeared_at: { title: 'Appeared', width: 170 },
            last_seen_at: { title: 'Last seen', width: 170 },
            vanished_at: { title: 'Vanished', width: 170 },
            appeared_seq: { title: 'by event', unit: 'none', decimals: 0 },
            appeared_head: { title: 'begun at head', unit: 'none', decimals: 0 },
            vanished_seq: { title: 'ended by event', unit: 'none', decimals: 0 },
          },
        }),
      ],
    },
    {
      title: 'Its owner',
      panels: [
        timeline({
          title: 'What the owner held',
          help: {
            shows:
              'For each address of the owner a band of its state; the owner is that of the variable, or who held the address last.',
            normal: 'one address at a time.',
            act: 'Many short bands are a crash loop; several long ones at once a leak, or several interfaces.',
          },
          width: 24,
          height: 8,
          by: 'address',
          colours: STATES,
          query: sql(`
            with story as (
              select greatest(h.at, ${FROM}) as at, h.seq, h.address,
                     ${STATE} as state
                from ipledger_audit.owner_history(${NETWORK}, ${SHOWN_OWNER}) h
               where h.type like 'lease.%' and h.at <= ${TO}
            ), shown as (
              select address from story group by address order by max(seq) desc limit ${MOST_BANDS}
            ), last as (
              select distinct on (s.address, s.at) s.at, s.address, s.state
                from story s
                join shown on shown.address = s.address
               order by s.address, s.at, s.seq desc
            )
            select at as time, abbrev(address) as address, state
              from last
             order by at, address`),
        }),
        table({
          title: 'Events of the owner',
          help: {
            shows: 'Everything the ledger decided about the owner, at any address.',
            normal: 'one life after the other.',
            act: 'A reap followed by an adoption of the same owner: it lived. That is an incident.',
          },
          width: 24,
          height: 9,
          query: sql(`
            select ${EVENT_FIELDS}
              from ipledger_audit.owner_history(${NETWORK}, ${SHOWN_OWNER}) h
             where h.at <= ${TO}
             order by h.seq desc
             limit ${MOST_ROWS}`),
          columns: EVENT_COLUMNS,
        }),
      ],
    },
    {
      title: 'Its lease',
      panels: [
        table({
          title: 'Events of the lease',
          help: {
            shows: 'The life of one lease, from the event that gave it to the one that ended it.',
            normal: 'reserved, confirmed, released.',
            act: 'Its number is its fencing token: what a client quotes, and what a log of a node names.',
          },
          width: 24,
          height: 8,
          query: sql(`
            select ${EVENT_FIELDS}
              from ipledger_audit.lease_history(${SHOWN_LEASE}) h
             order by h.seq
             limit ${MOST_ROWS}`),
          columns: EVENT_COLUMNS,
        }),
      ],
    },
  ],
})
