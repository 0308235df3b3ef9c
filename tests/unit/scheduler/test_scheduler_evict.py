"""Making room: who may evict whom, as few as will do, room kept for whom it was made, and no one comes back into it."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from gpuyard_contracts.messages.placement import AllocationReleasedV1
from gpuyard_contracts.messages.scheduler import JobEndedV1, JobRequeuedV1, JobStoppingV1, PlaceV1, ReleaseV1
from gpuyard_scheduler.domain.decide import Plan, decide
from gpuyard_scheduler.domain.model import Job, NodeFacts, RankPlan, Reservation, Slice, Tenant, millis
from gpuyard_scheduler.domain.policy import Policy

from tests.unit.scheduler.scheduler_world import NOW, Yard, job, node, snapshot

POLICY = Policy(min_run=60)
FLEET = Policy(min_run=60, preempt="fleet")
LONG_AGO = NOW - timedelta(hours=1)


def _runs(name: str, on: str, cards: int = 1, tenant: str = "acme", first: int = 0, ran: float = 3600, **other: Any) -> Job:
    """A running job on the first cards of a node."""
    made = job(name, cards, tenant, **other)
    slices = tuple(Slice(f"GPU-{on}-{first + number}", 1000, 81_920) for number in range(cards))
    return replace(made, state="running", attempt=1, started_at=NOW - timedelta(seconds=ran), ranks=(RankPlan(0, on, slices, 1000, 1024),))


def _decide(nodes: list[NodeFacts], jobs: list[Job], *tenants: Tenant, policy: Policy = POLICY, **other: Any) -> Plan:
    return decide(snapshot(nodes, jobs, *tenants, **other), policy)


def test_a_stronger_job_of_the_tenant_evicts_the_weakest() -> None:
    """One card is wanted: the low job goes, the normal one stays."""
    jobs = [_runs("low", "a", priority="low"), _runs("normal", "a", first=1), job("head", 1, priority="high")]
    plan = _decide([node("a", 2)], jobs)
    assert plan.evictions == {"low": "head"}
    assert plan.starts == ()
    (verdict,) = plan.verdicts.values()
    assert verdict is not None
    assert (verdict.reason, verdict.detail) == ("preempting", "1 job makes room for it")


@pytest.mark.parametrize("head", [{}, {"priority": "low"}, {"spot": True, "priority": "high"}])
def test_nobody_yields_to_its_equal_or_to_a_spot_job(head: dict[str, Any]) -> None:
    """Equal rank, lower rank, and a spot job however high it calls itself."""
    assert not _decide([node("a", 1)], [_runs("r", "a"), job("head", 1, **head)]).evictions


def test_priorities_count_within_the_tenant_unless_the_policy_says_fleet() -> None:
    """Calling oneself high takes nothing from others; an operator may want it to."""
    jobs = [_runs("r", "a", tenant="other", priority="low"), job("head", 1, priority="high")]
    assert not _decide([node("a", 1)], jobs).evictions
    assert _decide([node("a", 1)], jobs, policy=FLEET).evictions == {"r": "head"}
    guaranteed = Tenant("other", guarantee_milli=1000)
    assert not _decide([node("a", 1)], jobs, guaranteed, policy=FLEET).evictions
    assert not _decide([node("a", 1)], jobs, policy=replace(FLEET, preempt="none")).evictions


def test_spot_yields_to_every_tenant() -> None:
    """Before all others, whatever its priority."""
    jobs = [_runs("spot", "a", tenant="other", spot=True, priority="high"), _runs("low", "a", first=1, priority="low"), job("head", 1)]
    assert _decide([node("a", 2)], jobs).evictions == {"spot": "head"}


def test_of_equals_the_one_with_the_least_work_to_lose_goes_then_the_youngest() -> None:
    """Work is cards times time."""
    running = [_runs("old", "a", ran=4000, priority="low"), _runs("young", "a", first=1, ran=3000, priority="low")]
    assert _decide([node("a", 2)], [*running, job("head", 1)]).evictions == {"young": "head"}


def test_nobody_is_evicted_before_its_minimum_run() -> None:
    """A minute here, and less for a spot job; a second later it is over."""
    spot = _runs("r", "a", ran=9, spot=True, tenant="other")
    assert not _decide([node("a", 1)], [spot, job("head", 1)]).evictions
    assert _decide([node("a", 1)], [spot, job("head", 1)], now=NOW + timedelta(seconds=1)).evictions == {"r": "head"}
    young = _runs("r", "a", ran=59, priority="low")
    assert not _decide([node("a", 1)], [young, job("head", 1)]).evictions
    assert _decide([node("a", 1)], [young, job("head", 1)], now=NOW + timedelta(seconds=1)).evictions == {"r": "head"}


def test_a_head_is_looked_at_again_when_somebody_has_run_for_its_minimum() -> None:
    """Nothing else needs to happen for it."""
    young = _runs("r", "a", ran=57, priority="low")
    (verdict,) = _decide([node("a", 1)], [young, job("head", 1)]).verdicts.values()
    assert verdict is not None
    assert verdict.look_at_ms == millis(NOW + timedelta(seconds=3))


def test_as_few_yield_as_will_do() -> None:
    """Two cards are wanted: one job of two cards goes rather than a weaker one that would not be enough without it."""
    running = [_runs("one", "a", priority="low"), _runs("two", "b", 2, priority="low")]
    assert _decide([node("a", 2), node("b", 2)], [*running, _runs("mate", "a", first=1), job("head", 2)]).evictions == {"two": "head"}


def test_b39_an_empty_node_is_part_of_the_plan() -> None:
    """A gang needs both nodes: one victim; and nobody is evicted for a gang that would still not fit."""
    running = [_runs("low", "b", 8, priority="low")]
    nodes = [node("a", 8), node("b", 8)]
    assert _decide(nodes, [*running, job("gang", 8, ranks=2)]).evictions == {"low": "gang"}
    plan = _decide([*nodes, node("c", 8, status="unknown")], [*running, job("gang", 8, ranks=3)])
    assert not plan.evictions


def test_nobody_is_evicted_for_a_job_that_is_over_its_quota() -> None:
    """Room would not help it."""
    jobs = [_runs("r", "a", priority="low"), job("head", 1)]
    assert not _decide([node("a", 1)], jobs, Tenant("acme", quota_milli=1000)).evictions


BE, HP = Tenant("be", weight=0, guarantee_milli=1000), Tenant("hp", weight=1)


def test_b40_a_guaranteed_job_is_not_evicted_by_weight() -> None:
    """(a) Best effort holds its guaranteed card; the weighty tenant waits."""
    plan = _decide([node("a", 1)], [_runs("be", "a", tenant="be"), job("hp", 1, "hp")], BE, HP)
    assert not plan.evictions


def test_b40_a_guarantee_is_taken_back_from_who_borrowed_it() -> None:
    """(b) One eviction, and the tenant of weight 0 goes first while it is below its guarantee."""
    plan = _decide([node("a", 1)], [_runs("hp", "a", tenant="hp"), job("be", 1, "be"), job("hp2", 1, "hp", 10)], BE, HP)
    assert plan.evictions == {"hp": "be"}


def test_b40_two_tenants_without_weight_do_not_evict_each_other() -> None:
    """(c) However often they are looked at."""
    spare = [Tenant("x", weight=0), Tenant("y", weight=0)]
    for holder, waiting in (("x", "y"), ("y", "x")):
        jobs = [_runs("r", "a", tenant=holder), job("w", 1, waiting, priority="high")]
        assert not _decide([node("a", 1)], jobs, *spare, policy=FLEET).evictions


def test_only_what_is_above_the_guarantee_is_taken_back() -> None:
    """The lender wants three cards of a borrower who holds three and is guaranteed one: it cannot be, so nobody goes; two can."""
    lender, borrower = Tenant("lender", guarantee_milli=3000), Tenant("borrower", guarantee_milli=1000)
    running = [_runs(f"r{number}", "a", tenant="borrower", first=number) for number in range(3)]
    assert not _decide([node("a", 3)], [*running, job("w", 3, "lender")], lender, borrower).evictions
    plan = _decide([node("a", 3)], [*running, job("w", 2, "lender")], lender, borrower)
    assert set(plan.evictions.values()) == {"w"}
    assert len(plan.evictions) == 2


def test_who_is_leaving_already_counts_as_gone() -> None:
    """Nobody else is evicted while one that will be enough is on its way out."""
    leaving = replace(_runs("leaving", "a", priority="low"), state="stopping")
    plan = _decide([node("a", 2)], [leaving, _runs("low", "a", first=1, priority="low"), job("head", 1)])
    assert not plan.evictions
    assert [kept.job_id for kept in plan.reservations.values()] == ["head"]


def test_room_that_was_made_is_kept() -> None:
    """One of two victims has gone; its card is not given to another, and nobody more is evicted."""
    nodes = [node("a", 2)]
    running = [_runs("x", "a", priority="low"), _runs("y", "a", first=1, priority="low")]
    first = _decide(nodes, [*running, job("head", 2)])
    assert first.evictions == {"x": "head", "y": "head"}
    left = replace(running[1], state="stopping")
    back = replace(job("x", 1, priority="low"), attempt=1)
    later: dict[Any, Reservation] = first.reservations
    second = _decide(nodes, [left, back, job("head", 2), job("new", 1, "other")], reservations=later)
    assert not second.starts
    assert not second.evictions
    withdrawn = _decide(nodes, [left, back, job("new", 1, "other")], reservations=second.reservations)
    assert len(withdrawn.starts) == 1
    third = _decide(nodes, [back, job("head", 2)], reservations=second.reservations)
    assert [start.job_id for start in third.starts] == ["head"]


def test_a_claimant_that_may_not_start_any_more_lets_the_room_go() -> None:
    """Its tenant's quota has filled meanwhile: others take the room, and claim the rest."""
    nodes, evil = [node("a", 1), node("b", 1)], Tenant("evil", quota_milli=1000)
    claimant = job("head", 1, "evil")
    first = _decide(nodes[:1], [_runs("spot", "a", spot=True), claimant], evil)
    assert first.evictions == {"spot": "head"}
    filled = _runs("other", "b", tenant="evil")
    second = _decide(nodes, [filled, claimant, job("spot", 1, spot=True)], evil, reservations=first.reservations)
    assert [start.job_id for start in second.starts] == ["spot"]
    assert not any(kept.job_id for kept in second.reservations.values())


