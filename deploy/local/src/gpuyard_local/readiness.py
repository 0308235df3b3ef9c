"""Is a program ready? Asked at its own ``/readyz`` on loopback, as whoever operates it in earnest would."""

import http.client
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from gpuyard_local.ports import LOOPBACK

POLL_SECONDS = 0.05


class NotReady(Exception):
    """Something did not become ready in time. `waiting`: by name, what it said last."""

    def __init__(self, waiting: Mapping[str, str]) -> None:
        super().__init__("not ready: " + "; ".join(f"{name} ({why})" for name, why in sorted(waiting.items())))
        self.waiting = dict(waiting)


def ask(port: int, path: str = "/readyz", *, timeout_seconds: float = 2.0) -> str | None:
    """None for ready; else why not, in a few words."""
    conn = http.client.HTTPConnection(LOOPBACK, port, timeout=timeout_seconds)
    try:
        conn.request("GET", path)
        answer = conn.getresponse()
        body = answer.read(20_000)
    except (OSError, http.client.HTTPException):
        return "does not answer"
    finally:
        conn.close()
    return None if answer.status == 200 else _why(body, answer.status)


def _why(body: bytes, status: int) -> str:
    """The reasons of a ``/readyz`` answer: whatever is not well in it."""
    try:
        content: Any = json.loads(body)
    except ValueError:
        return body.decode(errors="replace").strip()[:200] or f"status {status}"
    for name in ("waiting", "reasons", "detail", "problems"):
        if isinstance(content, dict) and content.get(name):
            found = content[name]
            return ", ".join(str(part) for part in found)[:200] if isinstance(found, list) else str(found)[:200]
    return json.dumps(content)[:200]


def wait(
    ports: Mapping[str, int],
    *,
    seconds: float,
    say: Callable[[str], None] = lambda line: None,
    asked: Callable[[int], str | None] = ask,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until every program is ready, telling each as it is. Raises :class:`NotReady` with what the others say."""
    begun = clock()
    waiting = dict.fromkeys(ports, "was not asked yet")
    while True:
        for name in list(waiting):
            why = asked(ports[name])
            if why is None:
                del waiting[name]
                say(f"{name} is ready ({clock() - begun:.1f} s)")
            else:
                waiting[name] = why
        if not waiting:
            return
        if clock() - begun > seconds:
            raise NotReady(waiting)
        pause(POLL_SECONDS)
