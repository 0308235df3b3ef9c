"""What every route is handed: the yard (engine, read models, hub) and whose token came with the request."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, TypeVar

from fastapi import Depends, Request
from fastapi.security import HTTPBearer
from gpuyard_contracts.envelope import TRACEPARENT, Ask, Shape
from gpuyard_runtime.faults import Refused, Unavailable
from gpuyard_runtime.service import Tx

from gpuyard_api import acts, problems
from gpuyard_api.auth import principal_of
from gpuyard_api.deadlines import within
from gpuyard_api.domain.access import Principal
from gpuyard_api.http.turns import Turns
from gpuyard_api.hub import Hub
from gpuyard_api.ports import Engine, Reads
from gpuyard_api.problems import Problem
from gpuyard_api.store import ApiStore

T = TypeVar("T")
A = TypeVar("A", bound=Shape)


@dataclass(frozen=True, slots=True)
class Pace:
    """How long what is waited for, in seconds."""

    act: float = 5.0
    """A write until it is committed."""
    ask: float = 3.0
    """Another service's answer."""
    verify: float = 60.0
    """The ledger, rebuilt from the events."""
    check: float = 2.0
    """A stream looks again whether its token still works."""
    heartbeat: float = 10.0
    """A quiet stream says that it lives."""
    log_end: float = 3.0
    """A followed log of an ended job is quiet for this long before it ends."""


@dataclass(frozen=True, slots=True)
class Yard:
    """All that routes use."""

    engine: Engine
    reads: Reads
    hub: Hub
    pace: Pace = Pace()
    turns: Turns = field(default_factory=Turns)

    async def act(self, fn: "Callable[[Tx[ApiStore]], T | Problem]", *, traceparent: str | None = None) -> T:
        """Run an act; raises the problem that it returned, and Problem 503 where it is not known to be committed in time."""
        try:
            async with asyncio.timeout(self.pace.act):  # what is awaited is only that somebody sets a result, so giving up is at once
                result = await self.engine.act(fn, traceparent=traceparent)
        except (TimeoutError, Unavailable):
            detail = "It is not known whether this was done. Ask again; with the same Idempotency-Key it is done once."
            raise problems.unavailable("database", detail) from None
        if isinstance(result, Problem):
            raise result
        return result

    async def ask(self, ask: Ask, reply: type[A], *, seconds: float | None = None) -> A:
        """Ask another service. Raises Problem: 503 where it does not answer, 422 where it says no."""
        whom = ask.TYPE.split(".")[2]
        limit = seconds or self.pace.ask
        try:
            answer = await within(limit + 0.5, self.engine.ask(ask, seconds=limit), whom)
        except Refused as refused:
            if refused.reason in ("unavailable", "internal", "bad-answer"):
                raise problems.unavailable(whom, f"{whom} cannot answer now: {refused.detail or refused.reason}") from None
            raise Problem(422, refused.reason, f"{whom} does not do this", refused.detail or refused.reason) from None
        except Unavailable:
            raise problems.unavailable(whom, f"{whom} did not answer within {limit:g} s; try again.") from None
        if not isinstance(answer, reply):
            raise problems.unavailable(whom, f"{whom} gave an answer that cannot be read.")
        return answer

    def is_live(self, who: Principal) -> bool:
        """Whether the token still works."""
        token = self.engine.store.tokens.get(who.token.digest)
        return token is not None and token.revoked_at is None

    async def refuse(self, who: Principal, action: str, target: str, problem: Problem) -> Problem:
        """Leave the refusal in the audit log; returns the problem, to be raised."""
        await self.act(acts.noted(who, action, target, problem.code))
        return problem


_BEARER = HTTPBearer(auto_error=False, bearerFormat="gpy_…", description="A tenant's or an operator's token.")


async def the_yard(request: Request) -> Yard:
    """The yard of this app."""
    return request.app.state.yard


async def anyone(request: Request) -> Principal:
    """Whoever has a token that works. Raises Problem 401."""
    return principal_of(request.app.state.yard.engine.store, request.headers.get("authorization"))


async def operator(request: Request) -> Principal:
    """An operator. Raises Problem 401 or 403; what is refused to a tenant's token on a write is in the audit log."""
    who = await anyone(request)
    if who.is_admin:
        return who
    problem = problems.forbidden("This takes an operator's token.")
    if request.method != "GET":
        yard: Yard = request.app.state.yard
        raise await yard.refuse(who, f"{request.method.lower()} {request.scope['route'].path}", "", problem)
    raise problem


def traceparent_of(request: Request) -> str | None:
    """The caller's trace context, if it sent a good one: the job's trace goes on from it."""
    return good_traceparent(request.headers.get("traceparent"))


def good_traceparent(given: str | None) -> str | None:
    """A trace context, if it is one."""
    return given if given and TRACEPARENT.fullmatch(given) else None


TheYard = Annotated[Yard, Depends(the_yard)]
Who = Annotated[Principal, Depends(anyone)]
Operator = Annotated[Principal, Depends(operator)]
bearer = Depends(_BEARER)
"""For routers: says in the API's description that a token is needed."""
