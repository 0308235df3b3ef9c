"""User ids of the workloads: one for each that lives, out of a range that belongs to this node alone."""

from collections.abc import Set
from dataclasses import dataclass

LOWEST = 1000
"""Below are the system's own users."""
HIGHEST = 2**32 - 3
"""Above are the numbers that mean nobody and none."""


@dataclass(frozen=True, slots=True)
class Uids:
    """The range, both ends in it."""

    first: int
    last: int


def uids_of(told: str) -> Uids:
    """``200000-265535`` → the range. Raises ValueError for what is none."""
    first, dash, last = (part.strip() for part in told.partition("-"))
    if not dash or not (first.isascii() and first.isdigit() and last.isascii() and last.isdigit()):
        raise ValueError(f"{told!r} is no range of user ids, such as 200000-265535")
    found = Uids(int(first), int(last))
    if not LOWEST <= found.first <= found.last <= HIGHEST:
        raise ValueError(f"user ids of workloads are between {LOWEST} and {HIGHEST}, the lower one first: {told!r}")
    return found


def next_uid(uids: Uids, used: Set[int], after: int) -> int | None:
    """The next one that nobody has, counted on from `after` (the one given last) and around: so that a number is given again as late as can
    be, when what its owner before left behind is gone. None where all are taken.
    """
    size = uids.last - uids.first + 1
    start = after + 1 - uids.first if uids.first <= after < uids.last else 0
    return next((uid for step in range(min(size, len(used) + 1)) if (uid := uids.first + (start + step) % size) not in used), None)
