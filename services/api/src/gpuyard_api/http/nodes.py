"""Nodes, cards, incidents and the queue: what the fleet is, how it is, and taking parts of it out of service."""

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from gpuyard_contracts.messages.asks import GpusAskV1, GpusReplyV1, QueueAskV1, QueueReplyV1
from gpuyard_contracts.messages.node import GpuSampleV1
from gpuyard_contracts.messages.placement import NodeStateV1
from gpuyard_contracts.types import NodeId

from gpuyard_api import acts, problems
from gpuyard_api.domain.access import Principal
from gpuyard_api.http.answers import problem_responses
from gpuyard_api.http.context import Operator, TheYard, Who, Yard, bearer
from gpuyard_api.problems import Problem
from gpuyard_api.views.fleet import (
    CordonBody,
    GpuList,
    GpuView,
    IncidentList,
    NodeList,
    NodeView,
    OrderView,
    QueueView,
    Telemetry,
    UncordonBody,
    gpu_views,
    incident_view,
    node_view,
)

router = APIRouter(prefix="/v1", tags=["fleet"], dependencies=[bearer])

NO_REASON = CordonBody()
OWN_HOLD = UncordonBody()
MAX_NODES = 50
"""On one page of cards: each is a question to monitor, and they are asked at once."""

Samples = dict[str, tuple[Telemetry, datetime, GpuSampleV1]]


@router.get("/nodes", summary="List nodes", response_model=NodeList, responses=problem_responses())
async def list_nodes(who: Who, yard: TheYard) -> NodeList:
    """All nodes as placement knows them. A tenant sees the jobs of its own only."""
    nodes = yard.engine.store.nodes
    return NodeList(nodes=[node_view(nodes[name], tenant=who.tenant) for name in sorted(nodes)])


@router.get("/nodes/{node_id}", summary="One node", response_model=NodeView, responses=problem_responses(404))
async def get_node(node_id: str, who: Who, yard: TheYard) -> NodeView:
    """The node as placement knows it."""
    return node_view(_node(yard, node_id), tenant=who.tenant)


def _node(yard: Yard, node_id: str) -> NodeStateV1:
    node = yard.engine.store.nodes.get(node_id)
    if node is None:
        raise problems.not_found("node", node_id)
    return node


