"""Why a node cannot take one rank of a job now: one small function for each constraint, the first that fails is told with numbers.

These functions explain; :mod:`gpuyard_scheduler.domain.place` searches sorted structures by the same rules, and a property test holds the
two together. The order is from what never changes to what changes all the time: of several nodes the one that got furthest is the nearest.
"""

from collections.abc import Callable
from typing import NamedTuple

from gpuyard_scheduler.domain import words
from gpuyard_scheduler.domain.ask import portion
from gpuyard_scheduler.domain.fleet import Fleet, why_not_pool
from gpuyard_scheduler.domain.model import Ask
from gpuyard_scheduler.domain.pool import Bank, Card, Node


class Question(NamedTuple):
    """One rank of an ask against the cards of one kind on one node. `barred`: nodes kept for others."""

    ask: Ask
    node: Node
    bank: Bank
    barred: frozenset[str] = frozenset()


class Failed(NamedTuple):
    """The first constraint that failed. `step` is its place in the order; a higher one is nearer to a fit."""

    step: int
    constraint: str
    detail: str


def model(of: Question) -> str | None:
    """The card's model is one of those asked for."""
    if why_not_pool(of.ask, of.bank.pool) != "model":
        return None
    return f"has {of.bank.cards[0].facts.model}; asked for {' or '.join(of.ask.models)}"


def memory(of: Question) -> str | None:
    """The card's memory lies in the range asked for and holds the share asked for."""
    if why_not_pool(of.ask, of.bank.pool) != "memory":
        return None
    ask, has = of.ask, of.bank.pool.kind.memory_mib
    if has < ask.memory_min_mib:
        return f"a card has {words.memory(has)}; asked for at least {words.memory(ask.memory_min_mib)}"
    if ask.memory_max_mib is not None and has > ask.memory_max_mib:
        return f"a card has {words.memory(has)}; asked for at most {words.memory(ask.memory_max_mib)}"
    return f"a card has {words.memory(has)}; a share of {words.memory(portion(ask, of.bank.pool.kind)[1])} is asked for"


def sharing(of: Question) -> str | None:
    """The card is divided in the way that is asked for."""
    if why_not_pool(of.ask, of.bank.pool) != "sharing":
        return None
    asked = f"MIG {of.ask.mig_profile}" if of.ask.mig_profile else "a share" if of.ask.is_share else "a whole card"
    return f"the cards are {of.bank.pool.sharing}; asked for {asked}"


def zone(of: Question) -> str | None:
    """The node lies in the zone asked for."""
    has = of.node.facts.zone
    return None if of.ask.zone in (None, has) else f"is in zone {has}; asked for {of.ask.zone}"


def labels(of: Question) -> str | None:
    """The node carries every label asked for."""
    for key, value in of.ask.labels:
        has = of.node.labels.get(key)
        if has != value:
            return f"label {key} is {'not there' if has is None else has}; asked for {value}"
    return None


def size(of: Question) -> str | None:
    """The node is large enough, were it empty."""
    ask, node = of.ask, of.node.facts
    if len(of.bank.cards) < ask.cards:
        return f"has {len(of.bank.cards)} such cards; {ask.cards} asked for"
    if node.cpu_milli < ask.cpu_milli:
        return f"has {words.cpus(node.cpu_milli)} in all; {words.cpus(ask.cpu_milli)} asked for"
    if node.memory_mib < ask.memory_mib:
        return f"has {words.memory(node.memory_mib)} of memory in all; {words.memory(ask.memory_mib)} asked for"
    return None


def status(of: Question) -> str | None:
    """The node is heard."""
    return None if of.node.facts.status == "ready" else f"is {of.node.facts.status}"


def cordon(of: Question) -> str | None:
    """Nobody holds the node out of service."""
    holders = sorted(holder for holder, gpu in of.node.facts.cordons if gpu is None)
    return f"cordoned by {', '.join(holders)}" if holders else None


def avoid(of: Question) -> str | None:
    """The job has not just failed there."""
    return "the job failed there before" if of.node.node_id in of.ask.avoid_nodes else None


def kept(of: Question) -> str | None:
    """The node is not kept for a job that has waited long."""
    return "kept for a job that has waited longer" if of.node.node_id in of.barred else None


def gpus(of: Question) -> str | None:
    """Enough of the node's cards have the room."""
    ask, cards = of.ask, of.bank.cards
    usable = [card for card in cards if card.is_open and card.uuid not in ask.avoid_gpus]
    milli, mib = portion(ask, of.bank.pool.kind)
    free = [card for card in usable if _has_room(card, ask, milli, mib)]
    if len(free) >= ask.cards:
        return None
    shut = f", {len(cards) - len(usable)} cordoned, lost or avoided" if len(usable) < len(cards) else ""
    what = f"with {words.gpus(milli)} and {words.memory(mib)} free" if ask.is_share else "free"
    return f"{len(free)} of {len(cards)} cards {what}{shut}; {ask.cards} asked for"


def cpu(of: Question) -> str | None:
    """Enough CPU is free."""
    free = of.node.cpu_free
    return None if free >= of.ask.cpu_milli else f"{words.cpus(free)} free; {words.cpus(of.ask.cpu_milli)} asked for"


def host_memory(of: Question) -> str | None:
    """Enough of the node's memory is free."""
    free = of.node.memory_free
    return None if free >= of.ask.memory_mib else f"{words.memory(free)} of memory free; {words.memory(of.ask.memory_mib)} asked for"


CONSTRAINTS: tuple[tuple[str, Callable[[Question], str | None]], ...] = (
    ("model", model),
    ("gpu-memory", memory),
    ("sharing", sharing),
    ("zone", zone),
    ("labels", labels),
    ("size", size),
    ("status", status),
    ("cordon", cordon),
    ("avoid", avoid),
    ("kept", kept),
    ("cpu", cpu),
    ("memory", host_memory),
    ("gpus", gpus),
)


def judge(ask: Ask, node: Node, barred: frozenset[str] = frozenset()) -> Failed | None:
    """The first constraint that keeps one rank off this node, by the kind of card that comes furthest; None: it fits now."""
    nearest = Failed(-1, "gpus", "has no GPU")
    for bank in node.banks:
        failed = _first_failed(Question(ask, node, bank, barred))
        if failed is None:
            return None
        nearest = max(nearest, failed)
    return nearest


def judge_all(ask: Ask, fleet: Fleet, barred: frozenset[str] = frozenset()) -> list[tuple[str, Failed | None]]:
    """Every node that is still part of the fleet with its verdict, nodes that fit first, then the nearest, then by id."""
    judged = [(node_id, judge(ask, node, barred)) for node_id, node in fleet.nodes.items() if not node.facts.is_removed]
    return sorted(judged, key=lambda item: (0 if item[1] is None else 1, -(item[1].step if item[1] is not None else 0), item[0]))


def _first_failed(of: Question) -> Failed | None:
    for step, (name, check) in enumerate(CONSTRAINTS):
        detail = check(of)
        if detail is not None:
            return Failed(step, name, detail)
    return None


def _has_room(card: Card, ask: Ask, milli: int, mib: int) -> bool:
    return (card.free_milli >= milli and card.free_mib >= mib) if ask.is_share else not card.holds
