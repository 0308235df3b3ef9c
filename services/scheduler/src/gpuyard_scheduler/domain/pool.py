"""Cards, nodes, and what is left of them.

A :class:`Node` has one :class:`Bank` for each kind of its cards; a :class:`Pool` holds the banks of one kind in one zone. These objects are
the truth of what is free; :mod:`gpuyard_scheduler.domain.board` holds the same as arrays, to search in.
"""

from gpuyard_scheduler.domain.links import Layout
from gpuyard_scheduler.domain.model import CardFacts, HoldFacts, Kind, NodeFacts


class Card:
    """One card and what is left of it. `holds` counts who has a part; only a card without any is empty."""

    __slots__ = ("bank", "facts", "free_mib", "free_milli", "holds", "is_open", "position")

    def __init__(self, facts: CardFacts, position: int, bank: "Bank", is_open: bool) -> None:
        self.facts = facts
        self.position = position
        self.bank = bank
        self.is_open = is_open
        self.free_milli = 1000
        self.free_mib = facts.memory_mib
        self.holds = 0

    @property
    def uuid(self) -> str:
        """The card's UUID."""
        return self.facts.uuid


class Bank:
    """The cards of one kind on one node. `mask`: positions of the open, empty ones. `row` and `is_changed` are the board's."""

    __slots__ = ("cards", "is_changed", "layout", "mask", "node", "pool", "row")

    def __init__(self, node: "Node", pool: "Pool", layout: Layout) -> None:
        self.node = node
        self.pool = pool
        self.layout = layout
        self.cards: list[Card] = []
        self.mask = 0
        self.row = -1
        self.is_changed = False

    def without(self, uuids: frozenset[str]) -> int:
        """The mask of open, empty cards that are none of these."""
        mask = self.mask
        for card in self.cards:
            if card.facts.uuid in uuids:
                mask &= ~(1 << card.position)
        return mask


class Node:
    """One node and what is left of it. `told`: holds that placement's state shows."""

    __slots__ = ("banks", "cards", "cpu_free", "facts", "is_open", "labels", "memory_free", "node_id", "told")

    def __init__(self, facts: NodeFacts) -> None:
        self.facts = facts
        self.node_id = facts.node_id
        self.is_open = facts.status == "ready" and not any(gpu is None for _, gpu in facts.cordons)
        self.labels = dict(facts.labels)
        self.cpu_free = facts.cpu_milli
        self.memory_free = facts.memory_mib
        self.banks: list[Bank] = []
        self.cards: dict[str, Card] = {}
        self.told: dict[tuple[str, int], HoldFacts] = {}


class Pool:
    """The banks of one kind in one zone. `number` is its own for as long as the fleet lives; `gains` grows when something becomes free.

    `idle_milli` is what is free on its open cards (of open and closed nodes).
    """

    __slots__ = ("banks", "gains", "idle_milli", "kind", "number", "open_banks", "sharing", "zone")

    def __init__(self, kind: Kind, zone: str, sharing: str, number: int) -> None:
        self.kind = kind
        self.zone = zone
        self.sharing = sharing
        self.number = number
        self.gains = 1
        self.idle_milli = 0
        self.banks: dict[str, Bank] = {}
        self.open_banks = 0

    def add(self, bank: Bank) -> None:
        """Take in a bank with its cards."""
        self.banks[bank.node.node_id] = bank
        self.open_banks += bank.node.is_open
        self.idle_milli += sum(card.free_milli for card in bank.cards if card.is_open)
        self.gains += 1

    def remove(self, bank: Bank) -> None:
        """Forget a bank."""
        del self.banks[bank.node.node_id]
        self.open_banks -= bank.node.is_open
        self.idle_milli -= sum(card.free_milli for card in bank.cards if card.is_open)
