-- When a boot of a node was last heard of, for boots that the row of their source does not tell of (DESIGN §4 FenceNode): a
-- statement that a boot is over is contradicted by what that boot reported, whatever its source has reported since from
-- others (6.3).

create table ipledger.boot_report (
  network_id text collate "C" not null,
  node text collate "C" not null,
  boot text collate "C" not null,
  source_id text collate "C" not null,
  reported_at timestamptz not null,
  constraint boot_is_heard_of_once_by_a_source primary key (network_id, node, boot, source_id)
-- Rewritten only where a boot that is closed goes on reporting.
) with (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
comment on table ipledger.boot_report is
  'An observation: boots of nodes that a source has left for another, or that report beside the one it is in. As lasting as source_epoch.';
comment on column ipledger.boot_report.boot is 'The epoch of the report; of the one that its source is in, source.last_begun_at tells.';
comment on column ipledger.boot_report.reported_at is 'Begin of the last report from it; where nothing proves that, when it came.';

grant select, insert, update, delete on ipledger.boot_report to ipledger_service;

-- Plans pinned by statistics, as in 0001 (ops/decisions/0002-plans.md).

alter table ipledger.boot_report
  alter network_id set (n_distinct = 1), alter node set (n_distinct = -0.1), alter boot set (n_distinct = -0.9),
  alter source_id set (n_distinct = -0.1);

insert into ipledger.boot_report values ('sample', 'sample', 'sample', 'sample', now());
analyze ipledger.boot_report;
savepoint sampled;
truncate ipledger.boot_report;
release savepoint sampled;
