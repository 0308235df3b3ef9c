-- scheduler: jobs and how far they are.

-- What was asked: written once. One row for each request that was taken, under the id that its tenant and
-- request id make, so that the key is also: one job for each request.
create table requests (
    job_id text primary key,
    tenant text not null,
    request_id text not null,
    spec json not null,
    submitted_at timestamptz not null,
    traceparent text
);

create index requests_by_age on requests (submitted_at);

-- Requests of tenants that were not heard of yet, for a few seconds.
create table parked (
    job_id text primary key,
    tenant text not null,
    request_id text not null,
    spec json not null,
    submitted_at timestamptz not null,
    traceparent text
);

-- queued → placing → starting → running → stopping → an end; placing, starting, running → queued (again); queued → cancelled.
-- ranks: the plan of the present attempt, one array per rank; marks: counters, intent and what to avoid, where they are not empty.
create table jobs (
    job_id text primary key,
    state text not null constraint jobs_state_is_known check (
        state in ('queued', 'placing', 'starting', 'running', 'stopping', 'succeeded', 'failed', 'cancelled', 'expired')
    ),
    attempt integer not null constraint jobs_attempt_counts_up check (attempt >= 0),
    aged_at timestamptz not null,
    not_before timestamptz,
    ranks json not null,
    ordered_at timestamptz,
    started_at timestamptz,
    told text,
    marks json not null,
    ended_at timestamptz,
    end_reason text,
    end_detail text not null default '',
    exit_code integer,
    constraint jobs_end_with_a_reason check (
        (state in ('succeeded', 'failed', 'cancelled', 'expired')) = (ended_at is not null)
        and (ended_at is null) = (end_reason is null)
    )
) with (fillfactor = 70);

create index jobs_live on jobs (job_id) where ended_at is null;

-- A job that is over stays so: the last guard against a request that comes again when its id is forgotten in memory.
create function jobs_stay_ended() returns trigger language plpgsql as $$
begin
    raise exception 'job % is over and stays so', old.job_id using errcode = 'check_violation', constraint = 'jobs_stay_ended';
end $$;

create trigger jobs_stay_ended before update on jobs
    for each row when (old.ended_at is not null) execute function jobs_stay_ended();

-- Whether placement sees the fleet; one row.
create table sight (
    one boolean primary key default true constraint sight_is_one_row check (one),
    is_blind boolean not null,
    at timestamptz not null
);
