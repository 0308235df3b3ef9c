-- Billing's facts. Instants are milliseconds since 1970 UTC, money is micro-units of one currency, intervals are half-open.

create table price_versions (
    version int primary key,
    currency text not null constraint price_versions_currency_code check (currency ~ '^[A-Z]{3}$'),
    valid_from_ms bigint not null,
    prices jsonb not null,
    request_id text not null
);

-- committed -> started -> final; what is final never changes again.
create table allocations (
    allocation_id text primary key,
    tenant text not null,
    job_id text not null,
    attempt int not null,
    shape jsonb not null,
    committed_ms bigint not null,
    started_ms bigint,
    ended_ms bigint,
    billed_ms bigint,
    segments int not null,
    held_ms bigint not null,
    gpu_ms bigint not null,
    amount_micros bigint not null,
    is_final boolean not null,
    reason text not null,
    traceparent text,
    constraint allocations_billed_from_their_start check (billed_ms is null or billed_ms >= started_ms),
    constraint allocations_cost_nothing_unstarted check (started_ms is not null or amount_micros = 0)
);
create index allocations_by_tenant on allocations (tenant, started_ms, allocation_id);
create index allocations_by_job on allocations (job_id);
create index allocations_live on allocations (allocation_id) where not is_final;

-- A commitment that is told once more after all is over must not open the allocation again: the update is left out.
create function keep_final() returns trigger language plpgsql as $$
begin
    return null;
end $$;
create trigger allocations_final_stay before update on allocations
    for each row when (old.is_final) execute function keep_final();

create table evidence (
    allocation_id text not null,
    rank int not null,
    boot_id text not null,
    gpu_ms bigint not null,
    held_ms bigint not null,
    confirmed_ms bigint not null,
    is_closed boolean not null,
    primary key (allocation_id, rank, boot_id)
);
create index evidence_live on evidence (allocation_id) where not is_closed;

-- Evidence that comes after its row has left the memory is folded here.
create function keep_greatest() returns trigger language plpgsql as $$
begin
    new.gpu_ms := greatest(new.gpu_ms, old.gpu_ms);
    new.held_ms := greatest(new.held_ms, old.held_ms);
    new.confirmed_ms := greatest(new.confirmed_ms, old.confirmed_ms);
    return new;
end $$;
create trigger evidence_only_grows before update on evidence
    for each row when (new.gpu_ms < old.gpu_ms or new.held_ms < old.held_ms or new.confirmed_ms < old.confirmed_ms)
    execute function keep_greatest();

create table early_facts (
    allocation_id text primary key,
    started_ms bigint,
    ended_ms bigint,
    is_released boolean not null,
    reason text not null,
    said_ms bigint not null,
    heard_ms bigint not null
);

create table balances (
    tenant text primary key,
    credit_micros bigint not null constraint balances_credit_is_given check (credit_micros >= 0),
    used_micros bigint not null,
    billed_until_ms bigint not null
);

create table grants (
    tenant text not null,
    request_id text not null,
    amount_micros bigint not null constraint grants_give check (amount_micros > 0),
    primary key (tenant, request_id)
);

-- The ledger.
create table transactions (
    transaction_id text primary key,
    kind text not null constraint transactions_kind check (kind in ('usage', 'correction', 'grant')),
    tenant text not null,
    job_id text,
    allocation_id text,
    segment int,
    price_version int,
    begin_ms bigint,
    end_ms bigint,
    held_ms bigint not null,
    gpu_ms bigint not null,
    memo text not null,
    booked_ms bigint not null,
    constraint transactions_one_per_segment unique (allocation_id, segment),
    constraint transactions_priced_interval check (
        kind = 'grant'
        or (job_id is not null and allocation_id is not null and segment is not null and price_version is not null
            and begin_ms < end_ms and abs(held_ms) = end_ms - begin_ms and (held_ms > 0) = (kind = 'usage'))
    )
);
create index transactions_by_job on transactions (job_id) where job_id is not null;

create table entries (
    entry_id bigint generated always as identity primary key,
    transaction_id text not null,
    tenant text not null,
    account text not null constraint entries_account check (account in ('receivable', 'revenue', 'credit', 'granted')),
    amount_micros bigint not null,
    currency text not null,
    constraint entries_one_per_account unique (transaction_id, account)
);
create index entries_by_tenant on entries (tenant, entry_id);

-- Entries of a transaction come in one statement and sum to zero; each belongs to a transaction that stands in the ledger.
create function entries_balance() returns trigger language plpgsql as $$
declare
    wrong text;
begin
    select transaction_id into wrong from added group by transaction_id, currency having sum(amount_micros) <> 0 limit 1;
    if found then
        raise exception 'the entries of transaction % do not sum to zero', wrong
            using errcode = 'check_violation', constraint = 'entries_sum_to_zero';
    end if;
    select transaction_id into wrong from added
        where not exists (select from transactions t where t.transaction_id = added.transaction_id) limit 1;
    if found then
        raise exception 'there is no transaction % for these entries', wrong
            using errcode = 'foreign_key_violation', constraint = 'entries_of_a_transaction';
    end if;
    return null;
end $$;
create trigger entries_sum_to_zero after insert on entries
    referencing new table as added for each statement execute function entries_balance();

create function refuse_change() returns trigger language plpgsql as $$
begin
    raise exception 'the ledger is never changed: book a correction instead (% on %)', tg_op, tg_table_name
        using errcode = 'restrict_violation', constraint = 'ledger_is_immutable';
end $$;
create trigger transactions_immutable before update or delete or truncate on transactions
    for each statement execute function refuse_change();
create trigger entries_immutable before update or delete or truncate on entries
    for each statement execute function refuse_change();
revoke update, delete, truncate on transactions, entries from current_user;
