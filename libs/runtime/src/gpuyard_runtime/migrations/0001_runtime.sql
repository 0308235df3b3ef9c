-- What the runtime keeps in each service's schema.

-- Keys of messages whose effect is committed; the guard against a second delivery. Pruned by age, long after streams have forgotten them.
create table inbox (
    key text primary key,
    at timestamptz not null
);

create index inbox_by_age on inbox using brin (at);

-- What committed units said and the streams have not all acknowledged yet: one row for each unit.
create table outbox (
    id bigint generated always as identity primary key,
    content bytea not null
);

-- Who leads: the epoch grows with each new leader, and each unit of work checks that it is still its own.
create table runtime_leader (
    service text primary key,
    epoch bigint not null
);
