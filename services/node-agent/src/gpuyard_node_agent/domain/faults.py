"""Faults of cards, found by comparing what was seen with what was seen before. Read :func:`compare`.

Counters are kept with the boot they belong to, so that an agent that restarts neither reports an old error again nor misses one that
happened while it was away; a counter that went down belongs to a new life of the driver and starts afresh.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from gpuyard_node_agent.domain.samples import Sample

Kind = Literal["xid", "ecc-uncorrectable", "ecc-corrected", "gpu-lost", "gpu-back", "observer-hung", "observer-back", "booted"]

_COUNTERS: tuple[tuple[str, Kind], ...] = (("ecc_uncorrectable", "ecc-uncorrectable"), ("ecc_corrected", "ecc-corrected"))
SAME_XID_MS = 5000
"""The driver's log and its library tell of the same XID within this time (the one in seconds, the other at once)."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something happened. `key` names this very happening, so that it is said once."""

    kind: Kind
    key: str
    gpu_uuid: str | None = None
    xid: int | None = None
    count: int = 1
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Observed:
    """What was seen last, in this boot: counters by card and name, and the cards that were lost."""

    boot_id: str
    counters: Mapping[str, int] = field(default_factory=dict[str, int])
    lost: frozenset[str] = frozenset()
    is_hung: bool = False
    log_sequence: int = -1
    """The last line of the kernel's log that was read."""


def compare(before: Observed, samples: Iterable[Sample]) -> tuple[Observed, tuple[Fault, ...]]:
    """What is seen now, and the faults that this tells of."""
    counters = dict(before.counters)
    lost: set[str] = set()
    faults: list[Fault] = []
    for sample in samples:
        uuid = sample.gpu_uuid
        if sample.is_lost:
            lost.add(uuid)
            continue
        for name, kind in _COUNTERS:
            value = sample.values.get(name)
            if value is None:
                continue
            known = counters.get(f"{uuid}/{name}")
            counters[f"{uuid}/{name}"] = value
            if known is not None and value > known:
                detail = f"{name}: {known} before, {value} now"
                faults.append(Fault(kind, f"{uuid}/{value}", uuid, count=value - known, detail=detail))
    faults += _lost_and_back(before, lost, counters)
    return replace(before, counters=counters, lost=frozenset(lost)), tuple(faults)


def _lost_and_back(before: Observed, lost: set[str], counters: dict[str, int]) -> list[Fault]:
    faults: list[Fault] = []
    for uuid in sorted(lost - before.lost):
        turn = counters[f"{uuid}/turn"] = counters.get(f"{uuid}/turn", 0) + 1
        faults.append(Fault("gpu-lost", f"{uuid}/{turn}", uuid, detail="the driver does not reach the card any more"))
    for uuid in sorted(before.lost - lost):
        turn = counters.get(f"{uuid}/turn", 0)
        faults.append(Fault("gpu-back", f"{uuid}/{turn}", uuid, detail="the driver reaches the card again"))
    return faults


def hung(before: Observed, detail: str) -> tuple[Observed, tuple[Fault, ...]]:
    """The observer did not answer in time. Said once; the cards' inventory stays what it was."""
    if before.is_hung:
        return before, ()
    turn = before.counters.get("hung/turn", 0) + 1
    after = replace(before, is_hung=True, counters={**before.counters, "hung/turn": turn})
    return after, (Fault("observer-hung", f"{turn}", detail=detail),)


def answers(before: Observed) -> tuple[Observed, tuple[Fault, ...]]:
    """The observer answered."""
    if not before.is_hung:
        return before, ()
    turn = before.counters.get("hung/turn", 0)
    return replace(before, is_hung=False), (Fault("observer-back", f"{turn}", detail="the observer answers again"),)


class XidFilter:
    """Tells each XID once, though the driver's library and the kernel's log both report it."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int], tuple[str, int]] = {}

    def is_new(self, place: str, xid: int, source: str, at_ms: int) -> bool:
        """Whether this is not the other source's report of one that was told within the last seconds. `place`: the card's PCI address.

        One source's own repetition is a new event: a card may well fail twice in a second.
        """
        known = self._seen.get((place, xid))
        if known is not None and known[0] != source and abs(at_ms - known[1]) < SAME_XID_MS:
            del self._seen[place, xid]  # one report pairs with one
            return False
        self._seen[place, xid] = (source, at_ms)
        return True
