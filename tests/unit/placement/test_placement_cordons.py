"""Cordons with holders, drains, and work that moves away from sick cards."""

from typing import Any

import pytest
from gpuyard_contracts.messages.monitor import IncidentClosedV1, IncidentOpenedV1
from gpuyard_contracts.messages.placement import (
    AllocationCommittedV1,
    AllocationRefusedV1,
    AllocationReleasedV1,
    NodeCordonedV1,
    NodeCordonV1,
    NodeStateV1,
    NodeUncordonedV1,
    NodeUncordonV1,
)
from gpuyard_contracts.types import incident_id_of
from gpuyard_placement.domain.model import Policy

from tests.unit.placement.fleet import Fleet, cards, ended, facts, gang, one, running


def _opened(
    fleet: Fleet, *, uuid: str | None = "GPU-a-0", action: Any = "evict", kind: Any = "gpu-hot", node_id: str = "a"
) -> IncidentOpenedV1:
    return IncidentOpenedV1(
        incident_id=incident_id_of(node_id, kind, uuid or "", fleet.now),
        kind=kind,
        node_id=node_id,
        gpu_uuid=uuid,
        action=action,
        evidence="93 °C in 3 samples, at most 85 °C",
        opened_at=fleet.now,
    )


def _closed(told: IncidentOpenedV1) -> IncidentClosedV1:
    return IncidentClosedV1(
        incident_id=told.incident_id,
        kind=told.kind,
        node_id=told.node_id,
        gpu_uuid=told.gpu_uuid,
        evidence="61 °C",
        opened_at=told.opened_at,
        closed_at=told.opened_at,
    )


def test_a_cordon_is_told_once_and_shown_in_the_state() -> None:
    """Twice the same changes nothing; another reason of the same holder replaces the first."""
    fleet = Fleet("a")
    ask = NodeCordonV1(node_id="a", holder="operator/eve", reason="fan")
    assert [type(found) for found in fleet.h.feed(ask)] == [NodeCordonedV1, NodeStateV1]
    assert fleet.h.feed(ask) == []
    fleet.h.feed(ask.model_copy(update={"reason": "fan\nand a 'quote'"}))
    assert [(cordon.holder, cordon.reason) for cordon in fleet.state("a").cordons] == [("operator/eve", "fan\nand a 'quote'")]


def test_a_holder_lets_go_of_its_own_cordon_only() -> None:
    """Others keep holding, and are named; a holder that holds nothing changes nothing."""
    fleet = Fleet("a")
    for holder in ("operator/eve", "operator/bob"):
        fleet.h.feed(NodeCordonV1(node_id="a", holder=holder))
    fleet.h.feed(NodeCordonV1(node_id="a", holder="operator/eve", gpu_uuid="GPU-a-1"))
    said = fleet.h.feed(NodeUncordonV1(node_id="a", holder="operator/eve"))
    assert isinstance(said[0], NodeUncordonedV1)
    assert said[0].still_held_by == ("operator/bob",)
    assert isinstance(fleet.h.feed(one("j"))[0], AllocationRefusedV1)
    assert fleet.h.feed(NodeUncordonV1(node_id="a", holder="operator/eve")) == []
    fleet.h.feed(NodeUncordonV1(node_id="a", holder="operator/bob"))
    assert isinstance(fleet.h.feed(one("j", attempt=2))[0], AllocationCommittedV1)
    assert isinstance(fleet.h.feed(one("k", "GPU-a-1"))[0], AllocationRefusedV1)


def test_a_cordon_outlives_a_restart_and_waits_for_a_node_that_is_not_there_yet() -> None:
    """A node that comes later is cordoned from its first state on."""
    fleet = Fleet()
    fleet.h.feed(NodeCordonV1(node_id="a", holder="operator/eve"))
    fleet.h.restart()
    fleet.beat("a", found=facts(*cards("a")))
    assert [cordon.holder for cordon in fleet.state("a").cordons] == ["operator/eve"]


def test_a_cordon_leaves_what_runs_alone() -> None:
    """Only a drain moves work away."""
    fleet = Fleet("a")
    fleet.start(one("j"))
    fleet.h.feed(NodeCordonV1(node_id="a", holder="operator/eve"))
    fleet.pass_seconds(3, "a", running={"a": (running(one("j"), at=fleet.now),)})
    assert fleet.stops() == []


