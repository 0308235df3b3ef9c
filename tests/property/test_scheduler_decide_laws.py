"""Laws of the decision, over small fleets and queues of every kind: no sum is ever passed, no gang is split, no order of rows matters."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

from gpuyard_contracts.types import allocation_id_of
from gpuyard_scheduler.domain.ask import need, portion
from gpuyard_scheduler.domain.capacity import settled
from gpuyard_scheduler.domain.decide import Plan, decide
from gpuyard_scheduler.domain.fit import judge
from gpuyard_scheduler.domain.fleet import Fleet
from gpuyard_scheduler.domain.model import CardFacts, HoldFacts, Job, NodeFacts, RankPlan, Tenant, millis
from gpuyard_scheduler.domain.place import place
from gpuyard_scheduler.domain.policy import Policy
from gpuyard_scheduler.domain.snapshot import Snapshot
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.scheduler.scheduler_world import NOW, job, snapshot, spec, started

POLICY = Policy()
MODELS = (("A100-80GB", 81_920), ("A100-40GB", 40_960), ("T4", 15_360))

gpu_asks = st.one_of(
    st.builds(lambda count, models: {"count": count, "models": models}, st.integers(1, 4), st.sampled_from(([], ["A100"], ["T4"]))),
    st.builds(lambda milli, count: {"milli": milli, "count": count}, st.sampled_from((100, 250, 333, 999)), st.integers(1, 2)),
    st.builds(lambda mib: {"share_memory_mib": mib}, st.sampled_from((1, 2000, 15_360, 40_000))),
    st.builds(lambda low: {"memory_mib": low}, st.sampled_from((10_000, 50_000))),
)


@st.composite
def fleets(draw: st.DrawFn) -> list[NodeFacts]:
    """One to five nodes; some closed, some with a closed card, some with links in pairs."""
    nodes = []
    for number in range(draw(st.integers(1, 5))):
        name = f"n{number}"
        model, memory = draw(st.sampled_from(MODELS))
        size = draw(st.integers(1, 4))
        uuids = [f"GPU-{name}-{position}" for position in range(size)]
        pair = draw(st.booleans())
        cards = tuple(
            CardFacts(uuid, model, memory, links=frozenset(uuids[position ^ 1 : (position ^ 1) + 1]) if pair else frozenset())
            for position, uuid in enumerate(uuids)
        )
        shut = draw(st.sampled_from((None, None, None, "node", "card", "silent")))
        cordons = {"node": (("op", None),), "card": (("op", uuids[0]),)}.get(shut or "", ())
        status = "unknown" if shut == "silent" else "ready"
        cpu = draw(st.sampled_from((2000, 8000)))
        labels = draw(st.sampled_from(((), (("disk", "fast"),))))
        nodes.append(NodeFacts(name, 1, cards, cpu, 20_000, labels=labels, status=status, cordons=cordons))
    return nodes


@st.composite
def queues(draw: st.DrawFn) -> list[Job]:
    """Up to 12 waiting jobs of three tenants."""
    jobs = []
    for number in range(draw(st.integers(1, 12))):
        wanted: dict[str, Any] = {
            "ranks": draw(st.integers(1, 3)),
            "priority": draw(st.sampled_from(("low", "normal", "high"))),
            "cpu_milli": draw(st.sampled_from((100, 1000, 3000))),
            "max_seconds": draw(st.sampled_from((None, 60, 600))),
            "node_labels": draw(st.sampled_from(({}, {}, {"disk": "fast"}))),
        }
        made = job(f"j{number:02}", draw(gpu_asks), draw(st.sampled_from(("x", "y", "z"))), draw(st.integers(0, 2000)), **wanted)
        avoid = draw(st.sampled_from((frozenset(), frozenset(), frozenset({"GPU-n0-0"}))))
        jobs.append(replace(made, ask=made.ask._replace(avoid_gpus=avoid)))
    return jobs


tenants = st.tuples(
    st.builds(Tenant, tenant=st.just("x"), quota_milli=st.sampled_from((None, 1000, 3500)), sla=st.sampled_from(("gold", "bronze"))),
    st.builds(Tenant, tenant=st.just("y"), quota_mib=st.sampled_from((None, 50_000)), weight=st.sampled_from((0, 1, 100))),
)


def _check_capacity(nodes: list[NodeFacts], plan: Plan) -> None:
    """Recounted from the plans alone, by none of the code that made them."""
    by_uuid = {card.uuid: (facts, card) for facts in nodes for card in facts.cards}
    cpu: Counter[str] = Counter()
    milli: Counter[str] = Counter()
    mib: Counter[str] = Counter()
    for start in plan.starts:
        seen = [part.gpu_uuid for rank in start.ranks for part in rank.slices]
        assert len(seen) == len(set(seen)), "two parts of one card for one job"
        for rank in start.ranks:
            cpu[rank.node_id] += rank.cpu_milli
            for part in rank.slices:
                facts, _ = by_uuid[part.gpu_uuid]
                assert facts.node_id == rank.node_id
                assert facts.status == "ready"
                assert not any(gpu in (None, part.gpu_uuid) for _, gpu in facts.cordons)
                milli[part.gpu_uuid] += part.milli
                mib[part.gpu_uuid] += part.memory_mib
    assert all(cpu[facts.node_id] <= facts.cpu_milli for facts in nodes)
    assert all(milli[uuid] <= 1000 and mib[uuid] <= card.memory_mib for uuid, (_, card) in by_uuid.items())


@given(nodes=fleets(), jobs=queues(), known=tenants)
def test_no_capacity_and_no_quota_is_ever_passed(nodes: list[NodeFacts], jobs: list[Job], known: tuple[Tenant, ...]) -> None:
    """And every started gang is whole, each of its ranks with what it asked for."""
    plan = decide(snapshot(nodes, jobs, *known), POLICY)
    _check_capacity(nodes, plan)
    by_id = {found.job_id: found for found in jobs}
    milli: Counter[str] = Counter()
    mib: Counter[str] = Counter()
    for start in plan.starts:
        asked = by_id[start.job_id]
        assert [rank.rank for rank in start.ranks] == list(range(asked.ask.ranks))
        assert all(len(rank.slices) == asked.ask.cards for rank in start.ranks)
        milli[asked.tenant] += sum(part.milli for rank in start.ranks for part in rank.slices)
        mib[asked.tenant] += sum(part.memory_mib for rank in start.ranks for part in rank.slices)
    for tenant in known:
        assert tenant.quota_milli is None or milli[tenant.tenant] <= tenant.quota_milli
        assert tenant.quota_mib is None or mib[tenant.tenant] <= tenant.quota_mib


@given(nodes=fleets(), jobs=queues(), known=tenants, order=st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(nodes: list[NodeFacts], jobs: list[Job], known: tuple[Tenant, ...], order: Any) -> None:
    """The same rows in any order give the same plan; deciding twice gives the same plan, for deciding changes nothing."""
    found = snapshot(nodes, jobs, *known)
    plan = decide(found, POLICY)
    assert decide(found, POLICY) == plan
    mixed_nodes, mixed_jobs = list(nodes), list(jobs)
    order.shuffle(mixed_nodes)
    order.shuffle(mixed_jobs)
    again = decide(snapshot(mixed_nodes, mixed_jobs, *reversed(known)), POLICY)
    assert again.starts == plan.starts
    assert again.verdicts == plan.verdicts
    assert again.reservations == plan.reservations


@given(nodes=fleets(), jobs=queues(), known=tenants)
def test_every_waiting_job_has_one_reason(nodes: list[NodeFacts], jobs: list[Job], known: tuple[Tenant, ...]) -> None:
    """Started or judged: no line is left without a verdict where the plan is not full."""
    found = snapshot(nodes, jobs, *known)
    plan = decide(found, POLICY)
    begun = {start.job_id for start in plan.starts}
    for key, group in found.queue.groups.items():
        left = [job_id for _, job_id in group.line if job_id not in begun]
        assert not left or plan.verdicts[key] is not None


@given(nodes=fleets(), gpu=gpu_asks, ranks=st.integers(1, 2), held=st.lists(st.tuples(gpu_asks, st.sampled_from((100, 3000))), max_size=5))
def test_search_and_explanation_agree(nodes: list[NodeFacts], gpu: Any, ranks: int, held: list[Any]) -> None:
    """One rank finds a place exactly where some node's every constraint holds; a plan goes only where all of them do."""
    fleet = Fleet.of(nodes)
    for number, (what, cpu) in enumerate(held):
        _hold(fleet, job(f"h{number}", what, cpu_milli=cpu))
    ask = job("j", gpu).ask
    fitting = {name for name, facts in fleet.nodes.items() if judge(ask, facts) is None}
    found = _first(fleet, ask)
    assert bool(found) == bool(fitting)
    assert {rank.node_id for rank in found} <= fitting
    gang = ask._replace(ranks=ranks)
    assert {rank.node_id for rank in _first(fleet, gang)} <= fitting


