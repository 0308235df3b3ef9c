"""B36: a large job that waits is not starved by small ones, and small ones that harm nobody still run."""

from dataclasses import replace
from datetime import timedelta

from gpuyard_scheduler.domain.decide import decide
from gpuyard_scheduler.domain.model import Job, Reservation, Tenant, millis
from gpuyard_scheduler.domain.policy import Policy
from gpuyard_scheduler.domain.snapshot import Snapshot

from tests.unit.scheduler.scheduler_world import NOW, job, node, snapshot, started, yard

POLICY = Policy()


def _until(found: Snapshot, running: list[Job]) -> None:
    """Tell the fleet when its holds end, as the store does."""
    for held in running:
        limit = held.spec.max_seconds
        assert held.started_at is not None
        for plan in held.ranks:
            until = None if limit is None else millis(held.started_at) + (limit + held.spec.grace_seconds) * 1000
            found.fleet.hold(f"{held.job_id}-{held.attempt}", plan, until)


def _busy(cards: int, **limits: int) -> list[Job]:
    """Running jobs that fill node a, one card each; their limits in seconds by name."""
    jobs = [job(f"run{number}", 1, "small", max_seconds=limits.get(f"run{number}")) for number in range(cards)]
    ranks = {start.job_id: start.ranks for start in decide(snapshot([node("a", cards)], jobs), POLICY).starts}
    return [started(found, ranks[found.job_id]) for found in jobs]


def test_b36_a_large_job_starts_within_the_longest_remaining_run() -> None:
    """Eight cards full of small jobs, a high job wants all eight, small ones keep coming: what is freed is kept for it."""
    limits = {f"run{number}": 300 + 85 * number for number in range(8)}
    running, clock = _busy(8, **limits), NOW
    waiting = [job("large", 8, "big", priority="high"), *(job(f"w{number:03}", 1, "small", max_seconds=900) for number in range(40))]
    reservations: dict = {}
    for _ in range(1000):
        found = replace(snapshot([node("a")], [*running, *waiting], now=clock), reservations=reservations)
        _until(found, running)
        plan = decide(found, POLICY)
        reservations = plan.reservations
        for start in plan.starts:
            begun = next(waited for waited in waiting if waited.job_id == start.job_id)
            waiting.remove(begun)
            running.append(replace(started(begun, start.ranks), started_at=clock))
        if any(held.job_id == "large" for held in running):
            break
        clock += timedelta(seconds=5)
        running = [held for held in running if held.started_at + timedelta(seconds=held.spec.max_seconds or 0) > clock]  # pyright: ignore[reportOptionalOperand]
    else:
        raise AssertionError("the large job never started")
    assert clock - NOW <= timedelta(seconds=max(limits.values()) + 5)
    assert all(held.job_id == "large" for held in running)


def _with_head(now_waited: float, small: Job, **limits: int) -> tuple[list[str], dict]:
    """Seven of eight cards busy, a head that wants eight and has waited, one small job behind it."""
    running = _busy(8, **limits)[:7]
    head = job("head", 8, "big", now_waited)
    found = snapshot([node("a")], [*running, head, small])
    _until(found, running)
    plan = decide(found, POLICY)
    return [start.job_id for start in plan.starts], plan.reservations


def test_a_small_job_backfills_only_if_it_ends_before_the_planned_start() -> None:
    """The plan is the latest limit of what runs; a job without a limit could run for ever."""
    limits = {f"run{number}": 600 for number in range(8)}
    assert _with_head(100, job("short", max_seconds=500), **limits)[0] == ["short"]
    assert _with_head(100, job("long", max_seconds=700), **limits)[0] == []
    assert _with_head(100, job("endless"), **limits)[0] == []
    ((kept,),) = [list(_with_head(100, job("long"), **limits)[1].values())]
    assert kept.job_id == "head"
    assert kept.start_ms == millis(NOW) + 610_000, "the limit and the grace"


def test_nothing_is_kept_before_the_head_has_waited() -> None:
    """Patience first: a young head does not idle the fleet."""
    assert _with_head(10, job("endless"), run0=600)[0] == ["endless"]


