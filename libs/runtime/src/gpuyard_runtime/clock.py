"""What time it is, as a port: services get instants, never ask for them."""

from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Gives the present instant."""

    def now(self) -> datetime:
        """The present instant, aware, in UTC."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """The present instant by the machine's clock."""
        return datetime.now(UTC)


class ManualClock:
    """A clock that stands still until it is moved; for tests and the simulation."""

    def __init__(self, at: datetime = datetime(2030, 1, 1, tzinfo=UTC)) -> None:
        self._now = at

    def now(self) -> datetime:
        """The instant that the clock was last moved to."""
        return self._now

    def advance(self, seconds: float) -> datetime:
        """Move the clock on (never back) and return the new instant."""
        if seconds < 0:
            raise ValueError("this clock does not go back")
        self._now += timedelta(seconds=seconds)
        return self._now
