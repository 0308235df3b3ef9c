"""Rows and the domain's nouns.

What never changes inside of an allocation is one JSON column (`terms`). JSON columns are PostgreSQL's `json`, which keeps the text that it
was given (a node's facts are compared by their text); instants in JSON are ISO 8601.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from gpuyard_runtime.table import Record
from pydantic_core import from_json, to_json

from gpuyard_placement.domain.model import Allocation, Gpu, Mark, Node, RankPlan, RankState, Slice, Stop, Terms
from gpuyard_placement.mapping.messages import facts_of, told_facts


def text_of(value: Any) -> str:
    """A value as JSON text."""
    return to_json(value).decode()


def terms_text(found: Allocation) -> str:
    """The column `terms`."""
    terms = found.terms
    plan = [
        (rank.rank, rank.node_id, [(part.gpu_uuid, part.milli, part.memory_mib) for part in rank.slices], rank.cpu_milli, rank.memory_mib)
        for rank in terms.plan
    ]
    cards = [(card.uuid, card.model, card.memory_mib, card.is_shareable) for card in terms.cards]
    return text_of(
        {
            "plan": plan,
            "cards": cards,
            "port": terms.port,
            "grace_ms": terms.grace_ms,
            "start_by": terms.start_by,
            "traceparent": terms.traceparent,
        }
    )


def ranks_text(found: Allocation) -> str:
    """The column `ranks`: one array per rank."""
    return text_of([(rank.status, rank.started_at, rank.seen_at, rank.ended_at, rank.is_clean) for rank in found.ranks])


def stop_text(found: Allocation) -> str | None:
    """The column `stop`."""
    return None if found.stop is None else text_of(found.stop)


def allocation_row(record: Record) -> Allocation:
    """An allocation from its row."""
    terms = from_json(record["terms"])
    return Allocation(
        allocation_id=record["allocation_id"],
        tenant=record["tenant"],
        job_id=record["job_id"],
        attempt=record["attempt"],
        state=record["state"],
        terms=Terms(
            plan=tuple(
                RankPlan(rank, node_id, tuple(Slice(*part) for part in slices), cpu, memory)
                for rank, node_id, slices, cpu, memory in terms["plan"]
            ),
            cards=tuple(Gpu(*card) for card in terms["cards"]),
            port=terms["port"],
            grace_ms=terms["grace_ms"],
            start_by=datetime.fromisoformat(terms["start_by"]),
            traceparent=terms["traceparent"],
        ),
        ranks=tuple(
            RankState(status, _instant(started), _instant(seen), _instant(ended), is_clean)
            for status, started, seen, ended, is_clean in from_json(record["ranks"])
        ),
        committed_at=record["committed_at"],
        started_at=record["started_at"],
        ended_at=record["ended_at"],
        stop=_stop_row(record["stop"]),
    )


def _stop_row(text: str | None) -> Stop | None:
    if text is None:
        return None
    found = from_json(text)
    instant = datetime.fromisoformat(found.pop("sent_at"))
    avoid_gpus, avoid_nodes = tuple(found.pop("avoid_gpus")), tuple(found.pop("avoid_nodes"))
    return Stop(sent_at=instant, avoid_gpus=avoid_gpus, avoid_nodes=avoid_nodes, **found)


def node_row(record: Record) -> Node:
    """A node from its row."""
    return Node(
        node_id=record["node_id"],
        status=record["status"],
        boot_id=record["boot_id"],
        facts=facts_of(told_facts(record["facts"])),
        lost_gpus=_texts(record["lost_gpus"]),
    )


def mark_row(record: Record) -> Mark:
    """A node's mark from its row."""
    return Mark(record["node_id"], record["version"], record["heard_at"], record["agent_id"], _texts(record["past_agents"]))


def _texts(text: str) -> tuple[str, ...]:
    found: Sequence[str] = from_json(text)
    return tuple(found)


def _instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
