"""Laws of making room: no victim too many, none without right, and jobs do not evict each other in turn."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from gpuyard_scheduler.domain.decide import decide
from gpuyard_scheduler.domain.model import CardFacts, Job, NodeFacts, Tenant
from gpuyard_scheduler.domain.policy import PRIORITY_RANK, Policy
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.scheduler.scheduler_world import NOW, job, snapshot

PRIORITIES = ("low", "normal", "high")
NAMES = ("x", "y", "z")

policies = st.builds(
    Policy, preempt=st.sampled_from(("tenant", "fleet")), min_run=st.just(0), min_run_spot=st.just(0), claims_per_cycle=st.just(10)
)
fleets = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(
    lambda sizes: [
        NodeFacts(f"n{at}", 1, tuple(CardFacts(f"GPU-n{at}-{card}", "T4", 16_000) for card in range(size)), 10**6, 10**6)
        for at, size in enumerate(sizes)
    ]
)
tenants = st.tuples(
    *[
        st.builds(Tenant, tenant=st.just(name), weight=st.sampled_from((0, 1, 100)), guarantee_milli=st.sampled_from((0, 0, 1000, 3000)))
        for name in NAMES
    ]
)


@st.composite
def jobs(draw: st.DrawFn, most: int = 14) -> list[Job]:
    """Waiting jobs of three tenants, in the order in which they came; some spot, some gangs, some shares."""
    made = []
    for number in range(draw(st.integers(1, most))):
        gpu: Any = draw(st.sampled_from((1, 1, 2, 3, "0.5", "0.3")))
        other = {"priority": draw(st.sampled_from(PRIORITIES)), "spot": draw(st.booleans()), "ranks": draw(st.sampled_from((1, 1, 1, 2)))}
        made.append(job(f"j{number:02}", gpu, draw(st.sampled_from(NAMES)), waited=1000 - number, **other))
    return made


def _fill(nodes: list[NodeFacts], waiting: list[Job], known: tuple[Tenant, ...]) -> list[Job]:
    """The jobs that run if these come to an idle fleet."""
    plan = decide(snapshot(nodes, waiting, *known), Policy(preempt="none"))
    ranks = {start.job_id: start.ranks for start in plan.starts}
    ages = {found.job_id: NOW - timedelta(seconds=3600 + number) for number, found in enumerate(waiting)}
    return [
        replace(found, state="running", attempt=1, ranks=ranks[found.job_id], started_at=ages[found.job_id])
        for found in waiting
        if found.job_id in ranks
    ]


def _starts(nodes: list[NodeFacts], running: list[Job], head: Job, known: tuple[Tenant, ...]) -> bool:
    plan = decide(snapshot(nodes, [*running, head], *known), Policy(preempt="none"))
    return any(start.job_id == head.job_id for start in plan.starts)


@given(nodes=fleets, crowd=jobs(), head=jobs(1), known=tenants, policy=policies)
def test_no_victim_too_many_and_none_in_vain(
    nodes: list[NodeFacts], crowd: list[Job], head: list[Job], known: tuple[Tenant, ...], policy: Policy
) -> None:
    """Without all victims the job starts; if any one of them stays it does not; each of them had to yield to it."""
    running = _fill(nodes, crowd, known)
    claimant = replace(head[0], job_id="head")
    plan = decide(snapshot(nodes, [*running, claimant], *known), policy)
    victims = set(plan.evictions)
    if not victims:
        return
    assert set(plan.evictions.values()) == {"head"}
    assert not plan.starts
    assert _starts(nodes, [found for found in running if found.job_id not in victims], claimant, known)
    for spared in victims:
        assert not _starts(nodes, [found for found in running if found.job_id not in victims - {spared}], claimant, known)
    by_name = {tenant.tenant: tenant for tenant in known}
    for victim in [found for found in running if found.job_id in victims]:
        _check_right(claimant, victim, running, by_name, policy)


def _check_right(claimant: Job, victim: Job, running: list[Job], known: dict[str, Tenant], policy: Policy) -> None:
    """The rule said once more, by none of the code that applies it."""
    rank, other = (-1 if found.spec.spot else PRIORITY_RANK[found.spec.priority] for found in (claimant, victim))
    if victim.tenant == claimant.tenant:
        assert other < rank
        return
    assert not claimant.spec.spot
    if victim.spec.spot:
        return
    held = {
        name: sum(part.milli for found in running if found.tenant == name for plan in found.ranks for part in plan.slices) for name in known
    }
    assert held[victim.tenant] > known[victim.tenant].guarantee_milli
    need = claimant.ask.milli * claimant.ask.cards * claimant.ask.ranks
    is_within = held[claimant.tenant] + need <= known[claimant.tenant].guarantee_milli
    assert is_within or known[claimant.tenant].weight
    mine = sum(part.milli for plan in victim.ranks for part in plan.slices)
    assert is_within or held[victim.tenant] - mine >= known[victim.tenant].guarantee_milli
    assert is_within or known[victim.tenant].weight == 0 or (policy.preempt == "fleet" and other < rank)


@given(nodes=fleets, crowd=jobs(), more=jobs(6), known=tenants, policy=policies)
def test_jobs_do_not_evict_each_other_in_turn(
    nodes: list[NodeFacts], crowd: list[Job], more: list[Job], known: tuple[Tenant, ...], policy: Policy
) -> None:
    """Nothing ends and nothing new comes: evictions come to an end, and then the fleet stays as it is."""
    running = _fill(nodes, crowd, known)
    begun = {found.job_id for found in running}
    waiting = [found for found in crowd if found.job_id not in begun] + [replace(found, job_id=f"m{found.job_id}") for found in more]
    reservations: Any = {}
    clock = NOW
    quiet = 0
    for _ in range(60):
        clock += timedelta(seconds=1)
        found = snapshot(nodes, [*running, *waiting], *known, now=clock, reservations=reservations)
        plan = decide(found, policy)
        reservations = plan.reservations
        ranks = {start.job_id: start.ranks for start in plan.starts}
        started = [
            replace(one, state="running", attempt=1, ranks=ranks[one.job_id], started_at=clock) for one in waiting if one.job_id in ranks
        ]
        back = [replace(one, state="queued", ranks=(), started_at=None) for one in running if one.job_id in plan.evictions]
        running = [one for one in running if one.job_id not in plan.evictions] + started
        waiting = [one for one in waiting if one.job_id not in ranks] + back
        quiet = 0 if plan.evictions or plan.starts else quiet + 1
    assert quiet > 10
