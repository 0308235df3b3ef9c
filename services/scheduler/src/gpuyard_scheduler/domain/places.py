"""One rank of an ask on many places at once, as arrays: what fits, and what would be left."""

from functools import cached_property

import numpy as np
import numpy.typing as npt

from gpuyard_scheduler.domain.model import Ask

Ints = npt.NDArray[np.int64]
FULL = 1000


class Places:
    """Rows of the board with one ask before them. Arrays have one entry a row, `milli` and `mib` one for each card (-1: closed).

    `takes_milli` and `takes_mib` are what the ask takes of one card there; `room` is how many ranks find room; where none
    does, terms may say anything.
    """

    def __init__(
        self, ask: Ask, takes_milli: Ints, takes_mib: Ints, milli: Ints, mib: Ints, empty: Ints, joined: Ints, cpu: Ints, memory: Ints
    ) -> None:
        self.ask = ask
        self.takes_milli = takes_milli
        self.takes_mib = takes_mib
        self.milli = milli
        self.mib = mib
        self.empty = empty
        self.joined = joined
        self.cpu = cpu
        self.memory = memory
        self.room = np.minimum(cpu // ask.cpu_milli, memory // ask.memory_mib)
        if ask.cards:
            self.room = np.minimum(self.room, (self.fits.sum(1) if ask.is_share else empty) // ask.cards)

    @cached_property
    def fits(self) -> npt.NDArray[np.bool_]:
        """By card: whether a share of this size finds room on it."""
        return (self.milli >= self.takes_milli[:, None]) & (self.mib >= self.takes_mib[:, None])

    @cached_property
    def free(self) -> Ints:
        """By card: milli-GPU that are free, 0 for a closed one."""
        return np.maximum(self.milli, 0)

    @cached_property
    def idle(self) -> Ints:
        """Milli-GPU that are free on open cards."""
        return self.free.sum(1)

    @property
    def taken(self) -> Ints:
        """Milli-GPU that the rank would take."""
        return self.takes_milli * self.ask.cards

    @property
    def opened(self) -> Ints:
        """Empty cards that the rank would begin: all of its own if it takes whole ones, else those for which no begun card has room."""
        if not self.ask.is_share:
            return np.full(len(self.room), self.ask.cards, np.int64)
        begun = (self.fits & (self.milli < FULL)).sum(1)
        return np.maximum(self.ask.cards - begun, 0)
