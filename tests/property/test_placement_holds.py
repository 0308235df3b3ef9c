"""Laws of giving slices away: whatever is proposed and in whatever order it ends, no card is ever given away twice."""

from collections import Counter

from gpuyard_contracts.messages.placement import AllocationCommittedV1, AllocationRefusedV1, AllocationReleasedV1, NodeStateV1
from gpuyard_contracts.messages.scheduler import PlaceV1
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.placement.fleet import Fleet, ended, place, refused, release, slice_of, started

MEMORY = 1000
CARDS = [("a", f"GPU-a-{number}") for number in range(2)] + [("b", f"GPU-b-{number}") for number in range(2)]

slices = st.tuples(
    st.sampled_from(CARDS), st.sampled_from([0, 1, 250, 333, 334, 500, 999, 1000]), st.sampled_from([0, 1, 300, 500, 700, 1000])
)
ranks = st.lists(slices, min_size=1, max_size=3)
steps = st.lists(st.tuples(st.integers(0, 7), ranks, st.integers(0, 5)), min_size=1, max_size=25)


def _plan(number: int, attempt: int, parts: list[tuple[tuple[str, str], int, int]]) -> PlaceV1:
    return place(f"j{number}", *((node, (slice_of(uuid, milli, memory),)) for (node, uuid), milli, memory in parts), attempt=attempt)


def _assert_no_card_is_given_twice(fleet: Fleet) -> None:
    """INV-1 and INV-4, counted from what was published alone."""
    milli: Counter[str] = Counter()
    memory: Counter[str] = Counter()
    wholes: Counter[str] = Counter()
    holders: Counter[str] = Counter()
    for node_id in ("a", "b"):
        for hold in fleet.state(node_id).holds:
            for part in hold.slices:
                milli[part.gpu_uuid] += part.milli
                memory[part.gpu_uuid] += part.memory_mib
                holders[part.gpu_uuid] += 1
                wholes[part.gpu_uuid] += part.milli == 1000
    assert all(value <= 1000 for value in milli.values())
    assert all(value <= 81920 for value in memory.values())
    assert all(holders[uuid] == 1 for uuid, whole in wholes.items() if whole)
    published = {(hold.allocation_id, hold.rank) for node in ("a", "b") for hold in fleet.state(node).holds}
    rows = {(row.allocation_id, row.rank) for row in fleet.h.rows("slices_held")}
    live = {(row.allocation_id, rank) for row in fleet.h.rows("allocations") if row.state != "released" for rank in range(len(row.ranks))}
    assert published == rows == live


@given(steps=steps)
def test_no_order_of_plans_and_ends_gives_a_card_away_twice(steps: list[tuple[int, list[tuple[tuple[str, str], int, int]], int]]) -> None:
    """What is published, what is in the rows and what is live always agree, and never exceed a card; every attempt gets one answer."""
    fleet = Fleet("a", "b")
    attempts: Counter[int] = Counter()
    plans: dict[int, PlaceV1] = {}
    for number, parts, what in steps:
        plan = plans.get(number)
        if what >= 3 or plan is None:
            attempts[number] += 1
            plans[number] = plan = _plan(number, attempts[number], parts)
            fleet.h.feed(plan)
        elif what == 0:
            fleet.h.feed(release(plan))
        else:
            for rank in plan.ranks:
                fleet.h.feed(started(plan, rank.rank, at=fleet.now), ended(plan, rank.rank, at=fleet.now, code=what - 1))
        _assert_no_card_is_given_twice(fleet)
    answers = Counter(found.allocation_id for kind in (AllocationCommittedV1, AllocationRefusedV1) for found in fleet.h.said_of(kind))
    assert set(answers.values()) == {1}
    assert sum(attempts.values()) == len(answers)


@st.composite
def _gang_stories(draw: st.DrawFn) -> list[tuple[int, str]]:
    """What the nodes may say about three ranks and what the scheduler may want, in any order, with repeats."""
    told = st.tuples(st.integers(0, 2), st.sampled_from(["started", "good", "bad", "stopped", "not-running", "refused", "release", "tick"]))
    return draw(st.lists(told, min_size=1, max_size=20))


