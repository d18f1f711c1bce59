-- Chunks wait for seconds: 37 of them were written with 123 to 140 ms of the database's CPU instead of 318 to 338 compressed.
alter table ipledger.snapshot_part alter entries set storage external;
