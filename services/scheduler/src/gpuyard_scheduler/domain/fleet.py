"""The fleet as the scheduler knows it: what placement told, plus the scheduler's own plans that placement has not shown yet.

A hold counts as long as either of the two knows it, so late news can only make the fleet look fuller than it is; placement checks again
anyway. A decision tries things out with :meth:`Fleet.take` and gives everything back with :meth:`Fleet.undo`.
"""

from collections.abc import Iterable
from hashlib import blake2b

from gpuyard_contracts.models import is_of_model, plain_model

from gpuyard_scheduler.domain.ask import portion
from gpuyard_scheduler.domain.board import Board
from gpuyard_scheduler.domain.links import Layout
from gpuyard_scheduler.domain.model import Ask, CardFacts, HoldFacts, Kind, NodeFacts, RankPlan, Slice
from gpuyard_scheduler.domain.pool import Bank, Card, Node, Pool

HoldKey = tuple[str, int]
"""Allocation and rank."""
Kinds = tuple[tuple[Kind, tuple[Pool, ...]], ...]
"""Kinds of card, each with its pools."""


class Planned:
    """An own plan's hold. `until_ms`: when its limit ends it at the latest; None where it has no limit."""

    __slots__ = ("plan", "until_ms")

    def __init__(self, plan: RankPlan, until_ms: int | None) -> None:
        self.plan = plan
        self.until_ms = until_ms


