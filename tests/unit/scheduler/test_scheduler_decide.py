"""Who starts: order, quota, gangs, and that a head which waits blocks nobody."""

from dataclasses import replace
from typing import Any

import pytest
from gpuyard_scheduler.domain.decide import decide
from gpuyard_scheduler.domain.model import Job, Tenant
from gpuyard_scheduler.domain.order import in_order, urgency
from gpuyard_scheduler.domain.policy import Policy
from gpuyard_scheduler.domain.snapshot import Snapshot

from tests.unit.scheduler.scheduler_world import job, node, snapshot, started

POLICY = Policy()


def _started(found: Snapshot, policy: Policy = POLICY) -> list[str]:
    return [start.job_id for start in decide(found, policy).starts]


def _reasons(found: Snapshot, policy: Policy = POLICY) -> dict[str, str]:
    """The verdict on the head of each line that waits."""
    plan = decide(found, policy)
    return {found.queue.groups[key].line[0][1]: verdict.reason for key, verdict in plan.verdicts.items() if verdict is not None}


def _order(found: Snapshot) -> list[str]:
    return [where[5] for where, _ in in_order(found, POLICY)]


def test_priority_goes_before_urgency_before_share_before_age() -> None:
    """Each key decides only where those before it are equal."""
    busy = started(job("held", 4, "busy"), decide(snapshot([node("a")], [job("held", 4, "busy")]), POLICY).starts[0].ranks)
    jobs = [
        busy,
        job("old-low", tenant="idle", waited=9000, priority="low"),
        job("young-high", tenant="busy", priority="high"),
        job("late-gold", tenant="gold", waited=30),
        job("older-busy", tenant="busy", waited=20),
        job("younger-idle", tenant="idle", waited=10),
        job("youngest-idle", tenant="idle", waited=5),
    ]
    found = snapshot([node("a")], jobs, Tenant("gold", sla="gold"))
    assert _order(found) == ["young-high", "late-gold", "younger-idle", "youngest-idle", "older-busy", "old-low"]


def test_urgency_counts_quarters_of_the_promise() -> None:
    """4 is a promise just missed; beyond the cap share decides again."""
    assert [urgency(waited, 60, 16) for waited in (-1, 14_999, 15_000, 60_000, 10**9)] == [0, 0, 1, 4, 16]
    assert urgency(1, 0, 16) == 16


def test_shares_are_weighted() -> None:
    """Twice the weight, twice the share before it is the other's turn."""
    jobs = [job(f"{tenant}{number}", 1, tenant) for tenant in ("heavy", "light") for number in range(9)]
    found = snapshot([node("a", 6)], jobs, Tenant("heavy", weight=200), Tenant("light", weight=100))
    assert sorted(_started(found)) == ["heavy0", "heavy1", "heavy2", "heavy3", "light0", "light1"]


def test_the_dominant_share_may_be_memory() -> None:
    """Half of all GPU memory on an eighth of the cards counts as a half."""
    nodes = [node("big", 1, "A100-80GB", 81_920), node("small", 7, "T4", 11_702)]
    wide, narrow = job("w0", "A100", "wide"), job("n0", "T4", "narrow")
    plans = {start.job_id: start.ranks for start in decide(snapshot(nodes, [wide, narrow]), POLICY).starts}
    jobs = [started(wide, plans["w0"]), started(narrow, plans["n0"]), job("w1", "T4", "wide", 1), job("n1", "T4", "narrow")]
    assert _order(snapshot(nodes, jobs)) == ["n1", "w1"]


def test_a_tenant_without_weight_comes_after_everybody_else() -> None:
    """It runs on what nobody else wants, whatever its priority; nothing is divided by zero."""
    jobs = [job("spare", 1, "spare", 9000, priority="high"), job("paid", 1, "paid", priority="low")]
    found = snapshot([node("a", 1)], jobs, Tenant("spare", weight=0))
    assert _started(found) == ["paid"]
    assert _started(snapshot([node("a", 2)], jobs, Tenant("spare", weight=0))) == ["paid", "spare"]
    two = [job("s1", 1, "one"), job("s2", 1, "two")]
    assert _started(snapshot([node("a", 1)], two, Tenant("one", weight=0), Tenant("two", weight=0))) == ["s1"]


def test_a_head_that_waits_blocks_no_other_kind_and_no_other_ask() -> None:
    """Heads wait per kind of card; a smaller job behind a large one goes ahead as long as nothing is kept."""
    jobs = [job("large", "A100:4", waited=10), job("t4", "T4", waited=5), job("small", "A100:1")]
    nodes = [node("a", 2), node("t", 1, "T4", 15_360)]
    assert sorted(_started(snapshot(nodes, jobs))) == ["small", "t4"]


def test_b34_a_quota_is_never_passed() -> None:
    """Four jobs, two of them run: one that ends lets exactly one start, and what is on its way counts like what runs."""
    tenant = Tenant("acme", quota_milli=2000)
    jobs = [job(f"j{number}") for number in range(4)]
    plan = decide(snapshot([node("a")], jobs, tenant), POLICY)
    assert [start.job_id for start in plan.starts] == ["j0", "j1"]
    ranks = {start.job_id: start.ranks for start in plan.starts}
    running = [replace(started(found, ranks[found.job_id]), state="placing") if found.job_id in ranks else found for found in jobs]
    full = snapshot([node("a")], running, tenant)
    assert _started(full) == []
    assert _reasons(full) == {"j2": "quota"}
    assert _started(snapshot([node("a")], running[1:], tenant)) == ["j2"]
    stopping = [replace(running[0], state="stopping"), *running[1:]]
    assert _started(snapshot([node("a")], stopping, tenant)) == [], "slow to stop is still held"


