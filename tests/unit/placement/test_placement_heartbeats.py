"""Heartbeats: enrolment, who is believed, and reconciling what runs."""

from typing import Any

import pytest
from gpuyard_contracts.messages.placement import (
    AllocationReleasedV1,
    AllocationStartedV1,
    NodeEnrolledV1,
    NodeStateV1,
)

from tests.unit.placement.fleet import SECOND, Fleet, cards, ended, facts, gang, gpu, one, release, running, started


def test_a_new_node_is_enrolled_with_its_state() -> None:
    """Its first heartbeat makes it known, ready, with version 1; the lease is told."""
    fleet = Fleet()
    reply = fleet.beat("a", found=facts(*cards("a")))
    assert (reply.is_accepted, reply.lease_ms, reply.at) == (True, 15_000, fleet.now)
    assert [type(found) for found in fleet.h.said] == [NodeEnrolledV1, NodeStateV1]
    state = fleet.state("a")
    assert (state.version, state.status, len(state.facts.gpus), state.boot_id) == (1, "ready", 4, "boot-1")
    assert state.facts.display_name == "näh-Rechner"


def test_a_clean_heartbeat_writes_nothing() -> None:
    """A thousand nodes that are fine cost the database nothing, and say nothing; an agent's restart says nothing either."""
    fleet = Fleet("a")
    plan = one("j")
    fleet.start(plan)
    count = len(fleet.h.said)
    fleet.h.database.is_away = True
    for _ in range(5):
        fleet.h.clock.advance(1)
        assert fleet.beat("a", running(plan, at=fleet.now)).is_accepted
    fleet.h.database.is_away = False
    assert fleet.beat("a", running(plan, at=fleet.now), agent_id="agent-2").is_accepted
    assert len(fleet.h.said) == count


def test_changed_facts_make_one_new_version() -> None:
    """Cards that are gone are named as lost; what they hold stays held; a card that is back is lost no more."""
    fleet = Fleet("a")
    fleet.start(one("j"))
    before = fleet.state("a").version
    fleet.beat("a", running(one("j"), at=fleet.now), found=facts(*cards("a")[1:]))
    state = fleet.state("a")
    assert (state.version, state.lost_gpus, len(state.holds)) == (before + 1, ("GPU-a-0",), 1)
    assert len(fleet.h.said_of(NodeEnrolledV1)) == 2
    fleet.beat("a", running(one("j"), at=fleet.now), found=facts(*cards("a")))
    assert fleet.state("a").lost_gpus == ()


def test_a_card_that_the_agent_calls_lost_is_lost() -> None:
    """B45: one bad card never hides the others."""
    fleet = Fleet()
    fleet.beat("a", found=facts(*cards("a", 2)), lost=("GPU-dead",))
    assert fleet.state("a").lost_gpus == ("GPU-dead",)
    assert [found.uuid for found in fleet.state("a").facts.gpus] == ["GPU-a-0", "GPU-a-1"]


def test_changed_words_without_other_cards_are_no_new_hardware() -> None:
    """A new agent version is a new state, not an enrolment."""
    fleet = Fleet("a")
    fleet.beat("a", found=facts(*cards("a"), agent_version="2"))
    assert len(fleet.h.said_of(NodeEnrolledV1)) == 1
    assert fleet.state("a").facts.agent_version == "2"


def test_nothing_new_is_published_after_a_restart() -> None:
    """The facts come back as the same text, so the first heartbeat is clean."""
    fleet = Fleet("a", "b")
    fleet.beat("a", found=facts(*cards("a"), labels={"z": "1", "a": "ü"}, display_name='quote " and \\u0000 spelt out'))
    count = len(fleet.h.said)
    fleet.h.restart()
    assert fleet.beat("a").is_accepted
    assert len(fleet.h.said) == count


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (facts(gpu("GPU-1"), gpu("GPU-1")), "more than once"),
        (facts(gpu("GPU-1", memory_mib=0)), "lack the model or the memory of GPU GPU-1"),
        (facts(gpu("GPU-1", model=" ")), "lack the model or the memory"),
        (facts(gpu("GPU-1"), address="10.0.0.1\nevil"), "address"),
        (facts(gpu("GPU-1"), address=""), "address"),
        (facts(gpu("GPU-1"), display_name="a\x00b"), "NUL"),
        (facts(gpu("GPU-1"), display_name="x" * 70_000), "too large"),
    ],
)
def test_malformed_facts_are_refused_with_what_is_wrong(found: Any, says: str) -> None:
    """B58: the agent is told in plain words; nothing is kept of such a node."""
    fleet = Fleet()
    reply = fleet.beat("a", found=found)
    assert not reply.is_accepted
    assert says in reply.detail
    assert (fleet.h.said, len(fleet.store.nodes)) == ([], 0)


