"""What must hold in the end, when nothing goes wrong any more and everything has come to rest.

Every request has one outcome, and the outcome is what truly happened on the machines. Nothing is held, nothing runs, nobody waits, nothing
was lost on the way. The money is what the intervals say, worked out anew from placement's events in exact fractions.
"""

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

from gpuyard_contracts.envelope import Malformed, decode
from gpuyard_contracts.messages.billing import LedgerPostedV1
from gpuyard_contracts.messages.placement import AllocationCommittedV1, AllocationReleasedV1, AllocationStartedV1, StopV1
from gpuyard_contracts.messages.scheduler import JobRejectedV1
from gpuyard_contracts.permissions import is_allowed
from gpuyard_contracts.topology import durables_of
from pydantic_core import from_json

from tests.simulation.checkers import Checkers
from tests.simulation.machine import Process
from tests.simulation.record import Record, Stored, must

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HOUR_MS = 3_600_000
LATE = timedelta(seconds=1)
STRAY = "no live allocation"
HAZY = timedelta(seconds=120)


def check_rest(record: Record, checkers: Checkers) -> None:
    """All of it. Raises Violation."""
    nothing_is_left(record, checkers)
    every_request_has_one_outcome(record, checkers)
    outcomes_are_true(record, checkers)
    views_agree(record, checkers)
    memory_is_what_the_databases_hold(record)
    traces_are_whole(record)
    nothing_is_lost(record)
    money_is_right(record)
    intervals_are_true(record)


def unrest(record: Record) -> str:
    """What is still under way, in words; empty at rest."""
    world = record.world
    jobs = record.rows("scheduler", "jobs").values()
    for what, found in (
        ("live jobs", [f"{row.job_id} {row.state}" for row in jobs if row.ended_at is None]),
        ("parked requests", list(record.rows("scheduler", "parked"))),
        ("held slices", list(record.rows("placement", "slices_held"))),
        ("processes", [key for agent in record.agents for key in agent.machine.running]),
        ("unsaid events", [event_id for agent in record.agents for event_id in agent.journal.unsaid]),
        ("open incidents", [row.kind for row in record.rows("monitor", "incidents").values() if row.closed_at is None]),
        ("cordons", list(record.rows("placement", "cordons"))),
        ("unpublished units", [name for name, database in world.databases.items() if database.outbox]),
        ("silent nodes", [row.node_id for row in record.rows("placement", "nodes").values() if row.status != "ready"]),
        ("lost cards", [row.node_id for row in record.rows("placement", "nodes").values() if row.lost_gpus]),
        ("posts without an answer", [job.job_id for job in record.tenants.posts]),
        ("messages", [name for name, durable in world.bus.durables.items() if durable.pending()]),
    ):
        if found:
            return f"{what}: {found[:5]}"
    return ""


def nothing_is_left(record: Record, checkers: Checkers) -> None:
    """Nothing is held by anybody's word, and nothing runs."""
    must(not checkers.holds.live, "INV-4", f"never released: {sorted(checkers.holds.live)}")
    for agent in record.agents:
        must(not agent.machine.running, "INV-5", f"{sorted(agent.machine.running)} run on {agent.node_id}")
        must(not agent.journal.orders, "INV-5", f"{agent.node_id} waits for {sorted(agent.journal.orders)}")


def every_request_has_one_outcome(record: Record, checkers: Checkers) -> None:
    """INV-3: accepted and ended, or rejected; never both, never neither."""
    jobs = checkers.lives
    must(set(jobs.ended) == jobs.queued, "INV-3", f"accepted and not ended: {sorted(jobs.queued - set(jobs.ended))}")
    for job_id, asked in record.tenants.asked.items():
        outcomes = (job_id in jobs.queued, job_id in jobs.rejected)
        must(any(outcomes), "INV-3", f"{job_id} ({asked.kind}) was asked for and never answered")
        if asked.kind in ("ghost", "malformed"):
            must(outcomes == (False, True), "INV-3", f"{job_id} ({asked.kind}) was accepted")
    strangers = (jobs.queued | jobs.rejected) - set(record.tenants.asked)
    must(not strangers, "INV-3", f"jobs that nobody asked for: {sorted(strangers)}")


