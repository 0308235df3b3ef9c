"""Where a job goes: models and shares, linked cards, the tightest place, whole gangs."""

from typing import Any

import pytest
from gpuyard_contracts.models import is_of_model
from gpuyard_scheduler.domain.ask import ask_of, portion
from gpuyard_scheduler.domain.capacity import ever_fits, settled
from gpuyard_scheduler.domain.fit import judge
from gpuyard_scheduler.domain.fleet import Fleet
from gpuyard_scheduler.domain.links import Layout
from gpuyard_scheduler.domain.model import Ask, CardFacts, Kind, NodeFacts, RankPlan, Slice, Tenant
from gpuyard_scheduler.domain.place import place

from tests.unit.scheduler.scheduler_world import cards, node, spec


def _place(fleet: Fleet, gpu: Any, **other: Any) -> tuple[RankPlan, ...]:
    """Place it, and keep it held; () where it finds no room."""
    ask = ask_of(spec(gpu, **other))
    found = place(ask, fleet, fleet.kinds(ask))
    return () if isinstance(found, int) else found


def _positions(plans: tuple[RankPlan, ...]) -> list[int]:
    return sorted(int(part.gpu_uuid.rsplit("-", 1)[1]) for plan in plans for part in plan.slices)


@pytest.mark.parametrize(
    ("asked", "has", "is_one"),
    [
        ("a100", "A100-80GB", True),
        ("A100-80GB", "a100-80gb", True),
        ("A100", "NVIDIA A100-SXM4-80GB", True),
        ("A100-80GB", "NVIDIA A100-SXM4-80GB", True),
        ("h100", "NVIDIA H100 80GB HBM3", True),
        ("T4", "Tesla T4", True),
        ("A10", "A100-80GB", False),
        ("A100-40GB", "A100-80GB", False),
    ],
)
def test_a_model_is_matched_by_name_or_family(asked: str, has: str, is_one: bool) -> None:
    """Upper and lower case do not matter, nor the maker's words; a shorter name means the family."""
    assert is_of_model(has, asked) is is_one


def test_a_share_by_one_measure_takes_the_same_part_of_the_other() -> None:
    """Rounded down, so that parts of a card never sum to more than the card, but never to nothing."""
    kind = Kind("l40", 46_068)
    assert portion(Ask(share_mib=2000), kind) == (43, 2000)
    assert portion(Ask(milli=250), kind) == (250, 11_517)
    assert portion(Ask(milli=100, share_mib=30_000), kind) == (100, 30_000)
    assert portion(Ask(share_mib=10), kind) == (1, 10)
    assert portion(Ask(cards=2), kind) == (1000, 46_068)


def test_the_tightest_node_is_taken_first() -> None:
    """Large holes stay whole for those who need them."""
    fleet = Fleet.of([node("a", 8), node("b", 4), node("c", 2)])
    assert [_place(fleet, 2)[0].node_id for _ in range(3)] == ["c", "b", "b"]


def test_shares_fill_a_begun_card_before_an_empty_one() -> None:
    """And the empty one is opened where the fewest are empty."""
    fleet = Fleet.of([node("a", 8), node("b", 1)])
    assert [_place(fleet, "A100:0.5")[0].node_id for _ in range(3)] == ["b", "b", "a"]


def test_a_whole_card_is_an_empty_card() -> None:
    """A card with the smallest share on it is no whole card any more."""
    fleet = Fleet.of([node("a", 1)])
    assert _place(fleet, "A100:1MiB")
    assert not _place(fleet, 1)
    assert not _place(fleet, "A100:1000MiB", cpu_milli=200_000)


def test_b42_two_shares_of_one_job_lie_on_two_cards() -> None:
    """Never two shares of one card; where only one card has room the job waits. Quota counts both shares."""
    fleet = Fleet.of([node("a", 2)])
    for _ in range(3):
        assert _place(fleet, {"milli": 250})
    (plan,) = _place(fleet, {"milli": 250, "count": 2})
    assert len({part.gpu_uuid for part in plan.slices}) == 2
    assert sum(part.milli for part in plan.slices) == 500
    assert not _place(fleet, {"milli": 250, "count": 2}), "the first card is full: one card is left, and two are asked for"
    assert _place(fleet, {"milli": 250})


