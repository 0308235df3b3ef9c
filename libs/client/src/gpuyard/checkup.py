"""What ``gpuyard doctor`` checks, one after the other; a check that cannot be made because an earlier one failed is left out."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from gpuyard.client import Client
from gpuyard.errors import GpuyardError

SKEW_SECONDS = 3.0
"""HTTP tells time in whole seconds, and the answer took a moment: less than this cannot be told apart from none."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    is_well: bool
    detail: str
    fix: str = ""


def examine(make: Callable[[], Client] | None = None, now: Callable[[], float] = time.time) -> list[Check]:
    """All checks, in order. Never raises for what is wrong outside."""
    try:
        with (make or Client)() as client:
            return list(_checks(client, now))
    except GpuyardError as error:
        return [Check("api", False, str(error), error.fix)]


def _checks(client: Client, now: Callable[[], float]) -> Iterator[Check]:
    url = client.connection.url
    try:
        answer = client.transport.answered("/v1/health")
    except GpuyardError as error:
        yield Check("api", False, str(error), error.fix)
        return
    if answer.status_code not in (200, 503):
        yield Check("api", False, f"{url}/v1/health answers {answer.status_code}", "is this address a gpuyard api's?")
        return
    yield Check("api", True, f"answers at {url} ({client.connection.found_in})")
    if answer.status_code == 503:
        yield Check("api is ready", False, _complaints(answer.text), "it waits for that; see its log, and `gpuyard-local status`")
    yield _clock(answer.headers.get("date", ""), now())
    yield from _services(client)
    yield from _seen(client)


def _clock(date: str, here: float) -> Check:
    try:
        skew = parsedate_to_datetime(date).timestamp() - here
    except (ValueError, TypeError):
        return Check("clock", True, "the api does not tell its time")
    if abs(skew) <= SKEW_SECONDS:
        return Check("clock", True, "this machine's agrees with the api's")
    return Check(
        "clock",
        False,
        f"this machine's is {abs(skew):.0f} s {'behind' if skew > 0 else 'ahead of'} the api's",
        "synchronise the clocks (NTP)",
    )


def _services(client: Client) -> Iterator[Check]:
    """The processes of a local stack: their addresses are known from its folder."""
    for name, where in client.connection.services.items():
        fix = f"see its log: gpuyard-local logs {name}"
        try:
            answer = client.transport.answered(where)
        except GpuyardError:
            yield Check(f"service {name}", False, "does not answer", fix)
            continue
        well = answer.status_code == 200
        yield Check(
            f"service {name}", well, "ready" if well else _complaints(answer.text) or f"answers {answer.status_code}", "" if well else fix
        )


def _complaints(text: str) -> str:
    """What an answer of 503 says is missing."""
    try:
        found = json.loads(text)
        reasons = found.get("reasons") or found.get("complaints") or {}
    except (ValueError, AttributeError):
        return text[:200]
    told = [f"{part}: {reason}" for part, reason in reasons.items()] if isinstance(reasons, dict) else [str(part) for part in reasons]
    return "; ".join(told)


def _seen(client: Client) -> Iterator[Check]:
    """What the token lets us see: ourselves, nodes, faults."""
    try:
        me = client.whoami()
        yield Check("token", True, f"is {me['actor']}'s")
        nodes = client.nodes()
        bad = [node.node_id for node in nodes if node.status != "ready"]
        if not nodes:
            yield Check("nodes", False, "there are none", "start a node agent; `make up` starts simulated ones")
        else:
            yield Check(
                "nodes",
                not bad,
                f"{len(nodes) - len(bad)} of {len(nodes)} ready" + (f"; not: {', '.join(bad)}" if bad else ""),
                "see the agent's log",
            )
        faults = client.incidents()
        told = ", ".join(f"{row['kind']} on {row['node_id']}" for row in faults[:5])
        yield Check("faults", not faults, told or "none is open", "`gpuyard incidents` shows the evidence")
    except GpuyardError as error:
        yield Check("token", False, str(error), error.fix)
