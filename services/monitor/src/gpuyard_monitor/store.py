"""Monitor's tables, and beside them what is only in memory: the last sample of every card.

What is in memory only is not undone with a unit. It need not be: samples are levels, the next one brings every decision again.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from gpuyard_contracts.messages.node import GpuSampleV1
from gpuyard_runtime.store import Store
from gpuyard_runtime.table import Column, Record

from gpuyard_monitor.domain.model import Card, Incident, Kind, Node, Streak
from gpuyard_monitor.domain.rules import Heat


@dataclass(slots=True)
class NodeWatch:
    """What one node told last. `heard_at` is by our clock, `at` by the node's. `streaks` only for cards with something to count."""

    heard_at: datetime
    at: datetime
    sequence: int = -1
    boot_id: str = ""
    bad_samples: int = 0
    is_stale: bool = False
    samples: dict[str, GpuSampleV1] = field(default_factory=dict[str, GpuSampleV1])
    streaks: dict[str, Streak] = field(default_factory=dict[str, Streak])
    missing: int = 0
    """In how many messages in a row a card with an open incident was not mentioned."""
    cards: tuple[Card, ...] = ()
    heats: dict[str, Heat] = field(default_factory=dict[str, Heat])
    """The thresholds of each of `cards`, looked up once."""


def _cards_json(row: Node) -> str:
    return json.dumps([[card.uuid, card.model, card.index] for card in row.cards])


_NODE: tuple[Column[Node], ...] = (
    Column("node_id", "text", is_key=True),
    Column("cards", "jsonb", _cards_json),
    Column("boot_id", "text"),
    Column("booted_at", "timestamptz"),
    Column("status", "text"),
    Column("status_at", "timestamptz"),
)
_INCIDENT: tuple[Column[Incident], ...] = (
    Column("incident_id", "text", is_key=True),
    Column("kind", "text"),
    Column("node_id", "text"),
    Column("gpu_uuid", "text"),
    Column("action", "text"),
    Column("evidence", "text"),
    Column("boot_id", "text"),
    Column("opened_at", "timestamptz"),
    Column("closed_at", "timestamptz"),
    Column("closing_evidence", "text"),
)
INCIDENTS = f"""
select {", ".join(column.name for column in _INCIDENT)} from incidents
where ($1::text is null or node_id = $1) and (closed_at is null or not $2) order by opened_at desc, incident_id limit $3"""  # noqa: S608


def _node_of(record: Record) -> Node:
    fields: dict[str, Any] = dict(record)
    fields["cards"] = tuple(Card(uuid, model, index) for uuid, model, index in json.loads(record["cards"]))
    return Node(**fields)


def incident_of(record: Record) -> Incident:
    """An incident from its database row."""
    return Incident(**record)


class MonitorStore(Store):
    """Nodes and open incidents; closed ones stay in the database. `watches`, `xids` and `ignored` are in memory only."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes = self.table("nodes", lambda row: row.node_id, _NODE, _node_of)
        self.incidents = self.table(
            "incidents",
            lambda row: row.incident_id,
            _INCIDENT,
            incident_of,
            keep=lambda row: row.closed_at is None,
            where="closed_at is null",
            order=lambda row: row.closed_at is None,  # what closes leaves the unique index before the same fault opens again
        )
        self._by_node = self.incidents.index(lambda row: row.node_id if row.closed_at is None else None)
        self.watches: dict[str, NodeWatch] = {}
        self.listening_since = datetime.min.replace(tzinfo=UTC)
        self.xids: Counter[tuple[str, str, int]] = Counter()
        self.ignored: Counter[str] = Counter()

    def open_of(self, node_id: str) -> Sequence[Incident]:
        """A node's open incidents, those of its cards too."""
        return self._by_node.get(node_id)

    def open_fault(self, node_id: str, gpu_uuid: str | None, kind: Kind) -> Incident | None:
        """The open incident of one fault."""
        for incident in self._by_node.get(node_id):
            if incident.kind == kind and incident.gpu_uuid == gpu_uuid:
                return incident
        return None

    def node(self, node_id: str) -> Node:
        """What is known of a node; an empty row for one that was never heard of."""
        return self.nodes.get(node_id) or Node(node_id)
