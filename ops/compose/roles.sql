-- A login of its own for the service, which owns nothing, so that only `migrate` needs the owner's. As superuser, again after an
-- upgrade of PostgreSQL: psql --set password=<its password> --file ops/compose/roles.sql
\set ON_ERROR_STOP on
select 'create role ipledger_service nologin' where to_regrole('ipledger_service') is null \gexec
select 'create role app login in role ipledger_service' where to_regrole('app') is null \gexec
alter role app password :'password';
alter role app set timezone = 'UTC';
alter role app set datestyle = 'ISO, MDY';
alter role app set client_encoding = 'UTF8';
alter role app set default_transaction_isolation = 'read committed';
alter role app set synchronous_commit = 'on';
alter role app set search_path = 'ipledger';
alter role app set idle_in_transaction_session_timeout = '2s';
alter role app set lock_timeout = '3s';
alter role app set statement_timeout = '5s';
select current_setting('server_version_num')::int >= 170000 as has_transaction_timeout \gset
\if :has_transaction_timeout
alter role app set transaction_timeout = '10s';
\endif
alter role app set tcp_keepalives_idle = '2';
alter role app set tcp_keepalives_interval = '1';
alter role app set tcp_keepalives_count = '3';
