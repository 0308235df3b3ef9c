"""What billing needs from outside and can be given in more than one way."""

from collections.abc import AsyncIterator
from typing import Any, Protocol

from gpuyard_contracts.envelope import Envelope


class EventSource(Protocol):
    """Placement's allocation events, read again."""

    def allocation_events(self) -> AsyncIterator[list[Envelope[Any]]]:
        """Everything from the oldest event kept to the one that is the last when asked, in order and in batches."""
        ...