@router.get("/gpus", summary="List cards with their last samples", response_model=GpuList, responses=problem_responses(404, 422))
async def list_gpus(
    who: Who,
    yard: TheYard,
    node_id: Annotated[NodeId | None, Query(description="Only this node's.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="As many whole nodes as have so many cards; one at least.")] = 200,
    cursor: Annotated[NodeId | None, Query(description="From the page before: `next_cursor`.")] = None,
) -> GpuList:
    """Every card: who holds it and how it is. A sample that is too old to be believed is not shown; `telemetry` says why there is none."""
    nodes = yard.engine.store.nodes
    chosen = [_node(yard, node_id)] if node_id is not None else _page_of_nodes(nodes, limit, cursor)
    samples = await asyncio.gather(*(_samples(yard, node.node_id) for node in chosen))
    found: list[GpuView] = []
    for node, (seen, missing) in zip(chosen, samples, strict=True):
        views = gpu_views(node, seen, missing, tenant=who.tenant)
        found += sorted(views, key=lambda view: (view.index is None, view.index or 0, view.uuid))
    is_more = node_id is None and bool(chosen) and chosen[-1].node_id != max(nodes)
    return GpuList(gpus=found, next_cursor=chosen[-1].node_id if is_more else None)


def _page_of_nodes(nodes: Mapping[str, NodeStateV1], limit: int, cursor: str | None) -> list[NodeStateV1]:
    """The next nodes by id that have so many cards together, or the next one if it alone has more; at most MAX_NODES."""
    chosen: list[NodeStateV1] = []
    room = limit
    for name in sorted(name for name in nodes if cursor is None or name > cursor)[:MAX_NODES]:
        room -= len(nodes[name].facts.gpus)
        if chosen and room < 0:
            break
        chosen.append(nodes[name])
    return chosen


async def _samples(yard: Yard, node_id: str) -> tuple[Samples, Telemetry]:
    """The last samples by card, and what is said of a card without one. A monitor that is away hides the samples, not the cards.

    Node by node, as the samples of a whole fleet are more than one message on the bus can carry.
    """
    try:
        reply = await yard.ask(GpusAskV1(node_id=node_id), GpusReplyV1)
    except Problem:
        return {}, "no-answer"
    return {
        watched.sample.gpu_uuid: ("stale" if watched.is_stale else "live", watched.at, watched.sample) for watched in reply.gpus
    }, "absent"


@router.post(
    "/nodes/{node_id}/cordon",
    status_code=202,
    summary="Keep new work away",
    response_model=OrderView,
    responses=problem_responses(403, 404, 422),
)
async def cordon_node(node_id: str, who: Operator, yard: TheYard, body: CordonBody = NO_REASON) -> OrderView:
    """Nothing new is placed on the node (or on one card of it); what runs there goes on. The holder is ``operator/<name>``."""
    return await _cordon(yard, who, node_id, body, is_drain=False)


@router.post(
    "/nodes/{node_id}/drain",
    status_code=202,
    summary="Move the work away",
    response_model=OrderView,
    responses=problem_responses(403, 404, 422),
)
async def drain_node(node_id: str, who: Operator, yard: TheYard, body: CordonBody = NO_REASON) -> OrderView:
    """As cordon, and what runs there is stopped with its grace and queued again elsewhere."""
    return await _cordon(yard, who, node_id, body, is_drain=True)


async def _cordon(yard: Yard, who: Principal, node_id: str, body: CordonBody, *, is_drain: bool) -> OrderView:
    await yard.act(acts.cordon(who, node_id, body.reason, body.gpu_uuid, is_drain=is_drain))
    order = "drain" if is_drain else "cordon"
    node = node_view(_node(yard, node_id), tenant=None)
    return OrderView(order=order, node_id=node_id, gpu_uuid=body.gpu_uuid, holder=who.actor, node=node)


@router.post(
    "/nodes/{node_id}/uncordon", status_code=202, summary="Let go", response_model=OrderView, responses=problem_responses(403, 404, 422)
)
async def uncordon_node(node_id: str, who: Operator, yard: TheYard, body: UncordonBody = OWN_HOLD) -> OrderView:
    """The holder (without one: the caller) lets go. Others may still hold; a drain that is going on stops where it is."""
    holder = body.holder or who.actor
    await yard.act(acts.uncordon(who, node_id, holder, body.gpu_uuid))
    node = node_view(_node(yard, node_id), tenant=None)
    return OrderView(order="uncordon", node_id=node_id, gpu_uuid=body.gpu_uuid, holder=holder, node=node)


@router.get("/incidents", summary="List faults", response_model=IncidentList, responses=problem_responses(422))
async def list_incidents(
    who: Who,
    yard: TheYard,
    node_id: Annotated[NodeId | None, Query()] = None,
    open_only: Annotated[bool, Query(description="Leave out those that are over.")] = False,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> IncidentList:
    """Faults of cards and nodes of the last 30 days, the youngest first, with what was seen."""
    rows = [
        row
        for row in yard.engine.store.incidents.values()
        if node_id in (None, row.node_id) and not (open_only and row.closed_at is not None)
    ]
    rows.sort(key=lambda row: (row.opened_at, row.incident_id), reverse=True)
    return IncidentList(incidents=[incident_view(row) for row in rows[:limit]])


@router.get("/queue", summary="The queue now", response_model=QueueView, responses=problem_responses())
async def queue(who: Who, yard: TheYard) -> QueueView:
    """How many wait and why, positions, and the tenants' shares; a tenant's token sees its own part."""
    reply = await yard.ask(QueueAskV1(tenant=who.tenant), QueueReplyV1)
    return QueueView.model_validate(reply.model_dump())
