"""What makes one place better than another: each term by itself, what is learnt of the jobs that come, and scarce kinds of card."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
from gpuyard_scheduler.domain.ask import ask_of
from gpuyard_scheduler.domain.fleet import Fleet
from gpuyard_scheduler.domain.mix import NOTHING_KNOWN, Mix, Outlook, Shape, outlook_of, waste_of
from gpuyard_scheduler.domain.model import Kind, RankPlan
from gpuyard_scheduler.domain.place import place
from gpuyard_scheduler.domain.scarcity import in_turn, shortages
from gpuyard_scheduler.domain.scoring import NO_PLACE, Scoring, Weights

from tests.unit.scheduler.scheduler_world import cards, job, node, spec, started

NONE = {"waste": 0, "starved": 0, "kept": 0, "apart": 0, "step": 1}


def _fleet(*nodes: Any, outlook: Outlook = NOTHING_KNOWN, **weights: int) -> Fleet:
    fleet = Fleet.of(nodes)
    fleet.board.use(Scoring(Weights(**(NONE | weights)), outlook))
    return fleet


def _put(fleet: Fleet, gpu: Any, **other: Any) -> tuple[RankPlan, ...]:
    ask = ask_of(spec(gpu, **other))
    found = place(ask, fleet, fleet.kinds(ask))
    return () if isinstance(found, int) else found


def _shares(*milli: int) -> Counter[int]:
    return Counter(milli)


def test_a_rest_that_no_usual_size_fills_is_waste() -> None:
    """And one that sizes fill to the end is none, as far as tasks come at all."""
    table = waste_of(_shares(500), 1)
    assert table[499] == 499_000
    assert table[500] == 500_000 - 100 * 500_000 // 101
    assert 200_000 < table[700] < 206_000
    assert table[1000] < 15_000


def test_shares_go_where_the_rest_is_of_use() -> None:
    """Half cards are what comes: a share of 0.3 goes onto a card that is spoilt already, not onto the half that one of them would fill."""
    outlook = NOTHING_KNOWN._replace(waste=waste_of(_shares(500), 1))
    fleet = _fleet(node("a", 1), node("b", 1), outlook=outlook, waste=1000)
    _put(fleet, "0.5")
    _put(fleet, "0.6", node_labels={})
    assert {card.uuid: card.free_milli for found in fleet.nodes.values() for card in found.cards.values()} == {
        "GPU-a-0": 500,
        "GPU-b-0": 400,
    }
    assert _put(fleet, "0.3")[0].node_id == "b"


def test_cpu_is_left_for_idle_cards() -> None:
    """A task with many cores goes where cards are held anyway, not where it would leave idle ones without a core."""
    outlook = NOTHING_KNOWN._replace(cpu_of_gpu=10_000)
    fleet = _fleet(node("a", 4, cpu_milli=40_000), node("b", 4, cpu_milli=80_000), outlook=outlook, starved=1000)
    assert _put(fleet, 1, cpu_milli=30_000)[0].node_id == "b"


def test_a_node_is_kept_whole_for_those_who_need_it_as_far_as_jobs_leave() -> None:
    """One task in ten wants eight cards: breaking up a whole node costs a tenth of it, and nothing while a fleet only fills."""
    counts = Counter({Shape(8, 1000, 1000, ()): 1, Shape(1, 1000, 1000, ()): 9})
    ask = ask_of(spec(1))
    for turnover, costs in ((1000, [0, 800_000]), (0, [0, 0])):
        fleet = _fleet(node("a", 7), node("b", 8), outlook=outlook_of(counts, turnover), kept=1000)
        fleet.board.catch_up()
        told = [fleet.board.terms(ask, fleet.kinds(ask), [bank.row])[0]["kept"] for bank in fleet.board.banks]
        assert [cost - told[0] for cost in told] == costs


def test_the_two_classic_readings_are_policies() -> None:
    """Least remaining first packs, lightest load first spreads."""
    packed, wide = (_fleet(node("a", 2), node("b", 2), **{name: 1000}) for name in ("pack", "spread"))
    assert [_put(packed, 1)[0].node_id for _ in range(3)] == ["a", "a", "b"]
    assert [_put(wide, 1)[0].node_id for _ in range(3)] == ["a", "b", "a"]


def test_linked_cards_are_worth_a_node_further_on() -> None:
    """Two cards apart on the first node lose against two linked ones."""
    fleet = _fleet(node("a", 0)._replace(cards=cards("a", 2, linked=False)), node("b", 2), apart=1000)
    assert _put(fleet, 2)[0].node_id == "b"


def test_fragments_are_told_as_the_paper_tells_them() -> None:
    """One card with 0.4 free and an empty one; tasks of a whole card only: the fragment is the 0.4, and a task without cores loses all."""
    outlook = outlook_of(Counter({Shape(1, 1000, 4000, ()): 1}))
    fleet = _fleet(node("a", 2, cpu_milli=8000), outlook=outlook, fragment=1000)
    ask = ask_of(spec("0.6", cpu_milli=1000))
    (bank,) = fleet.board.banks
    fleet.board.catch_up()
    assert fleet.board.terms(ask, fleet.kinds(ask), [bank.row])[0]["fragment"] == 400_000
    hungry = ask_of(spec("0.6", cpu_milli=5000))
    assert fleet.board.terms(hungry, fleet.kinds(hungry), [bank.row])[0]["fragment"] == 1_400_000


def test_a_job_with_a_choice_leaves_the_kind_that_others_insist_on() -> None:
    """As soon as what is insisted on, with its margin, is more than what is idle; a job that takes no card does not care."""
    outlook = outlook_of(Counter({Shape(1, 1000, 1000, ("t4",)): 2, Shape(1, 1000, 1000, ()): 8}))
    fleet = _fleet(node("a", 1, "T4", 15_360), node("b", 3, "A100", 40_960), outlook=outlook)
    assert {kind.model: short > 0 for kind, short in shortages(fleet).items()} == {"T4": True}
    assert _put(fleet, 1)[0].node_id == "b"
    assert _put(fleet, "T4:1")[0].node_id == "a"
    nothing = ask_of(spec(1))._replace(cards=0)
    assert [len(group) for group in in_turn(nothing, fleet, fleet.kinds(nothing))] == [2]


def test_without_shortage_the_smallest_memory_is_taken_first() -> None:
    """Large cards are left for those who need them."""
    fleet = _fleet(node("a", 1, "A100", 81_920), node("b", 1, "T4", 15_360))
    assert _put(fleet, 1)[0].node_id == "b"
    assert in_turn(ask_of(spec(1)), fleet, fleet.kinds(ask_of(spec(1))))[0] == (Kind("T4", 15_360),)


def test_the_mix_forgets_what_is_long_ago() -> None:
    """Only the last requests count, however many came before."""
    mix = Mix()
    mix.learn([ask_of(spec(8))] * 5000)
    assert mix.outlook().wants_more_than[7] > 0
    for _ in range(4096):
        mix.add(ask_of(spec("0.5")))
    assert mix.outlook().wants_more_than[1] == 0
    assert mix.outlook().tasks == ((1_000_000, 1, 500, 1000),)


def test_the_outlook_stays_the_same_object_until_enough_is_new() -> None:
    """So scores that were worked out stay good."""
    mix = Mix()
    mix.learn([ask_of(spec(1))] * 1000)
    first = mix.outlook()
    for _ in range(100):
        mix.add(ask_of(spec(2)))
    assert mix.outlook() is first
    for _ in range(100):
        mix.add(ask_of(spec(2)))
    assert mix.outlook() is not first


def test_turnover_is_learnt_from_starts_and_ends() -> None:
    """Jobs that only come lower it; as many ends as starts bring it back."""
    mix = Mix()
    waiting = job("j")
    running = started(waiting, ())
    for _ in range(2000):
        mix.move(waiting, running)
    assert mix.turnover == 0
    for _ in range(2000):
        mix.move(running, replace(running, state="succeeded"))
    assert mix.turnover == 1000


def test_no_job_teaches_nothing_and_all_places_are_equal() -> None:
    """A fleet that has seen nothing fills its first node with the fewest empty cards."""
    fleet = Fleet.of([node("a", 8), node("b", 4)])
    assert [_put(fleet, 1)[0].node_id for _ in range(5)] == ["b", "b", "b", "b", "a"]
    assert outlook_of(Counter()).tasks == ()


def test_where_no_rank_fits_there_is_no_place() -> None:
    """The board says so in both of its answers."""
    fleet = Fleet.of([node("a", 1), node("b", 2)])
    ask = ask_of(spec(2))
    view = fleet.board.view(ask, fleet.kinds(ask))
    assert view.room.tolist() == [0, 1]
    assert view.score[0] == NO_PLACE
    assert np.all(view.score[1:] < NO_PLACE)