def _of_attempt(record: Record, job_id: str, attempt: int) -> list[Process]:
    every = (process for agent in record.agents for process in agent.machine.ever)
    return [found for found in every if found.order.job_id == job_id and found.order.attempt == attempt]


def outcomes_are_true(record: Record, checkers: Checkers) -> None:
    """What is said of a job's end is what truly happened."""
    for job_id, ended in checkers.lives.ended.items():
        asked = record.tenants.asked[job_id]
        last = _of_attempt(record, job_id, ended.attempt)
        told = f"{job_id} ({asked.kind}): {ended.state}, {ended.reason}, {ended.detail}"
        must(ended.reason, "INV-3", told)
        if ended.state == "succeeded":
            is_whole = asked.spec is not None and len(last) == asked.spec.ranks and all(found.is_clean for found in last)
            must(is_whole, "truth", f"{told}; its ranks: {[(found.how, found.code) for found in last]}")
        elif ended.state == "cancelled":
            must(asked.is_cancelled and ended.reason in ("cancelled-by-tenant", "cancelled-by-operator"), "truth", told)
        elif ended.state == "expired":
            must(asked.spec is not None and asked.spec.max_seconds is not None, "truth", told)
        elif ended.reason == "exit-code":
            must(any(found.how == "exited" and found.code != 0 for found in last), "truth", told)
        elif ended.reason == "start-failed":
            must(asked.kind == "permanent" or not any(found.is_clean for found in last), "truth", told)


def traces_are_whole(record: Record) -> None:
    """From the acceptance to the ledger everything of a job lies in one trace, under the job's id."""
    traces: dict[str, set[str]] = {}
    for events in record.committed.values():
        for event in events:
            job_id = getattr(event.data, "job_id", None)
            # Who is turned away may ask again, in another trace; a stray that a heartbeat shows is stopped in the heartbeat's.
            is_apart = isinstance(event.data, JobRejectedV1) or (isinstance(event.data, StopV1) and event.data.reason == STRAY)
            if job_id is None or event.type.startswith("gpuyard.req.") or is_apart:
                continue
            must(event.correlation_id == job_id, "trace", f"{event.type} of {job_id} is correlated with {event.correlation_id}")
            must(event.traceparent is not None, "trace", f"{event.type} of {job_id} has no trace")
            traces.setdefault(job_id, set()).add((event.traceparent or "").split("-")[1])
    for job_id, found in traces.items():
        is_asked = job_id in record.tenants.asked and record.tenants.asked[job_id].spec is not None
        must(len(found) == 1 or not is_asked, "trace", f"{job_id} lies in {len(found)} traces")


def memory_is_what_the_databases_hold(record: Record) -> None:
    """What every service has in memory are its committed rows."""
    for name, member in record.world.members.items():
        for table in member.store.tables:
            if table.name == "requests":
                continue  # of these only the ids are kept
            memory = {table.key(row): row for row in table.values()}
            committed = {key: row for key, row in record.rows(name, table.name).items() if table.keep(row)}
            must(memory == committed, "views", f"{name} has other {table.name} in memory than in its database")


def views_agree(record: Record, checkers: Checkers) -> None:
    """Scheduler, api and placement see the same empty fleet and the same ended jobs."""
    store = record.world.store("scheduler")
    for node_id, node in store.fleet.nodes.items():
        must(not node.told, "views", f"the scheduler sees holds on {node_id}: {sorted(node.told)}")
        must(all(card.holds == 0 for card in node.cards.values()), "views", f"the scheduler counts holds on {node_id}")
    must(not any(store.fleet.planned.values()), "views", f"the scheduler has plans left: {store.fleet.planned}")
    must(not any((used.milli, used.mib, used.live) != (0, 0, 0) for used in store.usage.by_tenant.values()), "INV-8", "use is left over")
    must(len(store.queue) == 0, "views", "somebody waits")
    for job_id, ended in checkers.lives.ended.items():
        row = record.rows("api", "jobs").get(job_id)
        shown = None if row is None else (row.state, row.reason)
        must(shown == (ended.state, ended.reason), "views", f"api shows {shown} for {job_id}, it is {(ended.state, ended.reason)}")
    true = {agent.node_id: {card.uuid for card in agent.machine.cards} for agent in record.agents}
    shown_cards = {name: {card.uuid for card in state.facts.gpus} for name, state in checkers.holds.states.items()}
    must(shown_cards == true, "views", f"the fleet is {true}, placement shows {shown_cards}")