def test_two_ranks_on_shares_never_meet_on_one_card() -> None:
    """A gang of shares needs as many cards as ranks."""
    fleet = Fleet.of([node("a", 2)])
    assert not _place(fleet, {"milli": 100}, ranks=3)
    plans = _place(fleet, {"milli": 100}, ranks=2)
    assert _positions(plans) == [0, 1]


def test_a_gang_takes_as_few_nodes_as_will_do() -> None:
    """One node if one has room for all of it; else the roomiest ones, and the tightest for the rest."""
    fleet = Fleet.of([node("a", 4), node("b", 8), node("c", 2)])
    assert {plan.node_id for plan in _place(fleet, 2, ranks=4)} == {"b"}
    fleet = Fleet.of([node("a", 4), node("b", 8), node("c", 2), node("d", 2)])
    plans = _place(fleet, 2, ranks=5)
    assert sorted(plan.node_id for plan in plans) == ["b", "b", "b", "b", "c"]
    assert [plan.rank for plan in plans] == [0, 1, 2, 3, 4]


def test_a_gang_that_does_not_fit_leaves_nothing_behind() -> None:
    """Whole or not at all."""
    fleet = Fleet.of([node("a", 4), node("b", 4)])
    assert not _place(fleet, 3, ranks=3)
    assert len(_place(fleet, 4, ranks=2)) == 2


def test_all_cards_of_a_job_are_of_one_kind() -> None:
    """A gang is not spread over kinds of which neither suffices; a single job takes the smaller kind that does."""
    fleet = Fleet.of([node("a", 2), node("t", 2, "T4", 15_360)])
    assert not _place(fleet, 1, ranks=3)
    assert _place(fleet, 1)[0].node_id == "t"
    assert _place(fleet, "40GB..")[0].node_id == "a"


def test_a_node_of_two_kinds_serves_both() -> None:
    """Each kind by its own name, with one CPU count for both."""
    mixed = NodeFacts("m", 1, cards("m", 2) + cards("m-t4", 2, "T4", 15_360), 3000, 100_000)
    fleet = Fleet.of([mixed])
    assert _place(fleet, "T4:2", cpu_milli=2000)
    assert _place(fleet, "A100", cpu_milli=1000)
    assert not _place(fleet, "A100", cpu_milli=1000), "the CPU is gone, the card is not"


@pytest.mark.parametrize(
    ("gpu", "other", "constraint"),
    [
        ("H100", {}, "model"),
        ("90GB..", {}, "gpu-memory"),
        ("1GB..20GB", {}, "gpu-memory"),
        ("A100:90GB", {}, "gpu-memory"),
        ("mig-3g.40gb", {}, "sharing"),
        (1, {"zone": "west"}, "zone"),
        (1, {"node_labels": {"disk": "fast"}}, "labels"),
        (9, {}, "size"),
        (1, {"cpu_milli": 128_001}, "size"),
    ],
)
def test_what_a_node_can_never_take_is_never_placed(gpu: Any, other: dict[str, Any], constraint: str) -> None:
    """The search finds nothing, the explanation names the constraint, and the fleet is said never to fit."""
    fleet = Fleet.of([node("a", 8)])
    ask = ask_of(spec(gpu, **other))
    assert not _place(fleet, gpu, **other)
    failed = judge(ask, fleet.nodes["a"])
    assert failed is not None
    assert failed.constraint == constraint
    assert failed.detail
    assert not ever_fits(ask, fleet)


@pytest.mark.parametrize(
    ("change", "constraint"),
    [
        ({"status": "unknown"}, "status"),
        ({"status": "lost"}, "status"),
        ({"cordons": (("operator/olga", None),)}, "cordon"),
        ({"cordons": (("incident/x", "GPU-a-0"), ("incident/y", "GPU-a-1"))}, "gpus"),
        ({"lost_gpus": frozenset({"GPU-a-0", "GPU-a-1"})}, "gpus"),
    ],
)
def test_what_is_closed_now_gets_nothing_new(change: dict[str, Any], constraint: str) -> None:
    """B48: no path leads to a cordoned, silent or lost place; but such a job may wait for it."""
    fleet = Fleet.of([node("a", 2, **change)])
    ask = ask_of(spec(1))
    assert not _place(fleet, 1)
    assert not _place(fleet, "A100:0.5")
    failed = judge(ask, fleet.nodes["a"])
    assert failed is not None
    assert failed.constraint == constraint
    assert ever_fits(ask, fleet)


