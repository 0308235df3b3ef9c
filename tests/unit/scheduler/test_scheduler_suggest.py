"""What a person is told who asks why: what binds, what would start the job, when it may start, and why it was placed where it was."""

from dataclasses import replace
from typing import Any

from gpuyard_contracts.messages.explaining import ExplainAskV1, PlanAskV1
from gpuyard_contracts.messages.scheduler import JobPlacingV1
from gpuyard_scheduler.domain.decide import decide
from gpuyard_scheduler.domain.explain import explain
from gpuyard_scheduler.domain.foresee import foresee
from gpuyard_scheduler.domain.model import Job, NodeFacts, RankPlan, Slice, Tenant
from gpuyard_scheduler.domain.policy import Policy
from gpuyard_scheduler.domain.receipt import receipts
from gpuyard_scheduler.domain.suggest import Suggestion, suggest

from tests.unit.scheduler.scheduler_world import NOW, Yard, job, node, snapshot, spec

POLICY = Policy()


def _runs(name: str, on: str, cards: int, tenant: str = "other", **other: Any) -> Job:
    slices = tuple(Slice(f"GPU-{on}-{number}", 1000, 81_920) for number in range(cards))
    return replace(
        job(name, cards, tenant, **other), state="running", attempt=1, started_at=NOW, ranks=(RankPlan(0, on, slices, 1000, 1024),)
    )


def _told(waiting: Job, nodes: list[NodeFacts], running: list[Job], *tenants: Tenant) -> dict[str, Suggestion]:
    found = snapshot(nodes, [*running, waiting], *tenants)
    return {each.field: each for each in suggest(waiting, found, POLICY)}


def test_fewer_cards_another_model_and_a_share_are_suggested_where_they_help() -> None:
    """Each as one writes it in a job file, with where the job would start."""
    nodes = [node("a", 2), node("t", 4, "T4", 15_360)]
    told = _told(job("w", "A100:2"), nodes, [_runs("r", "a", 1)])
    assert told["gpu"].to in {"A100:1", "T4:2"}
    both = [each.to for each in suggest(job("w", "A100:2"), snapshot(nodes, [_runs("r", "a", 1), job("w", "A100:2")]), POLICY)]
    assert {"A100:1", "T4:2"} <= set(both)
    for gpu in both:
        assert decide(snapshot(nodes, [_runs("r", "a", 1), job("w", gpu)]), POLICY).starts, f"{gpu} was suggested and does not start"


def test_what_would_not_help_is_not_suggested() -> None:
    """Every card is held: no change of the file starts it."""
    nodes = [node("a", 2)]
    assert not _told(job("w", "A100:1", cpu_milli=500), nodes, [_runs("r", "a", 2)])


def test_quota_is_suggested_with_what_is_lacking() -> None:
    """As much as the job needs, no more; and one of the tenant's own jobs that would return it."""
    acme = Tenant("acme", quota_milli=2000)
    told = _told(job("w", 2), [node("a", 8)], [_runs("own", "a", 1, "acme")], acme)
    assert (told["quota"].was, told["quota"].to) == ("2 GPUs", "3 GPUs")
    assert told["stop"].was == "own"


def test_a_zone_and_a_label_that_nobody_has_free_can_be_left_out() -> None:
    """Left out is an empty value."""
    nodes = [node("a", 1, zone="eu-1", labels=(("disk", "fast"),)), node("b", 1, zone="eu-2")]
    told = _told(job("w", 1, zone="eu-1"), nodes, [_runs("r", "a", 1)])
    assert (told["zone"].was, told["zone"].to) in {("eu-1", "eu-2"), ("eu-1", "")}
    told = _told(job("w", 1, node_labels={"disk": "fast"}), nodes, [_runs("r", "a", 1)])
    assert (told["node_labels"].was, told["node_labels"].to) == ("{disk: fast}", "")