def nothing_is_lost(record: Record) -> None:
    """INV-10: every message was handled or dead-lettered by everyone it was for, once; everything said is on the bus."""
    ids = {stored.event_id for found in record.stored.values() for stored in found}
    for service, events in record.committed.items():
        missing = {event.id for event in events if not _is_work(event.subject)} - ids
        must(not missing, "INV-10", f"{service} committed and never published {sorted(missing)[:3]}")
    letters = Counter(_letter_of(record, stored) for stored in record.stored.get("DLQ", ()))
    for service, member in record.world.members.items():
        inbox = record.world.databases[service].inbox
        for durable in durables_of(service):
            for message in record.world.bus.streams[durable.stream].messages.values():
                _must_be_done(service, durable.stream, message, member.service.handlers, inbox, letters, durable.filters)
    strange = [place for place in letters if place[:2] != ("scheduler", "REQUESTS")]
    must(not strange, "INV-10", f"dead letters of messages that all are in order: {strange}")
    unreadable = len(letters)
    must(unreadable == record.tenants.unreadable, "INV-10", f"{record.tenants.unreadable} unreadable requests, {unreadable} letters")
    told = Counter(row.event_id for row in record.journal("api", "job_events"))
    twice = [event_id for event_id, times in told.items() if times > 1]
    must(not twice, "INV-10", f"api has kept {len(twice)} events twice: {twice[:3]}")


def _is_work(subject: str) -> bool:
    """On a work queue what is done is gone; on a state stream what is old is."""
    return subject.startswith(("gpuyard.cmd.", "gpuyard.state."))


def _letter_of(record: Record, stored: Stored) -> tuple[str, str, int]:
    """Who wrote a dead letter, and of which message: stream and sequence."""
    content = from_json(record.world.bus.streams["DLQ"].messages[stored.sequence].body)
    return content["service"], content["stream"], content["sequence"]


def _must_be_done(
    service: str, stream: str, message: Any, handlers: Any, inbox: set[str], letters: Counter[tuple[str, str, int]], filters: Iterable[str]
) -> None:
    if not is_allowed(tuple(filters), message.subject):
        return
    try:
        event = decode(message.subject, message.headers, message.body, sequence=message.sequence, arrived=message.arrived)
    except Malformed:
        must(letters[service, stream, message.sequence] == 1, "INV-10", f"{service} lost unreadable #{message.sequence} of {stream}")
        return
    if type(event.data) in handlers:
        must(event.inbox_key in inbox, "INV-10", f"{service} never handled {event.type} {event.id} of {stream}")