@pytest.mark.parametrize("more", [{"boot_id": ""}, {"agent_id": ""}, {"agent_id": "a\x00"}, {"boot_id": "x" * 200}])
def test_unreadable_ids_of_boot_and_agent_are_refused(more: dict[str, str]) -> None:
    """They go into rows and are compared for ever after."""
    fleet = Fleet("a")
    assert not fleet.beat("a", **more).is_accepted
    assert fleet.beat("a").is_accepted


def test_a_card_is_enrolled_on_one_live_node_only() -> None:
    """A copied machine is told which node has the card; when that node is lost, the card may come with another."""
    fleet = Fleet("a", "b", "c")
    reply = fleet.beat("d", found=facts(gpu("GPU-a-0"), address="10.0.0.9"))
    assert not reply.is_accepted
    assert "GPU-a-0 is enrolled on node a" in reply.detail
    fleet.pass_seconds(20, "b", "c")
    assert fleet.state("a").status == "lost"
    assert fleet.beat("d", found=facts(gpu("GPU-a-0"), address="10.0.0.9")).is_accepted
    assert not fleet.beat("a").is_accepted


def test_of_two_agents_of_one_node_the_newer_is_believed() -> None:
    """The older is refused from then on, also after a restart of ours, and told by whom it was replaced."""
    fleet = Fleet("a")
    assert fleet.beat("a", agent_id="agent-2").is_accepted
    reply = fleet.beat("a", agent_id="agent-1")
    assert not reply.is_accepted
    assert "replaced by agent agent-2" in reply.detail
    fleet.h.restart()
    assert not fleet.beat("a", agent_id="agent-1").is_accepted
    assert fleet.beat("a", agent_id="agent-2").is_accepted


def test_a_refused_agent_keeps_no_node_alive() -> None:
    """Silence is judged by the agent that is believed."""
    fleet = Fleet("a", "b", "c")
    fleet.beat("a", agent_id="agent-2")
    for _ in range(7):
        fleet.pass_seconds(1, "b", "c")
        fleet.beat("a", agent_id="agent-1")
    assert fleet.state("a").status == "unknown"


def test_an_old_heartbeat_is_answered_and_not_judged() -> None:
    """One that was overtaken says nothing about now."""
    fleet = Fleet("a")
    plan = one("j")
    fleet.start(plan)
    fleet.h.clock.advance(10)
    fleet.beat("a", running(plan, at=fleet.now), sequence=50)
    assert fleet.beat("a", running(one("ghost"), at=fleet.now), sequence=49).is_accepted
    assert fleet.stops() == []


def test_what_runs_without_an_allocation_is_stopped_once_in_a_while() -> None:
    """B49, INV-5: a copy that outlived a partition is stopped; the order is not repeated each second."""
    fleet = Fleet("a")
    ghost = running(one("ghost"), at=fleet.now)
    fleet.beat("a", ghost)
    (stop,) = fleet.stops()
    assert (stop.node_id, stop.allocation_id, stop.grace_ms) == ("a", ghost.allocation_id, 0)
    for _ in range(9):
        fleet.h.clock.advance(1)
        fleet.beat("a", ghost)
    assert len(fleet.stops()) == 1
    fleet.h.clock.advance(1)
    fleet.beat("a", ghost)
    assert len(fleet.stops()) == 2


def test_a_lower_attempt_is_stopped_and_the_live_one_is_not() -> None:
    """INV-6: only the attempt that holds the slices may run."""
    fleet = Fleet("a")
    plan = one("j", attempt=2)
    fleet.start(plan)
    fleet.beat("a", running(one("j"), at=fleet.now), running(plan, at=fleet.now))
    assert [stop.attempt for stop in fleet.stops()] == [1]


def test_a_rank_on_the_wrong_node_is_stopped() -> None:
    """The allocation is live, but not here."""
    fleet = Fleet("a", "b")
    plan = one("j")
    fleet.start(plan)
    fleet.beat("b", running(plan, at=fleet.now))
    assert [stop.node_id for stop in fleet.stops()] == ["b"]