def _first(fleet: Fleet, ask: Any) -> tuple[RankPlan, ...]:
    mark = fleet.mark()
    found = place(ask, fleet, fleet.kinds(ask))
    fleet.undo(mark)
    return () if isinstance(found, int) else found


def _hold(fleet: Fleet, held: Job) -> None:
    for plan in _first(fleet, held.ask):
        fleet.hold(held.job_id, plan, None)


@given(nodes=fleets(), jobs=queues(), leaves=st.lists(st.integers(0, 11), max_size=12), told=st.booleans())
def test_the_fleet_is_what_its_holds_leave(nodes: list[NodeFacts], jobs: list[Job], leaves: list[int], told: bool) -> None:
    """After any history of plans, states and ends the fleet equals one that is built anew from what is held now; so do warm views of it."""
    fleet = Fleet.of(nodes)
    asks = [found.ask for found in jobs]
    _views(fleet, asks)
    plan = decide(snapshot(nodes, jobs), POLICY)
    held = {start.job_id: start.ranks for start in plan.starts}
    for job_id, ranks in held.items():
        for rank in ranks:
            fleet.hold(job_id, rank, None)
            _views(fleet, asks)
    if told:
        for facts in nodes:
            holds = tuple(
                HoldFacts(name, *rank[:1], *rank[2:]) for name, ranks in held.items() for rank in ranks if rank.node_id == facts.node_id
            )
            fleet.put(facts._replace(version=2, holds=holds))
            fleet.put(facts._replace(version=3, holds=(), cpu_milli=facts.cpu_milli))
    for number in leaves:
        for rank in held.pop(f"j{number:02}", ()):
            fleet.let_go(f"j{number:02}", rank)
    anew = Fleet.of(nodes)
    for job_id, ranks in held.items():
        for rank in ranks:
            anew.hold(job_id, rank, None)
    assert _shape(fleet) == _shape(anew)
    assert _views(fleet, asks) == _views(anew, asks)