def money_is_right(record: Record) -> None:
    """INV-7: the ledger is what the intervals cost, each allocation finally billed exactly once."""
    commits = {data.allocation_id: data for data in record.said_of("placement", AllocationCommittedV1)}
    released = {data.allocation_id: data for data in record.said_of("placement", AllocationReleasedV1)}
    started = {data.allocation_id: data for data in record.said_of("placement", AllocationStartedV1)}
    finals = Counter(data.allocation_id for data in record.said_of("billing", LedgerPostedV1) if data.is_final)
    ran = {name for name, data in released.items() if data.started_at is not None}
    must(set(released) == set(commits), "INV-4", "not everything that was committed was released")
    must(set(started) <= ran, "INV-7", f"started, and released as never started: {sorted(set(started) - ran)}")
    must(finals == Counter(dict.fromkeys(ran, 1)), "INV-7", f"final bills {finals}, for {len(ran)} allocations")
    owed: dict[str, int] = {}
    for row in record.journal("billing", "transactions"):
        if row.allocation_id is not None:
            owed.setdefault(row.allocation_id, 0)
    amounts = {entry.transaction_id: entry.amount_micros for entry in record.journal("billing", "entries") if entry.account == "receivable"}
    for row in record.journal("billing", "transactions"):
        if row.allocation_id is not None:
            owed[row.allocation_id] += amounts[row.transaction_id]
    versions = sorted(record.rows("billing", "price_versions").values(), key=lambda row: row.version)
    for name, data in released.items():
        expected = _cost(commits[name], data, versions)
        must(owed.get(name, 0) == expected, "INV-7", f"{name} costs {expected} micros, the ledger says {owed.get(name, 0)}")
    must(set(owed) <= set(released), "INV-7", f"billed and never held: {sorted(set(owed) - set(released))}")


def _ms(at: datetime) -> int:
    return (at - EPOCH) // timedelta(milliseconds=1)


def _cost(commit: AllocationCommittedV1, released: AllocationReleasedV1, versions: list[Any]) -> int:
    """Micro-units of one interval: for each price version in force, one exact fraction, rounded once (half to even)."""
    if released.started_at is None:
        return 0
    begin, end = _ms(released.started_at), _ms(released.ended_at)
    total = 0
    for version in versions:
        until = min([end, *(other.valid_from_ms for other in versions if other.version > version.version)])
        length = until - max(begin, version.valid_from_ms)
        if length > 0:
            total += round(Fraction(length, HOUR_MS) * _rate(commit, dict(version.prices)))
    return total


def _rate(commit: AllocationCommittedV1, prices: dict[str, int]) -> Fraction:
    rate = Fraction(0)
    for rank in commit.ranks:
        for part in rank.slices:
            memory = Fraction(part.memory_mib, commit.gpu_memory_mib[part.gpu_uuid])
            share = Fraction(1) if part.milli == 1000 else min(Fraction(1), max(Fraction(part.milli, 1000), memory))
            rate += share * _price(commit.models[part.gpu_uuid].lower(), prices)
    return rate


def _price(model: str, prices: dict[str, int]) -> int:
    fitting = [name for name in prices if model == name.lower() or model.startswith(name.lower() + "-")]
    return prices[max(fitting, key=len)] if fitting else prices["*"]


def intervals_are_true(record: Record) -> None:
    """Nobody pays for time in which nothing of the allocation ran: what is billed lies within what truly ran.

    A heartbeat proves life at the instant at which it is taken in, so an end that nobody saw may be late by as long as one was under way. A
    placement that was started again knows of each node, not of each rank, when it was last heard.
    """
    longest = max(agent.longest_ask for agent in record.agents)
    commits = {data.allocation_id: data for data in record.said_of("placement", AllocationCommittedV1)}
    by_allocation: dict[str, list[tuple[Process, float]]] = {}
    for agent in record.agents:
        for process in agent.machine.ever:
            by_allocation.setdefault(process.order.allocation_id, []).append((process, agent.voice.skew))
    for data in record.said_of("placement", AllocationReleasedV1):
        if data.started_at is None:
            continue
        found = by_allocation.get(data.allocation_id, [])
        must(found, "truth", f"{data.allocation_id} is billed and nothing of it ever ran")
        first, last = min(process.started_at for process, _ in found), max(process.ended_at for process, _ in found if process.ended_at)
        is_hazy = any(commits[data.allocation_id].at < at for at in record.placement_starts)
        slack = LATE + longest + (HAZY if is_hazy else timedelta(0)) + timedelta(seconds=2 * max(abs(skew) for _, skew in found))
        told = f"{data.allocation_id} ({data.reason}) is billed from {data.started_at} to {data.ended_at}, it ran from {first} to {last}"
        must(data.started_at >= first - slack and data.ended_at <= last + slack, "truth", told)
