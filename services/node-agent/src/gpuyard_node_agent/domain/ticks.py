"""Thinning what waits for a bus that is away. Statements of use are cumulative, so older ones may go: the last of each allocation stays."""

from collections.abc import Hashable, Sequence
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def thin(waiting: Sequence[tuple[T, frozenset[str]]], limit: int) -> list[T]:
    """Which of the waiting ticks (oldest first, each with the allocations it states) to let go, so that at most `limit` are left.

    A tick that holds the last statement of an allocation is never let go; there may be more than `limit` of those.
    """
    excess = len(waiting) - limit
    if excess <= 0:
        return []
    later: set[str] = set()
    spare: list[T] = []
    for tick, stated in reversed(waiting):
        if stated <= later:
            spare.append(tick)
        later |= stated
    return spare[::-1][::2][:excess] if excess <= len(spare) // 2 else spare[::-1][:excess]