def test_a_list_may_be_a_moment_older_than_an_end() -> None:
    """A workload that ended in this very second is no stray; if it is still listed later, it is."""
    fleet = Fleet("a")
    plan = one("j")
    fleet.start(plan)
    fleet.h.feed(ended(plan, at=fleet.now))
    fleet.beat("a", running(plan, at=fleet.now))
    assert fleet.stops() == []
    fleet.h.clock.advance(3)
    fleet.beat("a", running(plan, at=fleet.now))
    assert len(fleet.stops()) == 1


def test_an_order_on_its_way_is_nothing_missing() -> None:
    """Committed and not started yet: no heartbeat lists it, and that is fine."""
    fleet = Fleet("a")
    fleet.h.feed(one("j"))
    fleet.pass_seconds(60, "a")
    assert fleet.stops() == []


def test_a_start_is_listed_before_it_is_reported() -> None:
    """A rank that the list shows first is no stray."""
    fleet = Fleet("a")
    plan = one("j")
    fleet.h.feed(plan)
    fleet.beat("a", running(plan, at=fleet.now))
    (said,) = fleet.h.feed(started(plan, at=fleet.now))
    assert isinstance(said, AllocationStartedV1)
    assert fleet.stops() == []


def test_a_missing_rank_is_asked_for_after_two_heartbeats() -> None:
    """Its node's answer comes behind the end that may be on its way, so a good end is never taken for a loss."""
    fleet = Fleet("a")
    plan = one("j")
    fleet.start(plan)
    fleet.pass_seconds(5, "a", running={"a": (running(plan, at=fleet.now),)})
    seen_at = fleet.now
    fleet.pass_seconds(1, "a")
    assert fleet.stops() == []
    fleet.pass_seconds(1, "a")
    assert [stop.rank for stop in fleet.stops()] == [0]
    fleet.h.feed(ended(plan, at=seen_at), ended(plan, at=fleet.now, cause="not-running"))
    (found,) = fleet.h.said_of(AllocationReleasedV1)
    assert (found.reason, found.exit_code) == ("exited", 0)


def test_a_process_that_vanished_is_billed_until_it_was_last_listed() -> None:
    """B53: the answer `not-running` for a rank that had started: released at its last proof of life."""
    fleet = Fleet("a")
    plan = one("j")
    fleet.start(plan)
    fleet.pass_seconds(5, "a", running={"a": (running(plan, at=fleet.now),)})
    seen_at = fleet.now
    fleet.pass_seconds(8, "a")
    fleet.h.feed(ended(plan, at=fleet.now, cause="not-running"))
    (found,) = fleet.h.said_of(AllocationReleasedV1)
    assert (found.reason, found.ended_at) == ("process-vanished", seen_at)


def test_a_process_that_vanished_while_we_were_away_is_billed_until_we_last_heard_its_node() -> None:
    """B53: fifteen minutes of our own absence are not charged to anybody."""
    fleet = Fleet("a")
    plan = one("j")
    fleet.start(plan)
    fleet.pass_seconds(5, "a", running={"a": (running(plan, at=fleet.now),)})
    fleet.h.tick("contact")
    seen_at = fleet.now
    fleet.h.clock.advance(900)
    fleet.h.restart()
    fleet.pass_seconds(3, "a")
    fleet.h.feed(ended(plan, at=fleet.now, cause="not-running"))
    (found,) = fleet.h.said_of(AllocationReleasedV1)
    assert (found.reason, found.ended_at) == ("process-vanished", seen_at)


def test_a_start_that_we_learn_of_late_is_no_sign_of_life_then() -> None:
    """The start's news lay on the bus for ten seconds and the machine lost its power meanwhile: nobody pays for those."""
    fleet = Fleet("a")
    plan = one("j")
    fleet.h.feed(plan)
    began = fleet.now
    fleet.h.clock.advance(10)
    fleet.h.feed(started(plan, at=began))
    fleet.beat("a", boot_id="boot-2", agent_id="agent-2")
    (found,) = fleet.h.said_of(AllocationReleasedV1)
    assert (found.reason, found.started_at, found.ended_at) == ("node-restarted", began, began)


