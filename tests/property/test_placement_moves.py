"""Laws of an allocation's life, on the bare state machine."""

from datetime import UTC, datetime, timedelta
from typing import Any

from gpuyard_placement.domain.model import Allocation, RankPlan, RankState, Terms
from gpuyard_placement.domain.rendezvous import free_port, places
from gpuyard_placement.domain.states import (
    MOVES,
    RANK_MOVES,
    Ignored,
    RankEnded,
    RankRefused,
    RanksLost,
    RankStarted,
    StopAsked,
    StopUnanswered,
    move,
)
from hypothesis import given
from hypothesis import strategies as st

AT = datetime(2030, 1, 1, tzinfo=UTC)
NODES = ("a", "b", "a")

instants = st.integers(-100, 200).map(lambda seconds: AT + timedelta(seconds=seconds))
ranks = st.integers(0, 4)
nodes = st.sampled_from(["a", "b", "elsewhere"])

causes: st.SearchStrategy[Any] = st.one_of(
    st.builds(RankStarted, ranks, nodes, instants),
    st.builds(
        RankEnded,
        ranks,
        nodes,
        st.sampled_from(["exited", "stopped", "fenced", "vanished", "start-failed", "not-running"]),
        instants,
        instants,
        started_at=st.none() | instants,
        exit_code=st.none() | st.integers(0, 2),
        signal=st.none() | st.integers(1, 15),
    ),
    st.builds(RankRefused, ranks, nodes, st.just("no"), st.booleans()),
    st.builds(
        RanksLost,
        nodes,
        st.sampled_from(["node-lost", "node-restarted", "process-vanished"]),
        st.just(""),
        st.dictionaries(ranks, instants),
    ),
    st.builds(StopAsked, st.sampled_from(["stopped", "gpu-fault", "node-drained"]), st.just("")),
    st.builds(StopUnanswered, st.lists(st.integers(0, 2), max_size=3).map(tuple)),
)


def _new() -> Allocation:
    plan = tuple(RankPlan(rank, node, (), 1, 1) for rank, node in enumerate(NODES))
    return Allocation("job-x-1", "acme", "job-x", 1, "committed", Terms(plan, (), 20_000, 1000, AT), (RankState(),) * 3, AT)


@given(told=st.lists(causes, max_size=25))
def test_every_move_is_in_the_table_and_the_first_reason_stays(told: list[Any]) -> None:
    """States and ranks move by their tables only; each rank is told to stop when a reason comes up; the end is never before the start."""
    allocation, now = _new(), AT
    told_ranks: set[int] = set()
    for cause in told:
        now += timedelta(seconds=7)
        found = move(allocation, cause, now)
        if isinstance(found, Ignored):
            continue
        after = found.now
        assert after.state in MOVES[allocation.state]
        for old, new in zip(allocation.ranks, after.ranks, strict=True):
            assert old == new or new.status in RANK_MOVES[old.status]
        if allocation.stop is not None and after.state != "released":
            assert after.stop is not None
            assert after.stop.reason == allocation.stop.reason
        assert all(0 <= rank < 3 for rank in found.tell)
        told_ranks.update(found.tell)
        if after.stop is not None and after.state == "stopping":
            assert all(rank in told_ranks for rank, state in enumerate(after.ranks) if not state.is_gone)
        assert (after.state == "released") == all(state.is_gone for state in after.ranks)
        assert found.has_started == (allocation.started_at is None and after.started_at is not None and allocation.stop is None)
        allocation = after
    if allocation.state == "released":
        assert allocation.ended_at is not None
        assert allocation.stop is not None
        assert AT <= (allocation.started_at or AT) <= allocation.ended_at <= now
        assert isinstance(move(allocation, StopAsked("stopped", ""), now), Ignored)


@given(told=st.lists(causes, max_size=10), cause=causes)
def test_a_cause_that_comes_twice_moves_once(told: list[Any], cause: Any) -> None:
    """All but asking again, which is meant to repeat."""
    allocation, now = _new(), AT
    for earlier in told:
        found = move(allocation, earlier, now)
        allocation = allocation if isinstance(found, Ignored) else found.now
    first = move(allocation, cause, now)
    if not isinstance(first, Ignored) and not isinstance(cause, StopUnanswered):
        assert isinstance(move(first.now, cause, now), Ignored)


@given(names=st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=30, unique=True), count=st.integers(1, 12))
def test_ports_are_never_shared_and_run_out_only_when_all_are_taken(names: list[str], count: int) -> None:
    """Each live allocation of a node has a port of its own; None comes exactly when none is left."""
    ports, taken = range(20_000, 20_000 + count), set[int]()
    for name in names:
        port = free_port(name, taken.__contains__, ports)
        assert (port is None) == (len(taken) == count)
        if port is not None:
            assert port in ports
            assert port not in taken
            taken.add(port)


@given(nodes_of=st.lists(st.sampled_from("abc"), min_size=1, max_size=12))
def test_local_ranks_number_each_node_from_zero(nodes_of: list[str]) -> None:
    """On each node the local ranks are 0 … n-1, and every rank knows n."""
    found = places([RankPlan(rank, node, (), 1, 1) for rank, node in enumerate(nodes_of)])
    for node in set(nodes_of):
        here = [place for place, where in zip(found, nodes_of, strict=True) if where == node]
        assert [place.local_rank for place in here] == list(range(len(here)))
        assert {place.local_world_size for place in here} == {len(here)}
