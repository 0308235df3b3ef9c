"""Silence: unknown, lost, blind, and the full lease after we did not listen ourselves."""

from gpuyard_contracts.messages.placement import AllocationReleasedV1, FleetSightChangedV1, NodeStatusChangedV1
from gpuyard_placement.domain.model import Policy
from gpuyard_placement.store import PlacementStore

from tests.unit.placement.fleet import SECOND, Fleet, ended, gang, one, release, running, started


def _statuses(fleet: Fleet, node_id: str) -> list[str]:
    return [found.status for found in fleet.h.said_of(NodeStatusChangedV1) if found.node_id == node_id]


def test_a_silent_node_is_unknown_and_its_work_goes_on() -> None:
    """After 5 s: a new status and a new state; nothing is stopped, nothing is released."""
    fleet = Fleet("a", "b", "c")
    fleet.start(one("j"))
    fleet.pass_seconds(5, "b", "c")
    assert fleet.state("a").status == "ready"
    fleet.pass_seconds(1, "b", "c")
    assert (fleet.state("a").status, len(fleet.state("a").holds)) == ("unknown", 1)
    assert (fleet.stops(), fleet.h.said_of(AllocationReleasedV1)) == ([], [])


def test_a_node_that_is_heard_again_is_ready() -> None:
    """A short silence leaves no trace but its two events."""
    fleet = Fleet("a", "b", "c")
    plan = one("j")
    fleet.start(plan)
    fleet.pass_seconds(10, "b", "c")
    fleet.beat("a", running(plan, at=fleet.now))
    assert (_statuses(fleet, "a"), fleet.state("a").status) == (["unknown", "ready"], "ready")
    assert fleet.stops() == []


def test_a_node_is_lost_only_after_its_lease_and_a_margin() -> None:
    """At 17 s it may still run; after that its allocations are released, until its last heartbeat, and stop orders wait for its return."""
    fleet = Fleet("a", "b", "c")
    plan = one("j")
    fleet.start(plan)
    fleet.pass_seconds(2, "a", "b", "c", running={"a": (running(plan, at=fleet.now),)})
    seen_at = fleet.now
    fleet.pass_seconds(17, "b", "c")
    assert fleet.held() == {"GPU-a-0": 1000}
    fleet.pass_seconds(1, "b", "c")
    (found,) = fleet.h.said_of(AllocationReleasedV1)
    assert (found.reason, found.ended_at, found.started_at) == ("node-lost", seen_at, seen_at - 2 * SECOND)
    assert (fleet.held(), _statuses(fleet, "a")) == ({}, ["unknown", "lost"])
    assert [(stop.node_id, stop.attempt) for stop in fleet.stops()] == [("a", 1)]


def test_what_returns_with_a_lost_node_is_stopped() -> None:
    """B49: the copy on the returned node has no allocation; the words about it are ignored."""
    fleet = Fleet("a", "b", "c")
    plan = one("j")
    fleet.start(plan)
    fleet.pass_seconds(20, "b", "c")
    fleet.start(one("j", "GPU-b-0", "b", attempt=2))
    fleet.beat("a", running(plan, at=fleet.now))
    assert [(stop.node_id, stop.attempt) for stop in fleet.stops("a")] == [("a", 1), ("a", 1)]
    assert fleet.h.feed(ended(plan, at=fleet.now, cause="fenced")) == []
    assert (fleet.state("a").status, fleet.held()) == ("ready", {"GPU-b-0": 1000})


def test_a_gang_that_loses_a_node_frees_its_survivor_when_that_has_stopped() -> None:
    """B37: the survivor is stopped at once and does not hold its card for ever; billed until the lost rank's last sign of life."""
    fleet = Fleet("a", "b", "c")
    plan = gang("j", "a", "b")
    fleet.start(plan)
    lists = {"b": (running(plan, 1, at=fleet.now),)}
    seen_at = fleet.now
    fleet.pass_seconds(18, "b", "c", running=lists)
    assert [(stop.node_id, stop.rank) for stop in fleet.stops()] == [("a", 0), ("b", 1)]
    assert fleet.held() == {"GPU-a-0": 1000, "GPU-b-0": 1000}
    fleet.h.feed(ended(plan, 1, at=fleet.now, cause="stopped"))
    (found,) = fleet.h.said_of(AllocationReleasedV1)
    assert (found.reason, found.ended_at, fleet.held()) == ("node-lost", seen_at, {})


def test_a_stop_asked_of_a_silent_node_ends_with_its_loss() -> None:
    """A cancelled job on a node that never comes back is released as stopped."""
    fleet = Fleet("a", "b", "c")
    plan = one("j")
    fleet.start(plan)
    fleet.pass_seconds(8, "b", "c")
    fleet.h.feed(release(plan))
    fleet.pass_seconds(10, "b", "c")
    assert fleet.h.said_of(AllocationReleasedV1)[0].reason == "stopped"


