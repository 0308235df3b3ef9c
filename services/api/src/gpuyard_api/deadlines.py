"""Waiting, but not for ever: a database or bus that hangs must not hang who asks.

`within` gives up on time even where the awaited thing does not react to being cancelled (a connection that waits for a frozen server does
not): it is left to end on its own.
"""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from gpuyard_runtime.faults import Unavailable

T = TypeVar("T")

_LEFT: set[asyncio.Future[object]] = set()
"""What was given up and still ends: held, so that it is not collected midway."""


async def within(seconds: float, awaited: Awaitable[T], who: str) -> T:
    """The result, if it comes in time. Raises Unavailable(who) if not, and whatever the awaited thing raises."""
    task = asyncio.ensure_future(awaited)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        _leave(task)
        raise
    if not done:
        _leave(task)
        raise Unavailable(who)
    return task.result()


def _leave(task: "asyncio.Future[T]") -> None:
    task.cancel()
    held: asyncio.Future[object] = task  # pyright: ignore[reportAssignmentType]  # only held and dropped, never read
    _LEFT.add(held)
    held.add_done_callback(_dropped)


def _dropped(task: "asyncio.Future[object]") -> None:
    _LEFT.discard(task)
    if not task.cancelled():
        task.exception()  # looked at, so that it is not reported as lost