def test_a_slow_victim_holds_up_nobody_else() -> None:
    """Two claims of one kind of card go side by side, on different nodes, with different victims."""
    nodes = [node("a", 1), node("b", 1)]
    slow, other = _runs("slow", "a", spot=True, tenant="t"), _runs("other", "b", spot=True, tenant="t", ran=7200)
    first = _decide(nodes, [slow, other, job("one", 1)])
    assert first.evictions == {"slow": "one"}
    leaving = replace(slow, state="stopping")
    second = _decide(nodes, [leaving, other, job("one", 1), job("two", 1, "beta")], reservations=first.reservations)
    assert second.evictions == {"other": "two"}
    both = _decide(nodes, [slow, other, job("one", 1), job("two", 1, "beta")])
    assert both.evictions == {"slow": "one", "other": "two"}


def test_claims_at_once_do_not_take_more_than_was_borrowed() -> None:
    """What is on its way out is counted: the borrower keeps its guarantee, whoever claims at the same time."""
    lenders = [Tenant(name, guarantee_milli=1000) for name in ("x", "y", "z")]
    borrower = Tenant("b", guarantee_milli=1000)
    nodes = [node(name, 1) for name in "mno"]
    running = [_runs(f"r{name}", name, tenant="b") for name in "mno"]
    claims = [job(f"c{name}", 1, name) for name in ("x", "y", "z")]
    at_once = _decide(nodes, [*running, *claims], borrower, *lenders)
    assert len(at_once.evictions) == 2
    left = [replace(one, state="stopping") if one.job_id in at_once.evictions else one for one in running]
    later = _decide(nodes, [*left, *claims], borrower, *lenders, reservations=at_once.reservations)
    assert not later.evictions


