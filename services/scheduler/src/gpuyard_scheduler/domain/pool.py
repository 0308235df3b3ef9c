"""Free capacity, sorted so that the best place is found without walking the fleet.

A :class:`Node` has one :class:`Bank` for each kind of its cards; a :class:`Pool` holds the banks of one kind in one zone. Banks with empty
cards are filed by (empty cards, largest linked set), within that by free CPU and memory; partly used cards are filed by what they have
left. Whoever changes a node files it again (:meth:`Node.file`); ties are broken by the node's id, never by the order of arrival.
"""

from bisect import bisect_left, insort

from gpuyard_scheduler.domain.links import Layout
from gpuyard_scheduler.domain.model import CardFacts, HoldFacts, Kind, NodeFacts

Rung = tuple[int, int]
BankEntry = tuple[int, int, str, "Bank"]
"""Free milli-CPU, free MiB of memory, node, bank."""
CardEntry = tuple[int, int, str, int, "Card"]
"""Free milli-GPU, free MiB, node, position, card."""


class Card:
    """One card and what is left of it. `holds` counts who has a part; only a card without any is empty."""

    __slots__ = ("bank", "entry", "facts", "free_mib", "free_milli", "holds", "is_open", "position")

    def __init__(self, facts: CardFacts, position: int, bank: "Bank", is_open: bool) -> None:
        self.facts = facts
        self.position = position
        self.bank = bank
        self.is_open = is_open
        self.free_milli = 1000
        self.free_mib = facts.memory_mib
        self.holds = 0
        self.entry: CardEntry | None = None

    @property
    def uuid(self) -> str:
        """The card's UUID."""
        return self.facts.uuid


class Bank:
    """The cards of one kind on one node. `mask`: positions of the open, empty ones."""

    __slots__ = ("cards", "entry", "layout", "mask", "node", "pool", "rung")

    def __init__(self, node: "Node", pool: "Pool", layout: Layout) -> None:
        self.node = node
        self.pool = pool
        self.layout = layout
        self.cards: list[Card] = []
        self.mask = 0
        self.rung: Rung | None = None
        self.entry: BankEntry | None = None

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

    def file(self) -> None:
        """Bring every bank to its place after CPU, memory or cards have changed."""
        for bank in self.banks:
            bank.pool.file(bank)


class Pool:
    """The banks of one kind in one zone. `gains` grows whenever something in it becomes free."""

    __slots__ = ("_orders", "banks", "gains", "kind", "open_banks", "partials", "rungs", "sharing", "zone")

    def __init__(self, kind: Kind, zone: str, sharing: str) -> None:
        self.kind = kind
        self.zone = zone
        self.sharing = sharing
        self.gains = 1
        self.banks: dict[str, Bank] = {}
        self.open_banks = 0
        self.rungs: dict[Rung, list[BankEntry]] = {}
        self.partials: list[CardEntry] = []
        self._orders: dict[int, list[tuple[tuple[bool, int, int], list[BankEntry]]]] = {}

    def add(self, bank: Bank) -> None:
        """Take in a bank with its cards."""
        self.banks[bank.node.node_id] = bank
        self.open_banks += bank.node.is_open
        self.gains += 1
        for card in bank.cards:
            self.file_card(card)
        self.file(bank)

    def remove(self, bank: Bank) -> None:
        """Forget a bank."""
        del self.banks[bank.node.node_id]
        self.open_banks -= bank.node.is_open
        self._unfile(bank)
        for card in bank.cards:
            self._unfile_card(card)

    def file(self, bank: Bank) -> None:
        """Put the bank on the rung of its empty cards; one without any, or on a closed node, is on none."""
        node = bank.node
        mask = bank.mask
        if not mask or not node.is_open:
            self._unfile(bank)
            return
        rung = (mask.bit_count(), bank.layout.joined(mask))
        entry = (node.cpu_free, node.memory_free, node.node_id, bank)
        if rung == bank.rung and entry == bank.entry:
            return
        self._unfile(bank)
        line = self.rungs.get(rung)
        if line is None:
            line = self.rungs[rung] = []
            self._orders.clear()
        insort(line, entry)
        bank.rung, bank.entry = rung, entry

    def file_card(self, card: Card) -> None:
        """Put a partly used card to its place; an empty, full or closed one has none."""
        self._unfile_card(card)
        if card.holds and card.is_open and card.free_milli > 0 and card.free_mib > 0 and card.bank.node.is_open:
            card.entry = (card.free_milli, card.free_mib, card.bank.node.node_id, card.position, card)
            insort(self.partials, card.entry)

    def order(self, cards: int) -> list[tuple[tuple[bool, int, int], list[BankEntry]]]:
        """The rungs that have so many empty cards, the best first: linked before apart, then the fewest empty."""
        found = self._orders.get(cards)
        if found is None:
            keyed = [((joined < cards, whole, joined), line) for (whole, joined), line in self.rungs.items() if whole >= cards]
            found = self._orders[cards] = sorted(keyed, key=lambda item: item[0])
        return found

    def _unfile(self, bank: Bank) -> None:
        if bank.rung is not None and bank.entry is not None:
            line = self.rungs[bank.rung]
            del line[bisect_left(line, bank.entry)]
            bank.rung = bank.entry = None

    def _unfile_card(self, card: Card) -> None:
        if card.entry is not None:
            del self.partials[bisect_left(self.partials, card.entry)]
            card.entry = None