def _views(fleet: Fleet, asks: list[Any]) -> list[Any]:
    """What the board says of these asks."""
    found = [fleet.board.view(ask, fleet.kinds(ask)) for ask in asks]
    return [(view.room.tolist(), view.score.tolist()) for view in found]


def _shape(fleet: Fleet) -> Any:
    """Everything that a search looks at."""
    fleet.board.catch_up()
    columns = fleet.board.columns
    rows = [(bank.node.node_id, bank.pool.kind, bank.row) for bank in fleet.board.banks]
    arrays = [found.tolist() for found in (columns.milli, columns.mib, columns.empty, columns.joined, columns.cpu, columns.memory)]
    idle = {str(key): pool.idle_milli for key, pool in fleet.pools.items()}
    return rows, arrays, idle, {name: (found.cpu_free, found.memory_free) for name, found in fleet.nodes.items()}


@given(
    width=st.integers(2, 4),
    limit=st.integers(20, 90),
    stream=st.lists(st.integers(10, 120), min_size=40, max_size=40),
    share=st.booleans(),
)
def test_a_large_job_is_not_starved_by_a_stream_of_small_ones(width: int, limit: int, stream: list[int], share: bool) -> None:
    """Small jobs with limits keep coming; the large one starts once its patience and the longest run before it are over."""
    policy = Policy(reserve_after={"high": 0, "normal": 30, "low": 0})
    nodes = [NodeFacts("a", 1, tuple(CardFacts(f"GPU-{n}", "T4", 15_360) for n in range(width)), 100_000, 100_000)]
    small: Any = {"milli": 500} if share else 1
    clock, running, waiting = NOW, list[Job](), [job("large", width, "big", -1)]
    waiting = [*[job(f"s{n:02}", small, "small", max_seconds=limit) for n in range((1 + share) * width)], *waiting]
    reservations: Any = {}
    for step in range(40):
        found = replace(snapshot(nodes, [*running, *waiting], now=clock), reservations=reservations)
        for held in running:
            _tell_end(found, held)
        plan = decide(found, policy)
        reservations = plan.reservations
        ranks = {start.job_id: start.ranks for start in plan.starts}
        running += [replace(started(one, ranks[one.job_id]), started_at=clock) for one in waiting if one.job_id in ranks]
        waiting = [one for one in waiting if one.job_id not in ranks]
        if "large" in ranks:
            break
        clock += timedelta(seconds=10)
        running = [one for one in running if (one.started_at or NOW) + timedelta(seconds=one.spec.max_seconds or 0) > clock]
        late = job(f"t{step:02}", small, "small", max_seconds=stream[step])
        waiting.append(replace(late, aged_at=clock))
    assert (clock - NOW).total_seconds() <= 30 + max(limit, *stream) + 20
    assert "large" in {held.job_id for held in running}