def test_when_most_fall_silent_it_is_we_who_are_blind() -> None:
    """Two of three: said once, nothing is lost however long it takes, and a restart does not change that."""
    fleet = Fleet("a", "b", "c")
    fleet.start(one("j"))
    fleet.pass_seconds(6, "c")
    (sight,) = fleet.h.said_of(FleetSightChangedV1)
    assert (sight.is_blind, sight.silent_nodes, sight.nodes) == (True, 2, 3)
    fleet.pass_seconds(100, "c")
    fleet.h.restart()
    fleet.pass_seconds(100, "c")
    assert fleet.held() == {"GPU-a-0": 1000}
    assert len(fleet.h.said_of(FleetSightChangedV1)) == 1


def test_when_we_see_again_the_silent_ones_get_a_full_lease() -> None:
    """The one that stays silent is lost a whole lease after sight came back, not at once."""
    fleet = Fleet("a", "b", "c")
    fleet.start(one("j"))
    fleet.pass_seconds(60, "c")
    fleet.beat("b")
    fleet.pass_seconds(1, "b", "c")
    assert [found.is_blind for found in fleet.h.said_of(FleetSightChangedV1)] == [True, False]
    fleet.pass_seconds(17, "b", "c")
    assert fleet.state("a").status == "unknown"
    fleet.pass_seconds(1, "b", "c")
    assert fleet.state("a").status == "lost"


def test_half_of_the_fleet_or_a_single_node_opens_no_breaker() -> None:
    """One of two silent nodes is lost after its lease; so is the only node."""
    fleet = Fleet("a", "b")
    fleet.pass_seconds(18, "b")
    assert fleet.state("a").status == "lost"
    lone = Fleet("a")
    lone.pass_seconds(18)
    assert lone.state("a").status == "lost"
    assert lone.h.said_of(FleetSightChangedV1) == []


def test_nodes_that_were_lost_long_ago_do_not_hide_blindness() -> None:
    """What counts is whom we heard until now: two of the two that were left."""
    fleet = Fleet("a", "b", "c", "d")
    fleet.pass_seconds(20, "c", "d")
    assert (fleet.state("a").status, fleet.state("b").status) == ("lost", "lost")
    fleet.pass_seconds(60)
    assert (fleet.state("c").status, fleet.state("d").status) == ("unknown", "unknown")


def test_a_restart_gives_every_node_a_full_lease() -> None:
    """It was we who did not listen: two minutes of our own absence lose nobody."""
    fleet = Fleet("a", "b", "c")
    fleet.start(one("j"))
    fleet.h.clock.advance(120)
    fleet.h.restart()
    fleet.pass_seconds(5, "b", "c")
    assert fleet.state("a").status == "ready"
    fleet.pass_seconds(12, "b", "c")
    assert fleet.held() == {"GPU-a-0": 1000}
    fleet.pass_seconds(1, "b", "c")
    assert fleet.held() == {}


def test_a_gap_in_our_own_watch_is_our_deafness() -> None:
    """A process that was held up for a minute finds everybody silent, and gives them a full lease instead."""
    fleet = Fleet("a", "b", "c")
    fleet.pass_seconds(2, "a", "b", "c")
    fleet.h.clock.advance(60)
    fleet.h.tick("watch")
    assert fleet.h.said_of(NodeStatusChangedV1) == []


def test_the_last_sign_of_life_outlives_our_restart() -> None:
    """It is written down every few seconds: the bill of work on a node that dies while we are away ends there."""
    fleet = Fleet("a", "b", "c")
    plan = one("j")
    fleet.start(plan)
    fleet.pass_seconds(9, "a", "b", "c", running={"a": (running(plan, at=fleet.now),)})
    fleet.h.tick("contact")
    seen_at = fleet.now
    fleet.h.clock.advance(60)
    fleet.h.restart()
    fleet.pass_seconds(20, "b", "c")
    (found,) = fleet.h.said_of(AllocationReleasedV1)
    assert (found.reason, found.ended_at) == ("node-lost", seen_at)


def test_an_order_that_was_never_answered_costs_nothing_when_its_node_is_lost() -> None:
    """Committed, not started: released without a start."""
    fleet = Fleet("a", "b", "c")
    plan = one("j")
    fleet.h.feed(plan)
    fleet.pass_seconds(18, "b", "c")
    assert fleet.h.said_of(AllocationReleasedV1)[0].started_at is None
    assert fleet.h.feed(started(plan, at=fleet.now)) != []
    assert fleet.held() == {}


def test_rows_that_are_read_anew_in_a_living_process_make_nobody_silent() -> None:
    """After a broken commit the store is new and we have listened all the time: who was silent stays so, who spoke was heard."""
    fleet = Fleet("a", "b", "c")
    plan = one("j")
    fleet.start(plan)
    fleet.pass_seconds(4, "b", "c")
    fresh = PlacementStore(Policy())
    fresh.inherit(fleet.store)
    assert fresh.last_heard("b") == fleet.now
    assert fresh.last_heard("a") == fleet.now - 4 * SECOND
    assert fresh.listening_since == fleet.store.listening_since
    assert fresh.heard["b"].sequence == fleet.sequences["b"]
