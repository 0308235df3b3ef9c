"""Nodes, cards, incidents and the queue: shown as they are known, and no further."""

import pytest
from gpuyard_contracts.messages.asks import GpusAskV1, GpusReplyV1, QueueAskV1, QueueReplyV1, TenantQueueV1, WatchedGpuV1
from gpuyard_contracts.messages.monitor import IncidentClosedV1, IncidentOpenedV1
from gpuyard_contracts.messages.node import GpuSampleV1
from gpuyard_contracts.messages.placement import CordonV1, GpuV1, HoldV1, NodeCordonV1, NodeUncordonV1
from gpuyard_contracts.messages.scheduler import SliceV1
from gpuyard_contracts.types import incident_id_of, job_id_of

from tests.support.api_yard import GPU, ApiWorld, node_state

MINE, OTHERS = job_id_of("acme", "r"), job_id_of("beta", "r")


def _hold(tenant: str, job_id: str) -> HoldV1:
    part = SliceV1(gpu_uuid=GPU, milli=400, memory_mib=1000)
    return HoldV1(allocation_id=f"{job_id}-1", tenant=tenant, job_id=job_id, rank=0, slices=(part,), cpu_milli=1000, memory_mib=2048)


def _fleet(world: ApiWorld) -> None:
    at = world.harness.clock.now()
    cordon = CordonV1(holder="incident/inc-1", reason="hot", gpu_uuid=GPU, at=at)
    world.harness.feed(node_state(at=at, holds=(_hold("acme", MINE), _hold("beta", OTHERS)), cordons=(cordon,)))
    world.harness.feed(node_state("t4-01", at=at, status="unknown"))


async def test_a_node_shows_what_is_free(world: ApiWorld) -> None:
    """Free is what the holds leave; a cordoned card does not cordon its node; the display name is the machine's own (B58)."""
    _fleet(world)
    nodes = (await world.as_("admin").get("/v1/nodes")).json()["nodes"]
    assert [node["node_id"] for node in nodes] == ["a100-01", "t4-01"]
    node = nodes[0]
    assert (node["gpu_milli"], node["free_gpu_milli"], node["free_cpu_milli"]) == (1000, 200, 62000)
    assert (node["is_cordoned"], node["cordons"][0]["holder"]) == (False, "incident/inc-1")
    assert (node["display_name"], node["models"]) == ("Regal 4, Größe L", {"A100-80GB": 1})
    assert set(node["jobs"]) == {MINE, OTHERS}
    assert nodes[1]["status"] == "unknown"
    assert (await world.as_("admin").get("/v1/nodes/t4-01")).json() == nodes[1]
    assert (await world.as_("admin").get("/v1/nodes/nowhere")).status_code == 404


async def test_a_tenant_sees_the_fleet_without_the_others(world: ApiWorld) -> None:
    """How full it is, but not by whom."""
    _fleet(world)
    client = world.as_("acme")
    assert (await client.get("/v1/nodes/a100-01")).json()["jobs"] == [MINE]
    world.engine.answers[GpusAskV1] = GpusReplyV1(gpus=())
    (gpu,) = (await client.get("/v1/gpus?node_id=a100-01")).json()["gpus"]
    assert gpu["used_milli"] == 800
    assert [holder["tenant"] for holder in gpu["holders"]] == ["acme"]
    assert OTHERS not in (await client.get("/v1/gpus")).text


@pytest.mark.parametrize(("is_stale", "telemetry"), [(False, "live"), (True, "stale")])
async def test_a_sample_is_shown_while_it_can_be_believed(world: ApiWorld, is_stale: bool, telemetry: str) -> None:
    """A stale one is said to be stale, and its values are absent."""
    _fleet(world)
    sample = GpuSampleV1(gpu_uuid=GPU, temperature_c=61)
    watched = WatchedGpuV1(node_id="a100-01", sample=sample, at=world.harness.clock.now(), is_stale=is_stale)
    world.engine.answers[GpusAskV1] = GpusReplyV1(gpus=(watched,))
    gpus = (await world.as_("admin").get("/v1/gpus?node_id=a100-01")).json()["gpus"]
    assert gpus[0]["telemetry"] == telemetry
    assert (gpus[0]["sample"] is None) == is_stale
    assert is_stale or gpus[0]["sample"]["temperature_c"] == 61
    assert is_stale or gpus[0]["sample"]["power_mw"] is None


async def test_without_monitor_the_cards_are_still_there(world: ApiWorld) -> None:
    """And it is said why they have no sample."""
    _fleet(world)
    answer = await world.as_("admin").get("/v1/gpus")
    assert answer.status_code == 200
    assert {gpu["telemetry"] for gpu in answer.json()["gpus"]} == {"no-answer"}
    world.engine.answers[GpusAskV1] = GpusReplyV1(gpus=())
    assert {gpu["telemetry"] for gpu in (await world.as_("admin").get("/v1/gpus")).json()["gpus"]} == {"absent"}


async def test_cards_come_in_pages_of_whole_nodes(world: ApiWorld) -> None:
    """Monitor is asked about the page's nodes only: the samples of a large fleet are too much for one message."""
    at = world.harness.clock.now()
    names = [f"n{number:03}" for number in range(120)]
    facts = node_state(at=at).facts.model_copy(update={"gpus": tuple(GpuV1(uuid=f"GPU-{n}", model="T4", memory_mib=1) for n in range(3))})
    world.harness.feed(*(node_state(name, at=at, facts=facts) for name in reversed(names)))
    client, seen, cursor = world.as_("admin"), [], None
    world.engine.answers[GpusAskV1] = GpusReplyV1(gpus=())
    while True:
        page = (await client.get("/v1/gpus", params={"limit": 100} | ({} if cursor is None else {"cursor": cursor}))).json()
        asked = [ask.node_id for ask in world.engine.asked if isinstance(ask, GpusAskV1)]
        assert asked == sorted({gpu["node_id"] for gpu in page["gpus"]}) and len(page["gpus"]) <= 100
        world.engine.asked.clear()
        seen += [gpu["node_id"] for gpu in page["gpus"]]
        if (cursor := page["next_cursor"]) is None:
            break
    assert seen == [name for name in names for _ in range(3)]