def test_a_node_that_neither_lists_nor_answers_is_overruled() -> None:
    """After 30 s the rank is given up and the rest of the gang is stopped."""
    fleet = Fleet("a", "b")
    plan = gang("j", "a", "b")
    fleet.start(plan)
    lists = {"b": (running(plan, 1, at=fleet.now),)}
    fleet.pass_seconds(3, "a", "b", running=lists | {"a": (running(plan, at=fleet.now),)})
    seen_at = fleet.now
    fleet.pass_seconds(31, "a", "b", running=lists)
    assert [stop.rank for stop in fleet.stops()] == [0]
    fleet.pass_seconds(2, "a", "b", running=lists)
    assert [stop.rank for stop in fleet.stops()][1:] == [0, 1]
    fleet.h.feed(ended(plan, 1, at=fleet.now, cause="stopped"))
    (found,) = fleet.h.said_of(AllocationReleasedV1)
    assert (found.reason, found.ended_at) == ("process-vanished", seen_at)


def test_an_end_that_the_node_has_not_reported_yet_is_waited_for() -> None:
    """`unreported_ends` says that the event is on its way."""
    fleet = Fleet("a")
    plan = one("j")
    fleet.start(plan)
    for _ in range(60):
        fleet.h.clock.advance(1)
        fleet.beat("a", unreported=(plan.allocation_id,))
    assert fleet.stops() == []


def test_a_restarted_agent_starts_the_count_anew() -> None:
    """Two heartbeats of one agent are wanted: an agent that has just come up may not have adopted everything."""
    fleet = Fleet("a")
    plan = one("j")
    fleet.start(plan)
    fleet.h.clock.advance(5)
    fleet.beat("a")
    fleet.beat("a", agent_id="agent-2")
    assert fleet.stops() == []
    fleet.beat("a", running(plan, at=fleet.now), agent_id="agent-2")
    fleet.beat("a", agent_id="agent-2")
    assert fleet.stops() == []


def test_a_reboot_ends_everything_that_ran_before_it() -> None:
    """Released as node-restarted at the last sign of life; the rest of the gang is stopped; the dead attempt's order is called off."""
    fleet = Fleet("a", "b")
    plan, lone = gang("j", "a", "b"), one("lone", "GPU-a-1")
    fleet.start(plan)
    fleet.start(lone)
    lists = {"a": (running(plan, at=fleet.now), running(lone, at=fleet.now)), "b": (running(plan, 1, at=fleet.now),)}
    fleet.pass_seconds(3, "a", "b", running=lists)
    seen_at = fleet.now
    fleet.h.clock.advance(4)
    fleet.beat("a", boot_id="boot-2", agent_id="agent-2")
    assert sorted((stop.node_id, stop.job_id, stop.rank) for stop in fleet.stops()) == sorted(
        [("a", plan.job_id, 0), ("b", plan.job_id, 1), ("a", lone.job_id, 0)]
    )
    (found,) = fleet.h.said_of(AllocationReleasedV1)
    assert (found.job_id, found.reason, found.ended_at) == (lone.job_id, "node-restarted", seen_at)
    assert fleet.held() == {"GPU-a-0": 1000, "GPU-b-0": 1000}
    fleet.h.feed(ended(plan, 1, at=fleet.now, cause="stopped"))
    assert fleet.h.said_of(AllocationReleasedV1)[1].reason == "node-restarted"
    assert fleet.state("a").boot_id == "boot-2"


def test_an_order_that_waits_survives_a_reboot() -> None:
    """A start order that the node had not taken yet is still good on the new boot; one whose process was listed died with the old one."""
    fleet = Fleet("a")
    waiting, listed = one("waiting"), one("listed", "GPU-a-1")
    fleet.h.feed(waiting, listed)
    fleet.beat("a", running(listed, at=fleet.now))
    fleet.beat("a", boot_id="boot-2", agent_id="agent-2")
    assert [found.job_id for found in fleet.h.said_of(AllocationReleasedV1)] == [listed.job_id]
    fleet.h.feed(started(waiting, at=fleet.now))
    assert fleet.store.allocations[waiting.allocation_id].state == "running"


def test_a_stopping_allocation_is_released_by_the_reboot_with_its_own_reason() -> None:
    """The first reason stays."""
    fleet = Fleet("a")
    plan = one("j")
    fleet.start(plan)
    fleet.h.feed(release(plan))
    fleet.h.clock.advance(SECOND.seconds)
    fleet.beat("a", boot_id="boot-2")
    (found,) = fleet.h.said_of(AllocationReleasedV1)
    assert found.reason == "stopped"
