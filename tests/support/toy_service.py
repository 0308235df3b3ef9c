"""A small service over real messages, for tests of the runtime on a real bus and a real database.

It hears incidents open, counts them by node, and says that they closed.
"""

from dataclasses import dataclass, replace
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from gpuyard_contracts.envelope import Envelope
from gpuyard_contracts.messages.monitor import IncidentClosedV1, IncidentOpenedV1
from gpuyard_contracts.topology import Durable
from gpuyard_runtime.faults import RetryLater
from gpuyard_runtime.service import Service, Tick, Tx
from gpuyard_runtime.store import Store
from gpuyard_runtime.table import Column

MIGRATION = """
create table nodes (id text primary key, incidents bigint not null check (incidents < 1000));
create table history (incident text primary key, node text not null);
"""


@dataclass(frozen=True, slots=True)
class Node:
    """How many incidents a node had."""

    id: str
    incidents: int


@dataclass(frozen=True, slots=True)
class Line:
    """One incident in the history."""

    incident: str
    node: str


class ToyStore(Store):
    """Nodes, and the history of incidents."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes = self.table(
            "nodes", lambda row: row.id, (Column("id", "text", is_key=True), Column("incidents", "int8")), lambda record: Node(**record)
        )
        self.history = self.journal("history", (Column("incident", "text"), Column("node", "text")), key=lambda row: row.incident)
        self.is_closed = False


def on_incident_opened(event: Envelope[IncidentOpenedV1], tx: Tx[ToyStore]) -> None:
    """Count it and close it. The node's name decides what goes wrong."""
    seen = event.data
    old = tx.store.nodes.get(seen.node_id) or Node(seen.node_id, 0)
    tx.store.nodes.put(replace(old, incidents=old.incidents + (1000 if seen.node_id == "refused-by-database" else 1)))
    tx.store.history.add(Line(seen.incident_id, seen.node_id))
    tx.say(closed(seen))
    if seen.node_id == "poison":
        tx.reject("cursed", "this node is cursed")
    if seen.node_id == "bug":
        raise ZeroDivisionError("a bug")
    if seen.node_id == "later" and not tx.store.is_closed:
        raise RetryLater("not now")


def closed(seen: IncidentOpenedV1) -> IncidentClosedV1:
    """The message that says that an incident is over."""
    return IncidentClosedV1(
        incident_id=seen.incident_id,
        kind=seen.kind,
        node_id=seen.node_id,
        evidence="over",
        opened_at=seen.opened_at,
        closed_at=seen.opened_at,
    )


def toy_durable(filters: tuple[str, ...] = ("gpuyard.evt.monitor.incident.opened.v1.>",), ack_wait_seconds: float = 30.0) -> Durable:
    """The durable that feeds the toy."""
    return Durable("toy", "EVT_MONITOR", "toy-evt-monitor", filters, ack_wait_seconds)


def toy_migrations(folder: Path) -> Traversable | Path:
    """The toy's migrations, written into a folder of the test's."""
    made = folder / "toy_migrations"
    made.mkdir(exist_ok=True)
    (made / "0001_nodes.sql").write_text(MIGRATION)
    return made


def toy_service(folder: Path, **changes: Any) -> Service[ToyStore]:
    """The toy, with changes."""
    given: dict[str, Any] = {
        "name": "toy",
        "store": ToyStore,
        "migrations": toy_migrations(folder),
        "schema": "toy",
        "handlers": {IncidentOpenedV1: on_incident_opened},
        "durables": (toy_durable(),),
        "ticks": (Tick("never", 3600.0, lambda tx: None),),
    }
    return Service(**(given | changes))