def test_a_card_of_which_the_job_was_moved_away_is_avoided() -> None:
    """As long as another open place could ever take the job; else the wish is given up rather than the job."""
    fleet = Fleet.of([node("a", 1), node("b", 1)])
    away = ask_of(spec(1), avoid_gpus=frozenset({"GPU-a-0"}))
    assert settled(away, fleet) == away
    found = place(away, fleet, fleet.kinds(away))
    assert not isinstance(found, int)
    assert [plan.node_id for plan in found] == ["b"]
    assert place(away, fleet, fleet.kinds(away)) == 0
    nowhere = ask_of(spec(1), avoid_nodes=frozenset({"a", "b"}))
    assert settled(nowhere, fleet) == ask_of(spec(1))


def test_a_place_that_the_quota_forbids_is_no_other_place() -> None:
    """A job moved off the only card that its tenant may use goes back to it, rather than wait for cards it may never have."""
    fleet = Fleet.of([node("a", 1, "T4", 15_360), node("b", 1)])
    away = ask_of(spec(1), avoid_gpus=frozenset({"GPU-a-0"}))
    assert settled(away, fleet, Tenant("acme")) == away
    assert settled(away, fleet, Tenant("acme", quota_mib=20_000)) == ask_of(spec(1))


def _layout(pairs: list[tuple[int, int]], numas: tuple[int | None, ...]) -> Layout:
    links: list[set[int]] = [set() for _ in numas]
    for one, other in pairs:
        links[one].add(other)
        links[other].add(one)
    return Layout(tuple(frozenset(peers) for peers in links), numas)


PAIRS = [(0, 2), (1, 3), (4, 5), (6, 7)]
SOCKETS = (0, 0, 0, 0, 1, 1, 1, 1)


def test_b43_two_cards_are_a_linked_pair_and_four_stay_on_one_socket() -> None:
    """Links cross the numbering; what is left still has its pairs."""
    layout = _layout(PAIRS, SOCKETS)
    assert layout.choose(0b1111_1111, 2) == (0, 2)
    assert layout.choose(0b1111_1010, 2) == (1, 3)
    assert layout.choose(0b1111_1111, 4) == (0, 1, 2, 3)
    assert layout.choose(0b1111_1010, 4) == (4, 5, 6, 7)
    assert layout.choose(0b0011_0011, 2) == (4, 5)


def test_one_card_leaves_pairs_whole() -> None:
    """A single card comes from the smallest linked set."""
    assert _layout([(0, 1)], (None, None, None)).choose(0b111, 1) == (2,)


def test_a_link_that_only_one_end_tells_of_is_none() -> None:
    """An asymmetric or unknown entry lowers what is preferred; it breaks nothing."""
    layout = Layout((frozenset({1}), frozenset(), frozenset({3, 9}), frozenset({2})), (None, None, None, None))
    assert layout.joined(0b1111) == 2
    assert layout.choose(0b1111, 2) == (2, 3)
    fleet = Fleet.of([node("a", 0, cards=(CardFacts("GPU-x", "T4", 15_360, links=frozenset({"GPU-gone"})),))])
    assert _place(fleet, 1)


def test_linked_cards_are_preferred_over_a_tighter_node() -> None:
    """Two linked cards on a larger node before two apart on a smaller one."""
    fleet = Fleet.of([node("a", 0, cards=cards("a", 2, linked=False)), node("b", 4)])
    assert _place(fleet, 2)[0].node_id == "b"
    assert _place(fleet, 1)[0].node_id == "a"


def test_a_hold_on_a_card_that_is_gone_still_holds_cpu() -> None:
    """A card may be lost under a running job; the rest of what it holds is not free for that."""
    fleet = Fleet.of([node("a", 1, cpu_milli=2000)])
    fleet.hold("job-x-1", RankPlan(0, "a", (Slice("GPU-elsewhere", 1000, 1),), 1500, 1), None)
    assert not _place(fleet, 1, cpu_milli=1000)
    assert _place(fleet, 1, cpu_milli=500)
