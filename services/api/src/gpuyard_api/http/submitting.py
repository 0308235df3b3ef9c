"""Asking for a job, whichever way the request was read.

Most of what api is asked for is one kind of request, so it has a short way: :func:`short_way` reads a request that is as it should be in
one step and answers it. Whatever is not (a field, a header, a parameter) it leaves to the route, which says what is wrong.
"""

import time
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from gpuyard_contracts.spec import JobSpec
from gpuyard_contracts.types import TenantId, job_id_of
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from gpuyard_api import acts, mapping, problems
from gpuyard_api.auth import principal_of
from gpuyard_api.domain.access import Principal
from gpuyard_api.domain.model import Job
from gpuyard_api.http.context import Yard, good_traceparent
from gpuyard_api.http.keys import request_id_for
from gpuyard_api.hub import Watcher
from gpuyard_api.problems import FieldError
from gpuyard_api.views.jobs import job_json

PATH = "/v1/jobs"
MAX_WAIT_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Wish:
    """A job that somebody asks for. `key` is the caller's idempotency key, `wait` how many seconds the scheduler's answer is awaited."""

    spec: JobSpec
    tenant: str | None
    wait: float
    key: str | None
    traceparent: str | None


class _Parameters(BaseModel):
    """The parameters of the request, where there are no others."""

    model_config = ConfigDict(extra="forbid")

    wait: float = Field(default=0, ge=0, le=MAX_WAIT_SECONDS)
    tenant: TenantId | None = None


@dataclass(frozen=True, slots=True)
class _Route:
    """What requests that take the short way are counted under."""

    path: str = PATH


_ROUTE = _Route()


async def short_way(scope: MutableMapping[str, Any], body: bytes, yard: Yard) -> Response | None:
    """The answer to a request for a job that is well-formed in all its parts; None for any other request. Raises Problem, Unavailable."""
    if scope["method"] != "POST" or scope["path"] != PATH:
        return None
    given: dict[bytes, bytes] = dict(reversed(scope["headers"]))  # of equal names the first counts
    try:
        asked = _parameters(scope["query_string"])
        spec = JobSpec.model_validate_json(body)
    except ValueError:
        return None
    scope["route"] = _ROUTE
    who = principal_of(yard.engine.store, _text(given, b"authorization"))
    wish = Wish(spec, asked.tenant, asked.wait, _text(given, b"idempotency-key"), good_traceparent(_text(given, b"traceparent")))
    return await answer(yard, who, wish)


def _text(headers: Mapping[bytes, bytes], name: bytes) -> str | None:
    value = headers.get(name)
    return None if value is None else value.decode("latin-1")


_NO_PARAMETERS = _Parameters()


def _parameters(query: bytes) -> _Parameters:
    """The parameters of a query string. Raises ValueError for one with others, or with one twice."""
    if not query:
        return _NO_PARAMETERS
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    if len(found := dict(pairs)) != len(pairs):
        raise ValueError("a parameter is there twice")
    return _Parameters.model_validate_strings(found)


async def answer(yard: Yard, who: Principal, wish: Wish) -> Response:
    """Keep the request, unless it is a repeat, and answer with its job. Raises Problem, Unavailable."""
    owner = _owner(who, wish.tenant)
    request_id = request_id_for(wish.key)
    job_id = job_id_of(owner, request_id)
    ask = mapping.ask_of(job_id, owner, wish.spec, yard.engine.now())
    act = acts.submit(who, ask, wish.spec, request_id)
    with yard.hub.watch(job_id=job_id) as watcher:
        if wish.key is None:
            made = await yard.act(act, traceparent=wish.traceparent)
        else:
            async with yard.turns.of(job_id):
                is_repeat = await _is_repeat(yard, who, job_id, ask.digest)
                made = None if is_repeat else await yard.act(act, traceparent=wish.traceparent)
        if made is None or not made.is_new:
            return await _repeat(yard, job_id, watcher, wish.wait)
        return _shown(await _decided(yard, made.job, watcher, wish.wait), ask.spec, is_new=True)


def _owner(who: Principal, tenant: str | None) -> str:
    """Whose job it is to be. Raises Problem."""
    if who.tenant is not None:
        if tenant not in (None, who.tenant):
            raise problems.not_found("tenant", tenant or "")
        return who.tenant
    if tenant is None:
        raise problems.invalid(FieldError("tenant", "is missing", "an operator says whose job it is: ?tenant=acme"))
    return tenant


async def _is_repeat(yard: Yard, who: Principal, job_id: str, digest: str) -> bool:
    """Whether this very request was made before. Raises Problem 409 where the key was used for another."""
    known = await yard.reads.digest(job_id)
    if known is None:
        return False
    if known != digest:
        detail = "This Idempotency-Key was used for a request with another body; take a new key for a new job."
        conflict = problems.conflict("idempotency-conflict", "The key is taken", detail, job_id=job_id)
        raise await yard.refuse(who, "job.submit", job_id, conflict)
    return True


async def _repeat(yard: Yard, job_id: str, watcher: Watcher, wait: float) -> Response:
    """The answer to a request that was made before: its job as it is now."""
    found = await yard.reads.job(job_id, None)
    if found is None:
        raise problems.unavailable("database", "The job of this request cannot be read yet; try again.")
    job, spec = found
    return _shown(await _decided(yard, job, watcher, wait), spec, is_new=False)


async def _decided(yard: Yard, job: Job, watcher: Watcher, wait: float) -> Job:
    """The job once the scheduler has answered, or as it is when the time is over. Raises Problem where the answer is no."""
    deadline = time.monotonic() + wait
    now = job
    while now.state == "submitted" and (left := deadline - time.monotonic()) > 0 and not watcher.is_closing:
        await watcher.wait(left)
        watcher.take()
        now = yard.engine.store.jobs.get(job.job_id) or now
    if now.state == "rejected":
        raise problems.rejected(now.job_id, now.reason, now.detail)
    return now


def _shown(job: Job, spec: str, *, is_new: bool) -> Response:
    status = 202 if job.state == "submitted" else 201 if is_new else 200
    headers = {"Location": f"{PATH}/{job.job_id}"} | ({} if is_new else {"Idempotent-Replayed": "true"})
    return Response(job_json(job, spec), status, headers, "application/json")
