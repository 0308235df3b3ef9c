-- What api owns (tenants, tokens, audit, asks) and what it projects (jobs, events, incidents).

create table tenants (
    tenant                  text primary key,
    version                 bigint not null,
    name                    text not null,
    sla                     text not null constraint tenants_known_sla check (sla in ('gold', 'silver', 'bronze')),
    weight                  bigint not null,
    quota_gpu_milli         bigint,
    quota_gpu_memory_mib    bigint,
    max_waiting             bigint not null,
    max_requests_per_minute bigint not null,
    is_suspended            boolean not null,
    created_at              timestamptz not null,
    changed_at              timestamptz not null
);

-- A token is kept as the SHA-256 of its 256 random bits. A tenant's token names its tenant, an operator's names none.
create table tokens (
    digest     text primary key,
    token_id   text not null constraint tokens_one_id_each unique,
    role       text not null constraint tokens_known_role check (role in ('admin', 'tenant')),
    tenant     text,
    name       text not null,
    hint       text not null,
    created_at timestamptz not null,
    created_by text not null,
    revoked_at timestamptz,
    constraint tokens_tenant_by_role check ((role = 'tenant') = (tenant is not null))
);

create table audit (
    seq    bigint primary key,
    at     timestamptz not null,
    actor  text not null,
    tenant text,
    action text not null,
    target text not null,
    result text not null,
    detail text not null
);

-- What was asked for; one row for each job, never changed. `digest` is what a repeat of the same request must match.
create table job_asks (
    job_id   text primary key,
    tenant   text not null,
    spec     json not null,
    labels   jsonb not null,
    digest   text not null,
    asked_at timestamptz not null
);
create index job_asks_labels on job_asks using gin (labels jsonb_path_ops) where labels <> '{}';

-- The present state of each job. `version` is the sequence of its youngest event in EVT_SCHEDULER.
-- submitted -> queued | rejected; queued <-> placing -> starting -> running -> stopping -> succeeded | failed | cancelled | expired;
-- rejected -> queued. Ended rows leave api's memory after a while, so the rule that nothing goes back is kept here too.
create table jobs (
    job_id       text primary key,
    tenant       text not null,
    name         text not null,
    state        text not null constraint jobs_known_state check (state in ('submitted', 'queued', 'placing', 'starting', 'running',
                 'stopping', 'succeeded', 'failed', 'cancelled', 'expired', 'rejected')),
    submitted_at timestamptz not null,
    changed_at   timestamptz not null,
    version      bigint not null,
    reason       text not null,
    detail       text not null,
    attempt      bigint not null,
    ranks        bigint not null,
    priority     text not null,
    gpu          json not null,
    placement    json not null,
    is_unknown   boolean not null,
    started_at   timestamptz,
    ended_at     timestamptz,
    exit_code    bigint
) with (fillfactor = 80);
create index jobs_newest_first on jobs (submitted_at desc, job_id desc);
create index jobs_of_tenant on jobs (tenant, submitted_at desc, job_id desc);
create index jobs_alive on jobs (job_id) where ended_at is null;
create index jobs_ended on jobs (ended_at) where ended_at is not null;

create function keep_old_row() returns trigger language plpgsql as $$ begin return null; end $$;
create trigger jobs_never_go_back before update on jobs for each row
    when (new.version < old.version or (old.ended_at is not null and new.version > old.version
          and not (old.state = 'rejected' and new.state = 'queued')))
    execute function keep_old_row();

-- Every event as it was told. `seq` is given out by the one writer in the order of commits, so it is a cursor without gaps in time.
create table job_events (
    seq          bigint primary key,
    event_id     text not null,
    type         text not null,
    source       text not null,
    at           timestamptz not null,
    body         json not null,
    job_id       text,
    tenant       text,
    causation_id text,
    traceparent  text
);
create index job_events_of_job on job_events (job_id, seq) where job_id is not null;
create index job_events_of_tenant on job_events (tenant, seq) where tenant is not null;

create table incidents (
    incident_id      text primary key,
    kind             text not null,
    node_id          text not null,
    gpu_uuid         text,
    action           text not null,
    evidence         text not null,
    opened_at        timestamptz not null,
    closed_at        timestamptz,
    closing_evidence text not null
);

create table marks (
    name  text primary key,
    value bigint not null
);
