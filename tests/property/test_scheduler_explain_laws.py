"""Laws of what is told: what is suggested starts the job, asking changes nothing, and receipts are made again bit for bit."""

from dataclasses import replace
from typing import Any

from gpuyard_contracts.gpu import parse
from gpuyard_contracts.spec import GpuAsk
from gpuyard_scheduler.domain.ask import ask_of
from gpuyard_scheduler.domain.decide import decide
from gpuyard_scheduler.domain.explain import explain
from gpuyard_scheduler.domain.model import Job, NodeFacts, Tenant
from gpuyard_scheduler.domain.policy import Policy
from gpuyard_scheduler.domain.receipt import receipts
from gpuyard_scheduler.domain.snapshot import Snapshot
from gpuyard_scheduler.domain.suggest import suggest
from gpuyard_scheduler.mapping.told import receipt_of
from hypothesis import given
from hypothesis import strategies as st

from tests.property.test_scheduler_decide_laws import fleets, queues, tenants
from tests.unit.scheduler.scheduler_world import NOW, snapshot, started

POLICY = Policy()
RECEIPT_BYTES = 4096

_READ: dict[str, Any] = {
    "gpu": lambda text: {"gpu": GpuAsk(**parse(text))},
    "ranks": lambda text: {"ranks": int(text)},
    "priority": lambda text: {"priority": text},
    "node_labels": lambda text: {"node_labels": {}},
}
"""How a suggestion is read back from what was told, by none of the code that made it."""


def _running(nodes: list[NodeFacts], jobs: list[Job], known: tuple[Tenant, ...]) -> list[Job]:
    """The jobs as they are after one decision: some run, the others wait."""
    ranks = {start.job_id: start.ranks for start in decide(snapshot(nodes, jobs, *known), POLICY).starts}
    return [started(found, ranks[found.job_id]) if found.job_id in ranks else found for found in jobs]


def _state(found: Snapshot) -> Any:
    found.fleet.board.catch_up()
    columns = found.fleet.board.columns
    arrays = [part.tolist() for part in (columns.milli, columns.mib, columns.empty, columns.cpu, columns.memory)]
    lines = {key: (list(group.line), group.verdict, group.stamp) for key, group in found.queue.groups.items()}
    return arrays, lines, found.fleet.mark(), found.fleet.known, dict(found.usage.by_tenant), sorted(found.lives.by_job)


@given(nodes=fleets(), jobs=queues(), known=tenants)
def test_what_is_suggested_starts_the_job(nodes: list[NodeFacts], jobs: list[Job], known: tuple[Tenant, ...]) -> None:
    """The file changed as told and asked for now, in place of the old job, is started by the next decision on the same state."""
    after = _running(nodes, jobs, known)
    waiting = [found for found in after if found.state == "queued"][:3]
    for found in waiting:
        for told in suggest(found, snapshot(nodes, after, *known), POLICY):
            if told.field not in _READ:
                continue
            spec = found.spec.model_copy(update=_READ[told.field](told.to))
            anew = replace(found, spec=spec, ask=ask_of(spec), aged_at=NOW)
            others = snapshot(nodes, after, *known)
            changed = replace(others, queue=others.queue.instead(anew))
            assert found.job_id in {start.job_id for start in decide(changed, POLICY).starts}, told


@given(nodes=fleets(), jobs=queues(), known=tenants)
def test_asking_why_changes_nothing(nodes: list[NodeFacts], jobs: list[Job], known: tuple[Tenant, ...]) -> None:
    """Whatever was tried for the answer is undone; asked twice the answer is the same."""
    after = _running(nodes, jobs, known)
    found = snapshot(nodes, after, *known)
    before, plan = _state(found), decide(found, POLICY)
    for waiting in [one for one in after if one.state == "queued"][:3]:
        assert explain(waiting, found, POLICY) == explain(waiting, found, POLICY)
    assert _state(found) == before
    assert decide(found, POLICY) == plan


@given(nodes=fleets(), jobs=queues(), known=tenants, order=st.randoms(use_true_random=False))
def test_the_same_inputs_give_the_same_receipts(nodes: list[NodeFacts], jobs: list[Job], known: tuple[Tenant, ...], order: Any) -> None:
    """Whatever order the rows came in; the chosen nodes are those of the plan, and a receipt is small enough to go with the event."""

    def made(nodes: list[NodeFacts], jobs: list[Job]) -> list[str]:
        found = snapshot(nodes, jobs, *known)
        starts = decide(found, POLICY).starts
        told = [receipt_of(receipt).model_dump_json() for receipt in receipts(starts, found, POLICY)]
        for start, receipt in zip(starts, receipts(starts, found, POLICY), strict=True):
            taken = {plan.node_id for plan in start.ranks}
            assert {one.node_id for one in receipt.chosen} <= taken
            assert receipt.nodes == len(taken)
        return told

    first = made(nodes, jobs)
    mixed_nodes, mixed_jobs = list(nodes), list(jobs)
    order.shuffle(mixed_nodes)
    order.shuffle(mixed_jobs)
    assert made(mixed_nodes, mixed_jobs) == first
    assert all(len(text.encode()) <= RECEIPT_BYTES for text in first)
