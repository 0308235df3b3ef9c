"""The fleet: what placement shows and what we have planned are one truth, whichever comes first."""

from gpuyard_scheduler.domain.fleet import Fleet
from gpuyard_scheduler.domain.model import HoldFacts, NodeFacts, RankPlan, Slice

from tests.unit.scheduler.scheduler_world import node

PLAN = RankPlan(0, "a", (Slice("GPU-a-0", 1000, 81_920),), 1000, 1024)
HOLD = HoldFacts("job-x-1", 0, PLAN.slices, 1000, 1024)


def _free(fleet: Fleet) -> tuple[int, int]:
    """Empty open cards, and free CPU, of node a."""
    found = fleet.nodes["a"]
    return sum(bank.mask.bit_count() for bank in found.banks), found.cpu_free


def _filed(fleet: Fleet) -> int:
    """Empty cards as the search sees them."""
    fleet.board.catch_up()
    return int(fleet.board.columns.empty.sum())


def test_a_plan_holds_until_it_is_shown_and_after() -> None:
    """Planned, shown by placement, let go, no longer shown: held exactly once all the way."""
    fleet = Fleet.of([node("a", 2)])
    fleet.hold("job-x-1", PLAN, None)
    assert _free(fleet) == (1, 127_000)
    fleet.put(node("a", 2, version=2, holds=(HOLD,)))
    assert _free(fleet) == (1, 127_000)
    fleet.let_go("job-x-1", PLAN)
    assert _free(fleet) == (1, 127_000), "placement still shows it"
    fleet.put(node("a", 2, version=3))
    assert _free(fleet) == (2, 128_000)
    assert _filed(fleet) == 2


def test_a_release_that_is_shown_before_it_is_told_stays_held() -> None:
    """The node's state may overtake the event."""
    fleet = Fleet.of([node("a", 2, holds=(HOLD,))])
    fleet.hold("job-x-1", PLAN, None)
    fleet.put(node("a", 2, version=2))
    assert _free(fleet) == (1, 127_000)
    fleet.let_go("job-x-1", PLAN)
    assert _free(fleet) == (2, 128_000)


def test_a_plan_is_remembered_before_its_node_is_heard() -> None:
    """At a restart the rows are there before the fleet is."""
    fleet = Fleet()
    fleet.hold("job-x-1", PLAN, None)
    fleet.put(node("a", 2))
    assert _free(fleet) == (1, 127_000)


def test_what_placement_shows_differently_is_believed() -> None:
    """The committer's word counts, not ours."""
    fleet = Fleet.of([node("a", 2)])
    fleet.hold("job-x-1", PLAN, None)
    both = (Slice("GPU-a-0", 1000, 81_920), Slice("GPU-a-1", 1000, 81_920))
    fleet.put(node("a", 2, version=2, holds=(HOLD._replace(slices=both),)))
    assert _free(fleet) == (0, 127_000)
    assert _filed(fleet) == 0


def test_an_old_state_is_ignored() -> None:
    """Late: a lower version changes nothing; the same version again changes nothing either."""
    fleet = Fleet.of([node("a", 2, version=5)])
    fleet.put(node("a", 2, version=4, holds=(HOLD,)))
    assert _free(fleet) == (2, 128_000)
    shape = fleet.shape
    fleet.put(node("a", 2, version=5))
    assert fleet.shape == shape


def test_a_cordon_closes_and_opens_again_with_what_is_held() -> None:
    """Rebuilding a node keeps its holds, told and planned."""
    fleet = Fleet.of([node("a", 3, holds=(HOLD,))])
    fleet.hold("job-y-1", PLAN._replace(slices=(Slice("GPU-a-1", 500, 40_960),)), None)
    fleet.put(node("a", 3, version=2, holds=(HOLD,), cordons=(("operator/olga", None),)))
    assert _filed(fleet) == 0
    fleet.put(node("a", 3, version=3, holds=(HOLD,)))
    assert _free(fleet) == (1, 126_000)
    assert _filed(fleet) == 1
    assert fleet.board.columns.milli.tolist() == [[0, 500, 1000]]
    assert [pool.idle_milli for pool in fleet.pools.values()] == [1500]


def test_a_removed_node_takes_nothing_and_does_not_come_back_by_old_news() -> None:
    """Its version still guards."""
    fleet = Fleet.of([node("a", 2)])
    fleet.put(node("a", 2, version=3, is_removed=True))
    assert fleet.is_empty
    fleet.put(node("a", 2, version=2))
    assert fleet.is_empty
    fleet.put(node("a", 2, version=4))
    assert _filed(fleet) == 2


def test_new_hardware_is_told_from_new_holds() -> None:
    """Only a change of what there is makes the fleet restless."""
    fleet = Fleet()
    assert fleet.put(node("a", 2))
    assert not fleet.put(node("a", 2, version=2, holds=(HOLD,)))
    assert not fleet.put(node("a", 2, version=3, cordons=(("operator/olga", None),)))
    assert fleet.put(node("a", 3, version=4))
    assert fleet.put(NodeFacts("b", 1, (), 1, 1))


def test_trying_leaves_no_trace() -> None:
    """Undo gives back everything and counts as no gain."""
    fleet = Fleet.of([node("a", 2)])
    gains, mark = fleet.gains, fleet.mark()
    fleet.take(PLAN)
    assert _free(fleet) == (1, 127_000)
    fleet.undo(mark)
    assert (_free(fleet), _filed(fleet), fleet.gains) == ((2, 128_000), 2, gains)