async def test_a_node_with_more_cards_than_a_page_is_a_page(world: ApiWorld) -> None:
    """Its cards are not divided, and the next page goes on behind it; one node's list has no next page."""
    _fleet(world)
    client = world.as_("admin")
    assert (await client.get("/v1/gpus?node_id=a100-01&limit=1")).json()["next_cursor"] is None
    first = (await client.get("/v1/gpus?limit=1")).json()
    assert first["next_cursor"] == "a100-01"
    assert [gpu["node_id"] for gpu in (await client.get("/v1/gpus?cursor=a100-01")).json()["gpus"]] == ["t4-01"]
    assert (await client.get("/v1/gpus?cursor=no+cursor")).status_code == 422


async def test_operators_orders_go_to_placement(world: ApiWorld) -> None:
    """Cordon, drain and uncordon, for a node or a card, held by the operator."""
    _fleet(world)
    admin = world.as_("admin")
    answer = await admin.post("/v1/nodes/a100-01/cordon", json={"reason": "fan", "gpu_uuid": GPU})
    assert (answer.status_code, answer.json()["order"], answer.json()["holder"]) == (202, "cordon", "operator/admin")
    assert (await admin.post("/v1/nodes/a100-01/drain")).json()["order"] == "drain"
    assert (await admin.post("/v1/nodes/a100-01/uncordon", json={"holder": "incident/inc-1"})).json()["holder"] == "incident/inc-1"
    assert (await admin.post("/v1/nodes/a100-01/uncordon")).json()["holder"] == "operator/admin"
    assert [(order.reason, order.gpu_uuid, order.is_drain) for order in world.harness.said_of(NodeCordonV1)] == [
        ("fan", GPU, False),
        ("", None, True),
    ]
    assert [order.holder for order in world.harness.said_of(NodeUncordonV1)] == ["incident/inc-1", "operator/admin"]


@pytest.mark.parametrize("verb", ["cordon", "drain", "uncordon"])
async def test_an_unknown_node_takes_no_orders(world: ApiWorld, verb: str) -> None:
    """404, nothing said, and the try is in the audit log."""
    said = len(world.harness.said)
    answer = await world.as_("admin").post(f"/v1/nodes/nowhere/{verb}")
    assert (answer.status_code, answer.json()["code"]) == (404, "not-found")
    assert len(world.harness.said) == said
    assert world.harness.journal("audit")[-1].result == "not-found"


async def test_an_unknown_card_takes_no_orders(world: ApiWorld) -> None:
    """404 for a card that is not of this node; a bad reason is refused before."""
    _fleet(world)
    admin = world.as_("admin")
    assert (await admin.post("/v1/nodes/a100-01/cordon", json={"gpu_uuid": "GPU-other"})).status_code == 404
    assert (await admin.post("/v1/nodes/a100-01/cordon", json={"reason": "a\u0000"})).status_code == 422
    assert world.harness.said_of(NodeCordonV1) == []


async def test_incidents_are_listed_youngest_first(world: ApiWorld) -> None:
    """Open and over, with what was seen; narrowed by node and to the open ones."""
    for node in ("n1", "n2"):
        at = world.harness.clock.now()
        name = incident_id_of(node, "gpu-hot", GPU, at)
        world.harness.feed(
            IncidentOpenedV1(incident_id=name, kind="gpu-hot", node_id=node, gpu_uuid=GPU, action="evict", evidence="91 °C", opened_at=at)
        )
        world.harness.clock.advance(1)
    world.harness.feed(
        IncidentClosedV1(incident_id=name, kind="gpu-hot", node_id="n2", gpu_uuid=GPU, evidence="70 °C", opened_at=at, closed_at=at)
    )
    client = world.as_("acme")
    assert [(row["node_id"], row["is_open"]) for row in (await client.get("/v1/incidents")).json()["incidents"]] == [
        ("n2", False),
        ("n1", True),
    ]
    assert [row["node_id"] for row in (await client.get("/v1/incidents?open_only=true")).json()["incidents"]] == ["n1"]
    assert [row["closing_evidence"] for row in (await client.get("/v1/incidents?node_id=n2")).json()["incidents"]] == ["70 °C"]


async def test_the_queue_is_the_schedulers_answer(world: ApiWorld) -> None:
    """A tenant asks for its own part."""
    share = TenantQueueV1(tenant="acme", waiting=2, running=1, used_gpu_milli=1000, used_gpu_memory_mib=1, dominant_share_ppm=5)
    world.engine.answers[QueueAskV1] = QueueReplyV1(waiting=2, reasons={"quota": 2}, positions={MINE: 1}, tenants=(share,))
    told = (await world.as_("acme").get("/v1/queue")).json()
    assert (told["waiting"], told["reasons"], told["positions"]) == (2, {"quota": 2}, {MINE: 1})
    assert world.engine.asked == [QueueAskV1(tenant="acme")]
    await world.as_("admin").get("/v1/queue")
    assert world.engine.asked[-1] == QueueAskV1(tenant=None)