def _tell(fleet: Fleet, plan: PlaceV1, rank: int, word: str) -> None:
    at = fleet.h.clock.advance(1)
    if word == "started":
        fleet.h.feed(started(plan, rank, at=at))
    elif word == "good":
        fleet.h.feed(ended(plan, rank, at=at, since=at))
    elif word == "bad":
        fleet.h.feed(ended(plan, rank, at=at, code=1, since=at))
    elif word in ("stopped", "not-running"):
        fleet.h.feed(ended(plan, rank, at=at, cause=word))
    elif word == "refused":
        fleet.h.feed(refused(plan, rank))
    elif word == "release":
        fleet.h.feed(release(plan))
    else:
        fleet.h.tick("overdue")


@given(story=_gang_stories())
def test_a_gang_always_ends_once_when_every_rank_is_confirmed_gone(story: list[tuple[int, str]]) -> None:
    """Any story, then the ends of all ranks: released exactly once, never before, with its end not before its start."""
    fleet = Fleet("a", "b")
    plan = place("j", *((node, (slice_of(uuid),)) for node, uuid in CARDS[:3]))
    fleet.h.feed(plan)
    gone: set[int] = set()
    for rank, word in story:
        was_started = (
            plan.allocation_id in fleet.store.allocations and fleet.store.allocations[plan.allocation_id].ranks[rank].status == "started"
        )
        _tell(fleet, plan, rank, word)
        if word in ("good", "bad", "stopped", "not-running") or (word == "refused" and not was_started):
            gone.add(rank)
        assert (len(fleet.h.said_of(AllocationReleasedV1)) == 1) == (len(gone) == 3)
        assert (fleet.held() == {}) == (len(gone) == 3)
    for rank in range(3):
        _tell(fleet, plan, rank, "stopped")
    (found,) = fleet.h.said_of(AllocationReleasedV1)
    assert found.started_at is None or found.started_at <= found.ended_at <= fleet.now
    stopped = {(stop.node_id, stop.rank) for stop in fleet.stops() if stop.grace_ms}
    assert stopped <= {(rank.node_id, rank.rank) for rank in plan.ranks}


@given(story=_gang_stories(), repeats=st.lists(st.integers(0, 100), max_size=10))
def test_repeats_and_restarts_change_nothing(story: list[tuple[int, str]], repeats: list[int]) -> None:
    """The same story with second deliveries in between and restarts of placement comes to the same rows and the same events."""

    def told(with_repeats: bool) -> tuple[list[str], list[object]]:
        fleet = Fleet("a", "b")
        plan = place("j", *((node, (slice_of(uuid),)) for node, uuid in CARDS[:3]))
        events = [fleet.h.envelope(plan, id="place")]
        fleet.h.feed(events[0])
        for number, (rank, word) in enumerate(story):
            if word in ("tick", "refused"):
                continue
            payload = release(plan) if word == "release" else _payload(fleet, plan, rank, word)
            events.append(fleet.h.envelope(payload, id=f"story-{number}"))
            fleet.h.feed(events[-1])
            if with_repeats:
                for back in repeats:
                    fleet.h.feed(events[back % len(events)])
                fleet.h.restart()
        states = [f"{found.node_id}@{found.version}" for found in fleet.h.said_of(NodeStateV1)]
        rows = sorted(fleet.h.rows("allocations") + fleet.h.rows("slices_held"), key=repr)
        return states, [*rows, *(found.data for found in fleet.h.envelopes)]

    assert told(with_repeats=True) == told(with_repeats=False)


def _payload(fleet: Fleet, plan: PlaceV1, rank: int, word: str) -> object:
    at = fleet.h.clock.advance(1)
    if word == "started":
        return started(plan, rank, at=at)
    if word in ("good", "bad"):
        return ended(plan, rank, at=at, since=at, code=int(word == "bad"))
    return ended(plan, rank, at=at, cause=word)