def test_what_binds_is_what_most_nodes_of_the_right_kind_fail_on() -> None:
    """Nodes of another model do not count as long as one of the right kind is there; equal verdicts are folded."""
    nodes = [node(name, 1) for name in ("a", "b")] + [node("t", 1, "T4", 15_360)]
    waiting = job("w", "A100:1")
    found = explain(waiting, snapshot(nodes, [_runs("r1", "a", 1), _runs("r2", "b", 1), waiting]), POLICY)
    assert found.binding is not None
    assert (found.binding.constraint, found.binding.nodes, found.binding.of) == ("gpus", 2, 3)
    assert [(fold.number, fold.node_ids) for fold in found.folds] == [(2, ("a", "b")), (1, ("t",))]


def test_an_estimate_stands_on_limits_and_says_when_nobody_knows() -> None:
    """Whole only where all that must end has a limit."""
    waiting = job("w", 1)
    limited = _runs("r", "a", 1, max_seconds=600)
    found = snapshot([node("a", 1)], [limited, waiting])
    found.fleet.hold("r-1", limited.ranks[0], found.now_ms + 610_000)
    estimate = explain(waiting, found, POLICY).estimate
    assert estimate is not None
    assert estimate.earliest_ms == estimate.latest_ms
    assert found.now_ms + 600_000 <= (estimate.earliest_ms or 0) <= found.now_ms + 640_000
    unknown = explain(waiting, snapshot([node("a", 1)], [_runs("r", "a", 1), waiting]), POLICY).estimate
    assert unknown is not None
    assert (unknown.earliest_ms, unknown.assumption) == (None, "nobody knows: 1 running job has no time limit")


def test_a_job_that_is_only_thought_of_leaves_no_trace() -> None:
    """Started at once and where, or made to wait and why; the snapshot is as it was."""
    nodes = [node("a", 2)]
    found = snapshot(nodes, [_runs("r", "a", 1), job("other", 2)])
    before = decide(found, POLICY)
    fits, waits = foresee(job("thought", 1), found, POLICY), foresee(job("thought", 2), found, POLICY)
    assert fits.start is not None
    assert fits.receipt is not None
    assert fits.receipt.chosen[0].node_id == "a"
    assert waits.start is None
    assert waits.explanation.reason is not None
    assert waits.explanation.reason.reason == "no-free-gpus"
    assert decide(found, POLICY) == before
    assert len(found.queue) == 1


def test_a_receipt_tells_the_chosen_and_the_next_best_by_term() -> None:
    """And the same inputs give the same receipt; another state of one node gives another."""

    def made(*nodes: NodeFacts) -> Any:
        found = snapshot(nodes, [job("w", 1)])
        (receipt,) = receipts(decide(found, POLICY).starts, found, POLICY)
        return receipt

    first = made(node("a", 8), node("b", 4))
    assert [one.node_id for one in (*first.chosen, *first.runners_up)] == ["b", "a"]
    assert first.fits == 2
    assert first.chosen[0].score < first.runners_up[0].score
    assert made(node("b", 4), node("a", 8)) == first
    assert made(node("a", 8, version=2), node("b", 4)).inputs != first.inputs


def test_the_service_answers_both_questions_and_tells_the_receipt() -> None:
    """The receipt goes with the event of the placement."""
    yard = Yard()
    yard.tenant()
    yard.node("a", 2)
    yard.submit(1)
    assert yard.h.said_of(JobPlacingV1)[-1].receipt is not None
    waiting = yard.submit(2)
    told = yard.h.inquire(ExplainAskV1(job_id=waiting, tenant="acme"))
    assert (told.position, [each.to for each in told.suggestions if each.field == "gpu"]) == (1, ["1"])
    planned = yard.h.inquire(PlanAskV1(tenant="acme", spec=spec(1)))
    assert planned.rejected is None
    assert yard.h.inquire(PlanAskV1(tenant="acme", spec=spec(64))).rejected in {None, "never-fits"}
    assert yard.h.inquire(PlanAskV1(tenant="nobody", spec=spec(1))).rejected == "tenant-unknown"
    assert len(yard.store.queue) == 1