def test_a_drain_moves_everything_away() -> None:
    """Everything on the node is told to stop; gangs go whole, with the ranks that they have elsewhere."""
    fleet = Fleet("a", "b")
    plan, lone = gang("j", "a", "b"), one("lone", "GPU-a-1")
    fleet.start(plan)
    fleet.start(lone)
    fleet.h.feed(NodeCordonV1(node_id="a", holder="operator/eve", reason="new fans", is_drain=True))
    assert sorted((stop.node_id, stop.job_id) for stop in fleet.stops()) == sorted(
        [("a", plan.job_id), ("b", plan.job_id), ("a", lone.job_id)]
    )
    fleet.h.feed(ended(lone, at=fleet.now, cause="stopped"))
    (found,) = fleet.h.said_of(AllocationReleasedV1)
    assert (found.reason, found.detail) == ("node-drained", "node a is drained by operator/eve: new fans")


def test_a_cancelled_drain_leaves_alone_what_was_not_told_to_stop_yet() -> None:
    """B46: jobs that the drain had not reached live on, and nothing follows later."""
    fleet = Fleet("a", policy=Policy(drain_at_once=1))
    plans = [one(f"j{number}", f"GPU-a-{number}") for number in range(3)]
    for plan in plans:
        fleet.start(plan)
    fleet.h.feed(NodeCordonV1(node_id="a", holder="operator/eve", is_drain=True))
    assert len(fleet.stops()) == 1
    told = next(plan for plan in plans if plan.allocation_id == fleet.stops()[0].allocation_id)
    lists = {"a": tuple(running(plan, at=fleet.now) for plan in plans)}
    fleet.pass_seconds(3, "a", running=lists)
    assert len(fleet.stops()) == 1
    fleet.h.feed(NodeUncordonV1(node_id="a", holder="operator/eve"), ended(told, at=fleet.now, cause="stopped"))
    left = {"a": tuple(running(plan, at=fleet.now) for plan in plans if plan is not told)}
    fleet.pass_seconds(30, "a", running=left)
    assert len(fleet.stops()) == 1
    assert sorted(hold.job_id for hold in fleet.state("a").holds) == sorted(plan.job_id for plan in plans if plan is not told)


def test_a_drain_goes_on_when_one_has_left() -> None:
    """Step by step until nothing is there."""
    fleet = Fleet("a", policy=Policy(drain_at_once=1))
    plans = [one(f"j{number}", f"GPU-a-{number}") for number in range(3)]
    for plan in plans:
        fleet.start(plan)
    fleet.h.feed(NodeCordonV1(node_id="a", holder="operator/eve", is_drain=True))
    for step in range(3):
        stop = fleet.stops()[step]
        fleet.h.feed(ended(next(plan for plan in plans if plan.allocation_id == stop.allocation_id), at=fleet.now, cause="stopped"))
        fleet.h.tick("drain")
    assert fleet.held() == {}


def test_a_cordon_can_become_a_drain_of_one_card() -> None:
    """Only what holds that card moves."""
    fleet = Fleet("a")
    fleet.start(one("j"))
    fleet.start(one("k", "GPU-a-1"))
    fleet.h.feed(NodeCordonV1(node_id="a", holder="operator/eve", gpu_uuid="GPU-a-1"))
    fleet.h.feed(NodeCordonV1(node_id="a", holder="operator/eve", gpu_uuid="GPU-a-1", is_drain=True))
    assert [stop.job_id for stop in fleet.stops()] == [one("k").job_id]


def test_an_overheated_card_is_cordoned_and_its_work_moves_away_from_it() -> None:
    """Release reason gpu-fault, with the card to avoid; work on the node's other cards stays."""
    fleet = Fleet("a")
    hot, cool = one("hot", grace_seconds=20), one("cool", "GPU-a-1")
    fleet.start(hot)
    fleet.start(cool)
    fleet.h.feed(_opened(fleet))
    assert [(stop.job_id, stop.grace_ms) for stop in fleet.stops()] == [(hot.job_id, 20_000)]
    assert [(cordon.gpu_uuid, cordon.holder.split("/")[0]) for cordon in fleet.state("a").cordons] == [("GPU-a-0", "incident")]
    fleet.h.feed(ended(hot, at=fleet.now, cause="stopped"))
    (found,) = fleet.h.said_of(AllocationReleasedV1)
    assert (found.reason, found.avoid_gpus) == ("gpu-fault", ("GPU-a-0",))
    assert "93 °C" in found.detail
    assert isinstance(fleet.h.feed(one("hot", attempt=2))[0], AllocationRefusedV1)


