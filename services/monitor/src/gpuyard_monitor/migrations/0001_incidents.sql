-- Monitor's facts: what it knows of nodes, and incidents.

create table nodes (
    node_id text primary key,
    cards jsonb not null,
    boot_id text not null,
    booted_at timestamptz,
    status text not null constraint nodes_status check (status in ('ready', 'unknown', 'lost')),
    status_at timestamptz
);

create table incidents (
    incident_id text primary key,
    kind text not null constraint incidents_kind check (
        kind in ('gpu-hot', 'ecc-uncorrectable', 'xid-fatal', 'gpu-lost', 'node-silent', 'observer-hung', 'telemetry-stale')
    ),
    node_id text not null,
    gpu_uuid text,
    action text not null constraint incidents_action check (action in ('none', 'cordon', 'evict')),
    evidence text not null,
    boot_id text not null,
    opened_at timestamptz not null,
    closed_at timestamptz,
    closing_evidence text not null,
    constraint incidents_end_after_they_begin check (closed_at >= opened_at)
);
-- open -> closed; one open incident for each fault of each card.
create unique index incidents_one_open_per_fault on incidents (node_id, coalesce(gpu_uuid, ''), kind) where closed_at is null;
create index incidents_by_age on incidents (opened_at desc, incident_id);