def test_an_older_job_of_the_same_line_may_take_the_room() -> None:
    """It asks for the same and stands before; the room is not kept from it, nor kept any longer once it has it."""
    nodes, head = [node("a", 1)], job("head", 1)
    first = _decide(nodes, [_runs("spot", "a", spot=True, tenant="t"), head])
    second = _decide(nodes, [head, job("older", 1, waited=50)], reservations=first.reservations)
    assert [start.job_id for start in second.starts] == ["older"]
    assert not any(kept.job_id for kept in second.reservations.values())


def _released(yard: Yard, job_id: str, reason: Any = "stopped", **other: Any) -> list[Any]:
    """Placement tells that the job's last attempt has let go."""
    plan = yard.plan(job_id)
    for rank in plan.ranks:
        held = yard.states[rank.node_id].holds
        yard.change(rank.node_id, holds=tuple(hold for hold in held if hold.job_id != job_id))
    told = AllocationReleasedV1(
        tenant=plan.tenant,
        allocation_id=plan.allocation_id,
        job_id=job_id,
        attempt=plan.attempt,
        reason=reason,
        ended_at=yard.h.clock.now(),
        **other,
    )
    return yard.h.feed(told)


def _evicted(**other: Any) -> tuple[Yard, str, str]:
    """Two low jobs fill a node; a normal job of two cards has made them yield. Returns one victim and the claimant."""
    yard = Yard(Policy(min_run=0, min_run_spot=0, retry_first=0))
    yard.tenant()
    yard.node("a", 2)
    victims = [yard.submit(1, priority="low", request_id=f"v{number}", **other) for number in range(2)]
    for victim in victims:
        yard.start(victim)
    head = yard.submit(2)
    return yard, victims[0], head