def test_shares_of_a_sick_card_all_leave_it() -> None:
    """Every holder of the card is told, and each whole gang with it."""
    fleet = Fleet("a", "b")
    for name in ("x", "y"):
        fleet.start(one(name, milli=300, memory_mib=100))
    fleet.h.feed(_opened(fleet, kind="ecc-uncorrectable"))
    assert sorted(stop.job_id for stop in fleet.stops()) == sorted([one("x").job_id, one("y").job_id])


def test_an_incident_may_only_cordon_or_do_nothing() -> None:
    """The action is monitor's; `none` leaves no trace (a silent node is judged by its lease)."""
    fleet = Fleet("a")
    fleet.start(one("j"))
    assert fleet.h.feed(_opened(fleet, uuid=None, action="none", kind="node-silent")) == []
    fleet.h.feed(_opened(fleet, action="cordon", kind="telemetry-stale"))
    assert (fleet.stops(), len(fleet.state("a").cordons)) == ([], 1)


def test_a_closed_incident_lets_go_and_leaves_other_holders() -> None:
    """The card is free again only when nobody holds it."""
    fleet = Fleet("a")
    first, second = _opened(fleet, action="cordon"), _opened(fleet, action="cordon", kind="xid-fatal")
    fleet.h.feed(first, second, first)
    fleet.h.feed(_closed(first))
    assert isinstance(fleet.h.feed(one("j"))[0], AllocationRefusedV1)
    fleet.h.feed(_closed(second))
    assert isinstance(fleet.h.feed(one("j", attempt=2))[0], AllocationCommittedV1)


def test_an_incident_that_is_closed_before_it_is_opened_here_never_holds() -> None:
    """Overtaken messages must not cordon a healthy card for ever."""
    fleet = Fleet("a")
    told = _opened(fleet)
    fleet.h.feed(_closed(told))
    fleet.h.restart()
    assert fleet.h.feed(told) == []
    assert isinstance(fleet.h.feed(one("j"))[0], AllocationCommittedV1)


def test_an_incident_of_a_whole_node_moves_everything_there() -> None:
    """Without a card it is the node that is avoided."""
    fleet = Fleet("a", "b")
    plan = one("j")
    fleet.start(plan)
    fleet.h.feed(_opened(fleet, uuid=None))
    fleet.h.feed(ended(plan, at=fleet.now, cause="stopped"))
    assert fleet.h.said_of(AllocationReleasedV1)[0].avoid_nodes == ("a",)


def test_one_state_for_each_touched_node_and_unit_with_growing_versions() -> None:
    """Many changes in one unit are one version; versions never repeat, not even over a restart."""
    fleet = Fleet("a", "b")
    fleet.h.feed(one("j"), one("k", "GPU-a-1"), NodeCordonV1(node_id="a", holder="operator/eve"))
    fleet.h.restart()
    fleet.h.feed(NodeUncordonV1(node_id="a", holder="operator/eve"))
    versions = [found.version for found in fleet.h.said_of(NodeStateV1) if found.node_id == "a"]
    assert versions == [1, 2, 3]


def test_a_state_that_could_not_be_published_is_owed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The unit commits without it, and the next one, whatever it is about, makes up for it."""
    fleet = Fleet("a", "b")
    with monkeypatch.context() as broken:
        broken.delattr("gpuyard_placement.mapping.messages.node_state")
        with pytest.raises(AttributeError):
            fleet.h.feed(one("j"))
    assert fleet.held() == {"GPU-a-0": 1000}
    assert fleet.state("a").holds == ()
    fleet.beat("b")
    assert [hold.job_id for hold in fleet.state("a").holds] == [one("j").job_id]
    count = len(fleet.h.said)
    fleet.beat("b")
    assert len(fleet.h.said) == count


def test_old_rows_are_forgotten() -> None:
    """Tombstones go after ten minutes: the database still knows that a released attempt stays released."""
    fleet = Fleet("a")
    plan = one("j")
    fleet.start(plan)
    fleet.h.feed(ended(plan, at=fleet.now))
    fleet.h.tick("forget")
    assert len(fleet.h.rows("tombstones")) == 1
    fleet.h.clock.advance(601)
    fleet.h.tick("forget")
    assert fleet.h.rows("tombstones") == []
