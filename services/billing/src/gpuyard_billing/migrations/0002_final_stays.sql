-- A final allocation has left billing's memory, so only the database knows that it is over. An event of it that comes once more under
-- another id is told so: a commitment is refused whole (left out silently, it would live on in memory and be billed a second time,
-- which the ledger then refuses over and over), and what else is said of it is not kept as if its commitment were still to come.
create or replace function keep_final() returns trigger language plpgsql as $$
begin
    raise exception 'allocation % is final: what is told of it once more is not taken', old.allocation_id
        using errcode = 'check_violation', constraint = 'allocations_final_stay';
end $$;

create function forget_final() returns trigger language plpgsql as $$
begin
    if exists (select from allocations where allocation_id = new.allocation_id and is_final) then
        return null;
    end if;
    return new;
end $$;
create trigger early_facts_of_open_allocations before insert on early_facts for each row execute function forget_final();

delete from early_facts e where exists (select from allocations a where a.allocation_id = e.allocation_id and a.is_final);