class Fleet:
    """All nodes. `gains` grows when anything becomes free, `shape` when anything but holds changes."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.pools: dict[tuple[Kind, str, str], Pool] = {}
        self.planned: dict[str, dict[HoldKey, Planned]] = {}
        self.gains = 0
        self.shape = 0
        self.total_milli = 0
        self.total_mib = 0
        self.known = 0
        """A digest of all node versions and own plans, kept up with each change: equal fleets have equal ones, whatever came first."""
        self.board = Board()
        self._trial: list[tuple[Node, RankPlan, bool]] = []
        self._pools_made = 0
        self._kinds: dict[Ask, Kinds] = {}
        self._layouts: dict[tuple[tuple[frozenset[int], ...], tuple[int | None, ...]], Layout] = {}
        self.ever: dict[tuple[Ask, bool, frozenset[Kind]], bool] = {}
        """What :mod:`gpuyard_scheduler.domain.capacity` has worked out for the present shape."""

    @classmethod
    def of(cls, nodes: Iterable[NodeFacts]) -> "Fleet":
        """A fleet of these nodes."""
        made = cls()
        for facts in nodes:
            made.put(facts)
        return made

    @property
    def is_empty(self) -> bool:
        """Whether no card is known at all."""
        return not self.pools or self.total_milli == 0

    def put(self, facts: NodeFacts) -> bool:
        """Take in a node's state; an older version than the known one is ignored. True: the fleet now has other hardware than before."""
        known = self.nodes.get(facts.node_id)
        if known is not None:
            if facts.version < known.facts.version:
                return False
            self.known ^= _digest(facts.node_id, known.facts.version)
        self.known ^= _digest(facts.node_id, facts.version)
        if known is not None and facts._replace(version=0, holds=()) == known.facts._replace(version=0, holds=()):
            self._put_holds(known, facts)
            return False
        self.shape += 1
        self.gains += 1
        self.ever.clear()
        is_other = known is None or known.facts.cards != facts.cards or known.facts.is_removed != facts.is_removed
        if known is not None:
            self._remove(known)
        self._add(facts)
        return is_other

    def hold(self, allocation_id: str, plan: RankPlan, until_ms: int | None) -> None:
        """Count an own plan's rank as held until it is let go."""
        key = (allocation_id, plan.rank)
        on_node = self.planned.setdefault(plan.node_id, {})
        before = on_node.get(key)
        is_new = before is None
        if before is not None:
            self.known ^= _digest(allocation_id, plan.rank, before.until_ms)
        self.known ^= _digest(allocation_id, plan.rank, until_ms)
        on_node[key] = Planned(plan, until_ms)
        node = self.nodes.get(plan.node_id)
        if is_new and node is not None and key not in node.told:
            self._occupy(node, plan.slices, plan.cpu_milli, plan.memory_mib)

    def let_go(self, allocation_id: str, plan: RankPlan) -> None:
        """The plan's rank is over; what placement's state shows stays held until it shows otherwise."""
        key = (allocation_id, plan.rank)
        gone = self.planned.get(plan.node_id, {}).pop(key, None)
        if gone is None:
            return
        self.known ^= _digest(allocation_id, plan.rank, gone.until_ms)
        node = self.nodes.get(plan.node_id)
        if node is not None and key not in node.told:
            self._free(node, plan.slices, plan.cpu_milli, plan.memory_mib)

    def held_on(self, node: Node) -> list[tuple[HoldFacts, int | None]]:
        """What is held on a node, each with the instant (ms) by which its limit ends it; None where none is known.

        What is only tried is not among it; see :meth:`tried`.
        """
        planned = self.planned.get(node.node_id, {})
        own = [(HoldFacts(*key, *_size(found.plan)), found.until_ms) for key, found in planned.items() if key not in node.told]
        return own + [(hold, planned[key].until_ms if key in planned else None) for key, hold in node.told.items()]

    def mark(self) -> int:
        """Where the trial stands; for :meth:`undo`."""
        return len(self._trial)

    def take(self, plan: RankPlan) -> None:
        """Try a rank: it counts as held until undone."""
        node = self.nodes[plan.node_id]
        self._occupy(node, plan.slices, plan.cpu_milli, plan.memory_mib)
        self._trial.append((node, plan, True))

    def lift(self, plan: RankPlan) -> None:
        """Try what would be if a held rank were gone: its room counts as free until undone."""
        node = self.nodes.get(plan.node_id)
        if node is not None:
            self._give(node, plan.slices, plan.cpu_milli, plan.memory_mib)
            self._trial.append((node, plan, False))

    def tried(self) -> dict[str, list[HoldFacts]]:
        """What is tried now, by node."""
        found: dict[str, list[HoldFacts]] = {}
        for number, (node, plan, is_taken) in enumerate(self._trial):
            if not is_taken:
                continue
            found.setdefault(node.node_id, []).append(HoldFacts(f"trial {number}", plan.rank, *_size(plan)))
        return found

    def undo(self, mark: int) -> None:
        """Give back what was tried since the mark; the fleet is as it was, and nothing counts as gained."""
        trial = self._trial
        while len(trial) > mark:
            node, plan, is_taken = trial.pop()
            change = self._give if is_taken else self._occupy
            change(node, plan.slices, plan.cpu_milli, plan.memory_mib)

    def kinds(self, ask: Ask) -> Kinds:
        """The kinds of card that can serve the ask, the smallest memory first, each with its pools in the ask's zone."""
        found = self._kinds.get(ask)
        if found is None:
            by_kind: dict[Kind, list[Pool]] = {}
            for key in sorted(self.pools):
                pool = self.pools[key]
                if why_not_pool(ask, pool) is None:
                    by_kind.setdefault(pool.kind, []).append(pool)
            order = sorted(by_kind, key=lambda kind: (kind.memory_mib, kind.model))
            if len(self._kinds) > 100_000:
                self._kinds.clear()
            found = self._kinds[ask] = tuple((kind, tuple(by_kind[kind])) for kind in order)
        return found

    def gains_of(self, ask: Ask) -> int:
        """A number that grows whenever something that could serve the ask becomes free."""
        return sum(pool.gains for _, pools in self.kinds(ask) for pool in pools)

    def _add(self, facts: NodeFacts) -> None:
        """Build the node; a removed one is remembered without cards, so that its version still guards."""
        node = Node(facts)
        self.nodes[facts.node_id] = node
        if facts.is_removed:
            return
        node.is_open = node.is_open and facts.status == "ready"
        by_kind: dict[tuple[Kind, str], list[CardFacts]] = {}
        for card in facts.cards:
            by_kind.setdefault((Kind(plain_model(card.model), card.memory_mib), card.sharing), []).append(card)
        for (kind, sharing), cards in by_kind.items():
            self._add_bank(node, kind, sharing, cards)
        node.told = {(hold.allocation_id, hold.rank): hold for hold in facts.holds}
        for hold in _held(node.told, self.planned.get(facts.node_id, {})):
            _occupy_cards(node, hold[0])
            node.cpu_free -= hold[1]
            node.memory_free -= hold[2]
        for bank in node.banks:
            bank.pool.add(bank)
            self.board.add(bank)

    def _add_bank(self, node: Node, kind: Kind, sharing: str, cards: list[CardFacts]) -> None:
        key = (kind, node.facts.zone, sharing)
        pool = self.pools.get(key)
        if pool is None:
            self._pools_made += 1
            pool = self.pools[key] = Pool(kind, node.facts.zone, sharing, self._pools_made)
            self._kinds.clear()
        bank = Bank(node, pool, self._layout(cards))
        shut = {gpu for _, gpu in node.facts.cordons if gpu is not None} | node.facts.lost_gpus
        for position, facts in enumerate(cards):
            card = Card(facts, position, bank, facts.uuid not in shut)
            bank.cards.append(card)
            node.cards[facts.uuid] = card
            bank.mask |= card.is_open << position
        node.banks.append(bank)
        self.total_milli += 1000 * len(cards)
        self.total_mib += kind.memory_mib * len(cards)

    def _layout(self, cards: list[CardFacts]) -> Layout:
        places = {card.uuid: position for position, card in enumerate(cards)}
        links = tuple(frozenset(places[peer] for peer in card.links if peer in places and peer != card.uuid) for card in cards)
        key = (links, tuple(card.numa for card in cards))
        found = self._layouts.get(key)
        if found is None:
            found = self._layouts[key] = Layout(*key)
        return found

    def _remove(self, node: Node) -> None:
        for bank in node.banks:
            bank.pool.remove(bank)
            self.board.remove(bank)
            self.total_milli -= 1000 * len(bank.cards)
            self.total_mib -= bank.pool.kind.memory_mib * len(bank.cards)
            if not bank.pool.banks:
                pool = bank.pool
                del self.pools[pool.kind, pool.zone, pool.sharing]
                self._kinds.clear()
        del self.nodes[node.node_id]

    def _put_holds(self, node: Node, facts: NodeFacts) -> None:
        """Only what is held has changed: apply the difference."""
        planned = self.planned.get(node.node_id, {})
        told = {(hold.allocation_id, hold.rank): hold for hold in facts.holds}
        for key in node.told.keys() | told.keys():
            before, after = node.told.get(key), told.get(key)
            if before == after:
                continue
            own = planned.get(key)
            was = (before.slices, before.cpu_milli, before.memory_mib) if before is not None else own and _size(own.plan)
            now = (after.slices, after.cpu_milli, after.memory_mib) if after is not None else own and _size(own.plan)
            if was == now:
                continue
            if was is not None:
                self._free(node, *was)
            if now is not None:
                self._occupy(node, *now)
        node.told = told
        node.facts = facts

    def _occupy(self, node: Node, slices: tuple[Slice, ...], cpu_milli: int, memory_mib: int) -> None:
        _occupy_cards(node, slices)
        node.cpu_free -= cpu_milli
        node.memory_free -= memory_mib
        for part in slices:
            card = node.cards.get(part.gpu_uuid)
            if card is not None and card.is_open:
                card.bank.pool.idle_milli -= part.milli
        for bank in node.banks:
            self.board.touch(bank)

    def _give(self, node: Node, slices: tuple[Slice, ...], cpu_milli: int, memory_mib: int) -> None:
        for part in slices:
            card = node.cards.get(part.gpu_uuid)
            if card is not None:
                card.free_milli += part.milli
                card.free_mib += part.memory_mib
                card.holds -= 1
                if not card.holds and card.is_open:
                    card.bank.mask |= 1 << card.position
                if card.is_open:
                    card.bank.pool.idle_milli += part.milli
        node.cpu_free += cpu_milli
        node.memory_free += memory_mib
        for bank in node.banks:
            self.board.touch(bank)

    def _free(self, node: Node, slices: tuple[Slice, ...], cpu_milli: int, memory_mib: int) -> None:
        self._give(node, slices, cpu_milli, memory_mib)
        self.gains += 1
        for bank in node.banks:
            bank.pool.gains += 1


