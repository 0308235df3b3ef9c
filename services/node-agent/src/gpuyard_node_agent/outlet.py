"""The way out: events in lanes. Within a lane one is published after the other, each again and again until the stream has it.

A workload has a lane of its own, so its events keep their order and wait for nobody else's. What waits here lies in the journal too
(:mod:`gpuyard_node_agent.store`), under the same ids: after a restart it is published, perhaps again.
"""

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from gpuyard_contracts.envelope import Envelope
from gpuyard_runtime.faults import Unavailable
from gpuyard_runtime.logs import log_of

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 5.0

Publish = Callable[[Envelope[Any]], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class _Item:
    event: Envelope[Any]
    before: Callable[[], Awaitable[None]] | None


class Outlet:
    """Publishes. `problem` is why nothing goes out now, or None; `said` hears of each event that a stream has.

    `before` is called before an event goes out: by then it must be written down.
    """

    def __init__(self, publish: Publish, said: Callable[[Envelope[Any]], None], before: Callable[[], None] = lambda: None) -> None:
        self.problem: str | None = None
        self.published = 0
        self._publish = publish
        self._before = before
        self._said = said
        self._lanes: dict[str, deque[_Item]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._log = log_of("outlet")

    @property
    def waiting(self) -> int:
        """Events that no stream has yet."""
        return sum(map(len, self._lanes.values()))

    def put(self, lane: str, event: Envelope[Any], before: Callable[[], Awaitable[None]] | None = None) -> None:
        """Publish behind what the lane has. `before` is awaited first: what must be out before this event."""
        queue = self._lanes.get(lane)
        if queue is not None:
            queue.append(_Item(event, before))
            return
        self._lanes[lane] = deque([_Item(event, before)])
        task = asyncio.create_task(self._run(lane))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, lane: str) -> None:
        queue = self._lanes[lane]
        while queue:
            item = queue[0]
            if item.before is not None:
                try:
                    await item.before()
                except Exception:
                    self._log.exception("not_before", type=item.event.type)
            await self._insist(item.event)
            queue.popleft()
            self.published += 1
            self._said(item.event)
        del self._lanes[lane]

    async def _insist(self, event: Envelope[Any]) -> None:
        tries = 0
        while True:
            self._before()
            try:
                await self._publish(event)
            except Exception as error:
                tries += 1
                if not isinstance(error, Unavailable):
                    self._log.exception("outlet_failed", type=event.type)  # a lane that gave up would keep its node's ends for ever
                elif self.problem is None:
                    self._log.warning("outlet_waits", detail=str(error))
                self.problem = str(error) or type(error).__name__
                pause = min(FIRST_PAUSE_SECONDS * 2 ** min(tries, 10), LONGEST_PAUSE_SECONDS)
                await asyncio.sleep(pause * random.uniform(0.7, 1.0))
            else:
                self.problem = None
                return

    async def idle(self, seconds: float) -> bool:
        """Wait until everything is out, at most this long; whether it is."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=seconds)
        return not self._lanes

    async def close(self) -> None:
        """Give up what waits: it lies in the journal."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