def test_a_quota_on_gpu_memory_leaves_the_kinds_that_stay_within_it() -> None:
    """A job of any model goes to the smaller card when the larger would pass the quota."""
    nodes = [node("a", 8), node("t", 8, "T4", 15_360)]
    tenant = Tenant("acme", quota_mib=40_000)
    found = snapshot(nodes, [job("j0", 1), job("j1", 1), job("j2", 1)], tenant)
    plan = decide(found, POLICY)
    assert {rank.node_id for start in plan.starts for rank in start.ranks} == {"t"}
    assert len(plan.starts) == 2
    assert _reasons(snapshot(nodes, [job("big", "A100")], tenant)) == {"big": "quota"}


def test_b35_shares_by_memory_never_exceed_the_card() -> None:
    """24 jobs of 2000 MiB on 46068 MiB: 23 run, one waits."""
    found = snapshot([node("a", 1, "L40", 46_068)], [job(f"j{number:02}", {"share_memory_mib": 2000}) for number in range(24)])
    plan = decide(found, POLICY)
    assert len(plan.starts) == 23
    assert sum(part.memory_mib for start in plan.starts for rank in start.ranks for part in rank.slices) == 46_000
    assert _reasons(found) == {"j00": "no-free-gpus"}


def test_a_gang_starts_whole_or_waits() -> None:
    """And says how much of it would find room."""
    found = snapshot([node("a", 2), node("b", 2)], [job("gang", 2, ranks=3, waited=1), job("single", 2)])
    assert _started(found, Policy(reserve_after={"normal": 60, "high": 60, "low": 60})) == ["single"]
    alone = snapshot([node("a", 2), node("b", 2), node("c", 2, holds=())], [job("gang", 2, ranks=4)])
    assert _reasons(alone) == {"gang": "no-fit-place"}, "it could never fit"
    blocked = snapshot([node("a", 2), node("b", 2)], [job("first", 1, priority="high"), job("gang", 2, ranks=2)])
    assert _reasons(blocked) == {"gang": "gang-incomplete"}


@pytest.mark.parametrize(
    ("gpu", "other", "reason"),
    [
        ("H100", {}, "no-fit-model"),
        ("T4|H100", {}, "no-fit-model"),
        ("A100:100GB", {}, "no-fit-memory"),
        (1, {"zone": "west"}, "no-fit-place"),
        (1, {"node_labels": {"disk": "fast"}}, "no-fit-place"),
        ("mig-1g.10gb", {}, "no-fit-place"),
        (2, {}, "no-free-gpus"),
        (1, {"cpu_milli": 127_500}, "no-free-gpus"),
        ("A100:0.75", {}, "ok"),
    ],
)
def test_each_reason_says_what_is_missing(gpu: Any, other: dict[str, Any], reason: str) -> None:
    """One job holds one of two cards and half of the CPU is with it."""
    holder = job("holder", 1, "other", priority="high")
    found = snapshot([node("a", 2)], [holder, job("j", gpu, **other)])
    assert _reasons(found).get("j", "ok") == reason


def test_nothing_is_planned_while_placement_is_blind_or_nothing_is_known() -> None:
    """Blind, no fleet, no tenant: everybody waits for that one reason."""
    jobs = [job("j0"), job("j1", 2)]
    assert set(_reasons(snapshot([node("a")], jobs, is_blind=True)).values()) == {"fleet-blind"}
    assert set(_reasons(snapshot([], jobs)).values()) == {"fleet-empty"}
    unknown = replace(snapshot([node("a")], jobs), tenants={})
    assert set(_reasons(unknown).values()) == {"tenant-unknown"}
    shut = snapshot([node("a", 8, status="unknown")], jobs)
    assert set(_reasons(shut).values()) == {"no-fit-place"}


def test_a_suspended_tenant_starts_nothing() -> None:
    """What waits of it waits on; others go on."""
    found = snapshot([node("a")], [job("j0"), job("k0", tenant="other")], Tenant("acme", is_suspended=True))
    assert _started(found) == ["k0"]
    assert _reasons(found) == {"j0": "quota"}


def test_a_full_plan_says_that_there_is_more() -> None:
    """The rest is looked at in the next cycle and has no reason yet."""
    found = snapshot([node("a")], [job(f"j{number}") for number in range(5)])
    plan = decide(found, Policy(starts_per_cycle=2))
    assert len(plan.starts) == 2
    assert plan.is_capped
    assert list(plan.verdicts.values()) == [None]
    assert not decide(found, POLICY).is_capped


def test_a_verdict_holds_until_something_is_freed() -> None:
    """A line that was judged is not looked at again before its stamp changes."""
    from gpuyard_scheduler.domain.decide import is_awake, stamp_of

    jobs: list[Job] = [job("j0", 8), job("j1", 8)]
    found = snapshot([node("a")], jobs)
    plan = decide(found, POLICY)
    (key,) = plan.verdicts
    group = found.queue.groups[key]
    group.verdict = plan.verdicts[key]
    group.stamp = stamp_of(group, found)
    assert not is_awake(group, found)
    assert decide(found, POLICY).verdicts == {}
    found.fleet.put(node("b", 8, "T4", 15_360))
    assert is_awake(group, found), "another node may be the right one"
