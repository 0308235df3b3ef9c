"""Running coroutines that never wait for anything outside, without an event loop."""

from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that only awaits things in memory. Raises RuntimeError if it really has to wait."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    coroutine.close()
    raise RuntimeError("this coroutine waits for something outside: it cannot run on the memory harness")
