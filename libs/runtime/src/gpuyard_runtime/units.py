"""The port between the dispatcher and the database: one unit of work is one transaction.

Two adapters keep it: PostgreSQL (:mod:`gpuyard_runtime.postgres`) and memory (:mod:`gpuyard_runtime.testing.memory_units`); both
pass the conformance suite.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from gpuyard_contracts.envelope import Envelope

from gpuyard_runtime.frames import Outgoing
from gpuyard_runtime.store import Store

S = TypeVar("S", bound=Store, covariant=True)


@dataclass(frozen=True, slots=True)
class Committed:
    """One committed unit: its outbox row (0: it said nothing) and what is to be published, encoded already where the row needed that."""

    outbox_id: int
    said: Sequence[Envelope[Any]]
    encoded: Sequence[Outgoing] | None = None


Work = Callable[[Collection[str]], Sequence[Envelope[Any]]]
"""Given the inbox keys that are new, change the store and return what is said. It may be called again after what it did was undone."""


class Units(Protocol[S]):
    """Runs units of work, one after the other."""

    @property
    def store(self) -> S:
        """The store as the last committed unit left it."""
        ...

    async def run(self, keys: Sequence[str], work: Work) -> Committed:
        """One unit: claim the keys, call `work` with the new ones, write the changes and the outbox row, commit, settle the store.

        Whatever `work` or the database raises undoes all of it, in the store too. Raises Unavailable where the database cannot be reached
        (try again), Fenced where another process leads. Without keys the database is only asked if something was changed or said.
        """
        ...

    def idle(self, work: Work) -> bool:
        """One unit while the database is away. False, with all of it undone, where it changes or says something, or fails."""
        ...


class Outlet(Protocol):
    """Takes committed units to the bus, in order."""

    def take(self, unit: Committed) -> None:
        """Publish what the unit said; returns at once."""
        ...

    async def room(self) -> None:
        """Wait until not too many units wait to be published."""
        ...


def is_idle(store: Store, work: Work) -> bool:
    """Call `work` on the store, and undo it: whether it changed nothing and said nothing. What it raises counts as a no."""
    try:
        return not work(()) and not store.is_changed
    except Exception:  # the unit fails as it would with the database: whoever waits is told that it cannot be done now
        return False
    finally:
        store.undo()