def test_unknown_limits_keep_the_nearest_nodes() -> None:
    """Nobody knows when, so nothing new goes there at all; other nodes are free to all."""
    one, other = _busy(8)[:2], []
    for held in _busy(8)[2:8]:
        ranks = tuple(
            plan._replace(node_id="b", slices=tuple(part._replace(gpu_uuid=part.gpu_uuid.replace("-a-", "-b-")) for part in plan.slices))
            for plan in held.ranks
        )
        other.append(replace(held, ranks=ranks))
    found = snapshot([node("a"), node("b")], [*one, *other, job("head", 8, "big", 100), job("s1"), job("s2"), job("s3")])
    plan = decide(found, POLICY)
    (kept,) = plan.reservations.values()
    assert (kept.nodes, kept.start_ms) == (frozenset({"a"}), None)
    assert {rank.node_id for start in plan.starts for rank in start.ranks} == {"b"}
    assert len(plan.starts) == 2
    assert [verdict.reason for verdict in plan.verdicts.values() if verdict is not None] == ["no-free-gpus", "behind-others"]


def test_a_job_before_the_head_may_use_what_is_kept() -> None:
    """The order decides, not the plan."""
    running = _busy(8)[:7]
    found = snapshot([node("a")], [*running, job("head", 8, "big", 100), job("urgent", 1, priority="high")])
    assert [start.job_id for start in decide(found, POLICY).starts] == ["urgent"]


def test_a_kept_plan_is_trusted_for_a_while_then_made_anew() -> None:
    """It ends with its job: a kind whose job has gone keeps nothing."""
    running = _busy(8)[:7]
    head = job("head", 8, "big", 100)
    first = decide(snapshot([node("a")], [*running, head]), POLICY).reservations
    later = NOW + timedelta(seconds=4)
    again = decide(replace(snapshot([node("a")], [*running, head], now=later), reservations=first), POLICY).reservations
    assert again == first
    later = NOW + timedelta(seconds=6)
    anew = decide(replace(snapshot([node("a")], [*running, head], now=later), reservations=first), POLICY).reservations
    assert [kept.planned_ms for kept in anew.values()] == [millis(later)]
    gone = decide(replace(snapshot([node("a")], [*running, job("small")]), reservations=first), POLICY)
    assert [start.job_id for start in gone.starts] == ["small"]
    assert all(not kept.job_id for kept in gone.reservations.values())


def test_who_was_held_back_goes_on_when_the_head_withdraws() -> None:
    """Nothing is freed by that, but nothing is kept any more either."""
    found = yard(cards=2)
    found.submit(1)
    head = found.submit(2, priority="high")
    small = found.submit(1)
    assert found.state(small) == "queued"
    found.h.tick("look")
    assert found.store.queue.reasons() == {"no-free-gpus": 1, "behind-others": 1}
    found.cancel(head)
    assert found.state(small) == "placing"


def test_nothing_is_kept_for_spare_work_or_for_what_can_never_fit() -> None:
    """A tenant without weight cannot hold room against others; nor can a job that no fleet state would start."""
    running = _busy(8)[:7]
    spare = snapshot([node("a")], [*running, job("head", 8, "spare", 9000)], Tenant("spare", weight=0))
    assert decide(spare, POLICY).reservations == {}
    never = snapshot([node("a")], [*running, job("head", 9, "big", 9000), job("small")])
    plan = decide(never, POLICY)
    assert [start.job_id for start in plan.starts] == ["small"]
    assert not any(kept.job_id for kept in plan.reservations.values())


def test_a_plan_on_a_node_that_closes_is_made_anew_at_once() -> None:
    """Room is kept where it can still come to be."""
    running = _busy(8)[:7]
    head = job("head", 8, "big", 100)
    first = decide(snapshot([node("a"), node("b", 8, status="unknown")], [*running, head]), POLICY).reservations
    assert [kept.nodes for kept in first.values()] == [frozenset({"a"})]
    full = job("filler", 1, "other", priority="high")
    found = snapshot([node("a", 8, status="unknown"), node("b")], [*running, full, head])
    second = decide(replace(found, reservations=first), POLICY).reservations
    assert [kept.nodes for kept in second.values()] == [frozenset({"b"})]
    assert isinstance(next(iter(second.values())), Reservation)
