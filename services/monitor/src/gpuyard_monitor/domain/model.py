"""The nouns of monitor."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

Kind = Literal["gpu-hot", "ecc-uncorrectable", "xid-fatal", "gpu-lost", "node-silent", "observer-hung", "telemetry-stale"]
Action = Literal["none", "cordon", "evict"]
Status = Literal["ready", "unknown", "lost"]


@dataclass(frozen=True, slots=True)
class Card:
    """One card as its node describes it; `index` is for display, the uuid is the identity."""

    uuid: str
    model: str
    index: int | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """What monitor keeps of a node: its cards, its boot, and whether placement hears it. Instants of boot are by the node's clock."""

    node_id: str
    cards: tuple[Card, ...] = ()
    boot_id: str = ""
    booted_at: datetime | None = None
    status: Status = "ready"
    status_at: datetime | None = None

    def card(self, uuid: str) -> Card | None:
        """The card of this uuid, if the node has it."""
        return next((card for card in self.cards if card.uuid == uuid), None)


@dataclass(frozen=True, slots=True)
class Incident:
    """One fault of one card (or, without `gpu_uuid`, of a node), open until `closed_at`."""

    incident_id: str
    kind: Kind
    node_id: str
    gpu_uuid: str | None
    action: Action
    evidence: str
    boot_id: str
    opened_at: datetime
    closed_at: datetime | None = None
    closing_evidence: str = ""


class Streak(NamedTuple):
    """How many samples of one card in a row said the same: too hot, cool again, lost, present."""

    hot: int = 0
    cool: int = 0
    lost: int = 0
    present: int = 0


@dataclass(frozen=True, slots=True)
class Opening:
    """A decision: this fault is there."""

    kind: Kind
    gpu_uuid: str | None
    action: Action
    evidence: str


@dataclass(frozen=True, slots=True)
class Closing:
    """A decision: this incident is over."""

    incident: Incident
    evidence: str


Decision = Opening | Closing
