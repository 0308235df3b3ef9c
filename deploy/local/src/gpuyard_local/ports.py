"""Ports of a stack on this machine's loopback.

Taken from a range below the kernel's ephemeral ports (so that no outgoing connection sits on one while a service restarts) and below the
ports on which gangs meet (20000 and up). Kept over restarts; one that somebody else has taken meanwhile is replaced, and that is told.
"""

import hashlib
import socket
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

FIRST, LAST = 10_200, 19_999

LOOPBACK = "127.0.0.1"


class PortTaken(Exception):
    """A port that was asked for by number is in use."""


def is_free(port: int) -> bool:
    """Nobody listens there. Waiting connections of an earlier owner do not count: our servers take such a port too."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def choose(
    names: Iterable[str],
    *,
    place: Path,
    kept: Mapping[str, int] | None = None,
    asked: Mapping[str, int] | None = None,
    free: Callable[[int], bool] = is_free,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, int]:
    """A port for every name: the asked one, else the kept one while it is free, else the next free one.

    `place` (the state folder) decides where the search begins, so two stacks rarely want the same. Raises :class:`PortTaken` for an asked
    port that is in use, and RuntimeError when the whole range is.
    """
    kept, asked = kept or {}, asked or {}
    chosen: dict[str, int] = {}
    for name in names:
        wanted = asked.get(name)
        if wanted is not None:
            if wanted in chosen.values() or not free(wanted):
                raise PortTaken(f"port {wanted} for {name} is in use; name another one")
            chosen[name] = wanted
            continue
        before = kept.get(name)
        if before is not None and before not in (*chosen.values(), *asked.values()) and free(before):
            chosen[name] = before
            continue
        chosen[name] = _next(place, {*chosen.values(), *asked.values(), *kept.values()}, free)
        if before is not None:
            say(f"port {before} of {name} was taken by another program; {name} moves to {chosen[name]}")
    return chosen


def _next(place: Path, taken: set[int], free: Callable[[int], bool]) -> int:
    size = LAST - FIRST + 1
    start = int.from_bytes(hashlib.sha256(str(place).encode()).digest()[:4], "big") % size
    for step in range(size):
        port = FIRST + (start + step) % size
        if port not in taken and free(port):
            return port
    raise RuntimeError(f"no port between {FIRST} and {LAST} is free on this machine")