def test_b38_a_victim_waits_again_and_is_evicted_once() -> None:
    """It is told why, keeps its age, does not come back into the room of the one it made it for, and goes on when that is over."""
    yard, victim, head = _evicted()
    assert {said.reason for said in yard.h.said_of(JobStoppingV1)} == {"preempted"}
    assert len(yard.h.said_of(ReleaseV1)) == 2
    submitted = yard.row(victim).aged_at
    _released(yard, victim)
    (back,) = yard.h.said_of(JobRequeuedV1)
    assert (back.reason, back.detail) == ("preempted", f"makes room for {head}")
    assert yard.state(victim) == "queued"
    assert yard.row(victim).aged_at == submitted
    for _ in range(5):
        yard.h.clock.advance(1)
        yard.h.tick("look")
    assert len(yard.h.said_of(PlaceV1)) == 2
    other = next(said.job_id for said in yard.h.said_of(ReleaseV1) if said.job_id != victim)
    _released(yard, other)
    assert yard.h.said_of(PlaceV1)[-1].job_id == head
    assert len(yard.h.said_of(ReleaseV1)) == 2
    yard.start(head)
    _released(yard, head, "exited", exit_code=0)
    assert {said.job_id for said in yard.h.said_of(PlaceV1)[-2:]} == {victim, other}


def test_a_victim_that_ends_by_itself_first_has_ended() -> None:
    """What it did counts, not that it was told to yield."""
    yard, victim, _ = _evicted()
    _released(yard, victim, "exited", exit_code=0)
    assert [said.state for said in yard.h.said_of(JobEndedV1)] == ["succeeded"]


def test_a_victim_that_is_cancelled_while_it_yields_ends() -> None:
    """The tenant's word holds: it does not wait again."""
    yard, victim, _ = _evicted()
    yard.cancel(victim)
    _released(yard, victim)
    assert [(said.state, said.reason) for said in yard.h.said_of(JobEndedV1)] == [("cancelled", "cancelled-by-tenant")]


def test_after_a_restart_nobody_is_evicted_again_and_the_room_is_kept() -> None:
    """What was decided is in the rows: who is leaving, and who is first."""
    yard, victim, _ = _evicted()
    yard.h.restart()
    yard.tenant()
    for name in list(yard.states):
        yard.change(name)
    _released(yard, victim)
    for _ in range(5):
        yard.h.clock.advance(1)
        yard.h.tick("look")
    assert len(yard.h.said_of(PlaceV1)) == 2
    assert len(yard.h.said_of(ReleaseV1)) == 2
