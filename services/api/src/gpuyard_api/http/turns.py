"""One at a time for each key: repeats of a request that come at once are looked at one after the other."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class Turns:
    """Locks by key, kept only while somebody holds or awaits them."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, list[None]]] = {}

    @asynccontextmanager
    async def of(self, key: str) -> AsyncGenerator[None]:
        """Wait for this key's turn."""
        lock, users = self._locks.setdefault(key, (asyncio.Lock(), []))
        users.append(None)
        try:
            async with lock:
                yield
        finally:
            users.pop()
            if not users:
                self._locks.pop(key, None)

    def __len__(self) -> int:
        return len(self._locks)