def _digest(*parts: str | int | None) -> int:
    return int.from_bytes(blake2b("/".join(map(str, parts)).encode(), digest_size=16).digest())


def why_not_pool(ask: Ask, pool: Pool) -> str | None:
    """What keeps the ask out of all of a pool: ``model``, ``memory``, ``sharing`` or ``zone``; None: nothing."""
    kind = pool.kind
    if ask.models and not any(is_of_model(kind.model, model) for model in ask.models):
        return "model"
    above = ask.memory_max_mib is not None and kind.memory_mib > ask.memory_max_mib
    if kind.memory_mib < ask.memory_min_mib or above or portion(ask, kind)[1] > kind.memory_mib:
        return "memory"
    if ask.mig_profile is not None or pool.sharing == "mig" or (ask.is_share and pool.sharing == "exclusive"):
        return "sharing"
    if ask.zone is not None and ask.zone != pool.zone:
        return "zone"
    return None


def _size(plan: RankPlan) -> tuple[tuple[Slice, ...], int, int]:
    return plan.slices, plan.cpu_milli, plan.memory_mib


def _held(told: dict[HoldKey, HoldFacts], planned: dict[HoldKey, Planned]) -> list[tuple[tuple[Slice, ...], int, int]]:
    own = [_size(found.plan) for key, found in planned.items() if key not in told]
    return own + [(hold.slices, hold.cpu_milli, hold.memory_mib) for hold in told.values()]


def _occupy_cards(node: Node, slices: tuple[Slice, ...]) -> None:
    for part in slices:
        card = node.cards.get(part.gpu_uuid)
        if card is not None:  # a hold can outlive its card
            card.free_milli -= part.milli
            card.free_mib -= part.memory_mib
            card.holds += 1
            card.bank.mask &= ~(1 << card.position)