def _tell_end(found: Snapshot, held: Job) -> None:
    assert held.started_at is not None
    for plan in held.ranks:
        until = None if held.spec.max_seconds is None else millis(held.started_at) + held.spec.max_seconds * 1000
        found.fleet.hold(allocation_id_of(held.job_id, held.attempt), plan, until)


@given(share=st.integers(1, 46_068))
def test_b35_shares_by_memory_fill_a_card_and_no_more(share: int) -> None:
    """Whatever the size: as many as the card's memory holds (and a thousand at most), never more."""
    number = min(46_068 // share, 30) + 1
    card = NodeFacts("a", 1, (CardFacts("GPU-a", "L40", 46_068),), 10**6, 10**6)
    jobs = [job(f"j{n:04}", {"share_memory_mib": share}, cpu_milli=1, memory_mib=1) for n in range(number)]
    plan = decide(snapshot([card], jobs), POLICY)
    _check_capacity([card], plan)
    assert len(plan.starts) == min(46_068 // share, number)


@given(gpu=gpu_asks, model=st.sampled_from(MODELS), ranks=st.integers(1, 3))
def test_what_quotas_count_is_what_plans_take(gpu: Any, model: tuple[str, int], ranks: int) -> None:
    """The need that is held against a quota equals the sum of the slices."""
    ask = job("j", gpu, ranks=ranks).ask
    nodes = [NodeFacts(f"n{n}", 1, tuple(CardFacts(f"GPU-{n}-{c}", *model) for c in range(4)), 10**6, 10**6) for n in range(3)]
    fleet = Fleet.of(nodes)
    for kind, _ in fleet.kinds(settled(ask, fleet)):
        found = _first(fleet, ask)
        slices = [part for rank in found for part in rank.slices]
        assert not found or (sum(part.milli for part in slices), sum(part.memory_mib for part in slices)) == need(ask, kind)
        assert portion(ask, kind)[1] <= kind.memory_mib
    assert spec(gpu).gpu.count == ask.cards
