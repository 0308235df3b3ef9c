-- placement: who holds which part of which GPU.

create table nodes (
    node_id text primary key,
    status text not null constraint nodes_status_is_known check (status in ('ready', 'unknown', 'lost')),
    boot_id text not null,
    facts json not null,
    lost_gpus json not null
);

-- What changes often of a node, apart from its facts: the version of its published state only ever grows.
create table node_marks (
    node_id text primary key,
    version bigint not null,
    heard_at timestamptz not null,
    agent_id text not null,
    past_agents json not null
);

-- One row per holder; gpu_uuid '' is the whole node.
create table cordons (
    node_id text not null,
    holder text not null,
    gpu_uuid text not null,
    reason text not null,
    is_drain boolean not null,
    at timestamptz not null,
    constraint cordons_one_row_per_holder primary key (node_id, holder, gpu_uuid)
);

-- committed → starting → running → stopping → released; any of them → released when the last rank is gone; never back.
-- terms: what never changes (plan, cards, port, grace, start_by); ranks: one array per rank; stop: why it goes.
create table allocations (
    allocation_id text primary key,
    tenant text not null,
    job_id text not null,
    attempt integer not null,
    state text not null
        constraint allocations_state_is_known check (state in ('committed', 'starting', 'running', 'stopping', 'released')),
    terms json not null,
    ranks json not null,
    stop json,
    committed_at timestamptz not null,
    started_at timestamptz,
    ended_at timestamptz,
    constraint allocations_end_when_released check ((state = 'released') = (ended_at is not null)),
    constraint allocations_end_after_start check (ended_at >= started_at)
);

-- INV-6: at most one attempt of a job holds anything.
create unique index allocations_one_live_attempt_per_job on allocations (job_id) where state <> 'released';
create index allocations_by_end on allocations (ended_at) where state = 'released';

create function allocations_stay_released() returns trigger language plpgsql as $$
begin
    raise exception 'allocation % is released and stays so', old.allocation_id
        using errcode = 'check_violation', constraint = 'allocations_stay_released';
end $$;

create trigger allocations_stay_released before update on allocations
    for each row when (old.state = 'released' and new.state <> 'released') execute function allocations_stay_released();

-- INV-1: what is held of each card. A row lives as long as its slice is held.
create table slices_held (
    gpu_uuid text not null,
    allocation_id text not null,
    rank integer not null,
    node_id text not null,
    milli integer not null constraint slices_held_are_part_of_a_card check (milli between 0 and 1000),
    memory_mib bigint not null constraint slices_held_have_memory check (memory_mib >= 0),
    capacity_mib bigint not null,
    constraint slices_held_once_per_rank primary key (gpu_uuid, allocation_id, rank)
);

create unique index slices_held_one_owner_per_whole_card on slices_held (gpu_uuid) where milli = 1000;

-- The sum of slices_held per card, kept by triggers on it and by nothing else, so that the sums can be constraints.
create table gpu_load (
    gpu_uuid text primary key,
    milli integer not null,
    memory_mib bigint not null,
    capacity_mib bigint not null,
    holders integer not null,
    whole integer not null,
    constraint gpu_load_no_more_compute_than_the_card check (milli between 0 and 1000),
    constraint gpu_load_no_more_memory_than_the_card check (memory_mib between 0 and capacity_mib),
    constraint gpu_load_whole_card_is_held_alone check (whole = 0 or holders = 1)
);

create function gpu_load_add() returns trigger language plpgsql as $$
begin
    insert into gpu_load as load (gpu_uuid, milli, memory_mib, capacity_mib, holders, whole)
    select gpu_uuid, sum(milli), sum(memory_mib), max(capacity_mib), count(*), count(*) filter (where milli = 1000)
    from added group by gpu_uuid
    on conflict (gpu_uuid) do update set
        milli = load.milli + excluded.milli,
        memory_mib = load.memory_mib + excluded.memory_mib,
        capacity_mib = excluded.capacity_mib,
        holders = load.holders + excluded.holders,
        whole = load.whole + excluded.whole;
    return null;
end $$;

create function gpu_load_take() returns trigger language plpgsql as $$
begin
    update gpu_load as load set
        milli = load.milli - gone.milli,
        memory_mib = load.memory_mib - gone.memory_mib,
        holders = load.holders - gone.holders,
        whole = load.whole - gone.whole
    from (
        select gpu_uuid, sum(milli)::integer as milli, sum(memory_mib)::bigint as memory_mib, count(*)::integer as holders,
            (count(*) filter (where milli = 1000))::integer as whole
        from taken group by gpu_uuid
    ) as gone
    where load.gpu_uuid = gone.gpu_uuid;
    return null;
end $$;

create function slices_held_stay_as_they_are() returns trigger language plpgsql as $$
begin
    raise exception 'the slice of % that rank % of % holds cannot change', old.gpu_uuid, old.rank, old.allocation_id
        using errcode = 'check_violation', constraint = 'slices_held_stay_as_they_are';
end $$;

create trigger slices_held_are_added after insert on slices_held
    referencing new table as added for each statement execute function gpu_load_add();
create trigger slices_held_are_taken after delete on slices_held
    referencing old table as taken for each statement execute function gpu_load_take();
create trigger slices_held_stay_as_they_are before update on slices_held
    for each row when (old is distinct from new) execute function slices_held_stay_as_they_are();

-- Attempts of jobs (up to `attempt`) and incidents that may not come back, for a while.
create table tombstones (
    key text primary key,
    attempt integer not null,
    at timestamptz not null
);

create table fleet_sight (
    one boolean primary key constraint fleet_sight_is_one_row check (one),
    is_blind boolean not null,
    at timestamptz not null
);
