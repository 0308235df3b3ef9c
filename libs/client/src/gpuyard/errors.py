"""What can go wrong between a person and the api, each with what to do about it.

The tree: :class:`GpuyardError` → :class:`Unreachable` (nobody answered), :class:`ApiError` (the api said no; :class:`NotFound` and
:class:`Denied` are the two that a caller most often tells apart), :class:`BadJobFile` (nothing was sent), :class:`Ambiguous` (more than
one job is meant), :class:`NotConfigured` and :class:`WaitTimeout`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


class GpuyardError(Exception):
    """Something went wrong; the message says what, `fix` what to do."""

    fix: str = ""

    def __init__(self, message: str, *, fix: str = "") -> None:
        super().__init__(message)
        self.fix = fix or self.fix


class NotConfigured(GpuyardError):
    """Nobody has said where the api is."""


class Unreachable(GpuyardError):
    """The api did not answer."""


class WaitTimeout(GpuyardError):
    """What was waited for has not happened in time; it may still."""


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One wrong field of a request, as the api tells it."""

    field: str
    message: str
    fix: str = ""


class ApiError(GpuyardError):
    """The api answered with a problem. `status` is HTTP's, `code` the stable word to act on, `fields` what is wrong where."""

    def __init__(self, status: int, code: str, message: str, *, fields: Sequence[FieldProblem] = (), fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.status = status
        self.code = code
        self.fields = tuple(fields)


class NotFound(ApiError):
    """The api knows nothing of this name, or not for this token."""


class Denied(ApiError):
    """The token is missing, wrong, or not allowed to do this."""


class Rejected(ApiError):
    """The scheduler did not take the job. `reason` is from the closed list, `job_id` names the refused request."""

    reason: str = ""
    job_id: str = ""


class Ambiguous(GpuyardError):
    """A name or prefix means more than one job; nothing was done. `candidates`: the ids with their names and states."""

    def __init__(self, ref: str, candidates: Sequence[tuple[str, str, str]]) -> None:
        shown = "\n".join(f"  {job_id}  {name}  {state}" for job_id, name, state in candidates[:10])
        more = f"\n  and {len(candidates) - 10} more" if len(candidates) > 10 else ""
        super().__init__(f"{ref!r} means {len(candidates)} jobs; nothing was done:\n{shown}{more}", fix="name one of them by its id")
        self.candidates = tuple(candidates)


@dataclass(frozen=True, slots=True)
class FileProblem:
    """One wrong place in a job file. `line` counts from 1; 0 where the whole file is meant."""

    file: str
    line: int
    field: str
    message: str
    fix: str = ""

    def __str__(self) -> str:
        """``train.yaml:4: gpus: is not a known field; did you mean 'gpu'?``"""
        place = f"{self.file}:{self.line}" if self.line else self.file
        said = f"{self.field}: {self.message}" if self.field else self.message
        return f"{place}: {said}" + (f"; {self.fix}" if self.fix else "")


class BadJobFile(GpuyardError):
    """A job file cannot be read as jobs; nothing was sent."""

    def __init__(self, problems: Sequence[FileProblem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


_KINDS: Mapping[int, type[ApiError]] = {401: Denied, 403: Denied, 404: NotFound}

_FIXES: Mapping[int, str] = {
    401: "log in with `gpuyard login URL`, or set GPUYARD_TOKEN",
    403: "this needs a token with more rights, such as the admin token of the installation",
    429: "wait a little and try again",
    503: "the api waits for one of its parts; `gpuyard doctor` says which",
}


_LISTS: Mapping[str, str] = {"node": "gpuyard nodes", "GPU": "gpuyard gpus", "tenant": "gpuyard tenant list", "job": "gpuyard ps -a"}
"""The command that lists what there is of a thing, by what the api calls it."""

_REJECTION_FIXES: Mapping[str, str] = {
    "never-fits": "ask for less, or for another kind of card; `gpuyard nodes` shows what there is",
    "over-quota-for-ever": "ask for less than the tenant's quota, or have it raised: `gpuyard tenant set`",
    "tenant-suspended": "an operator lifts it with `gpuyard tenant set NAME --no-suspended`",
    "too-many-waiting": "wait until some of the tenant's jobs have started",
    "too-many-requests": "send fewer a minute",
    "internal-error": "tell the operator: the request is kept among the dead letters",
}


def of_response(status: int, body: Any) -> ApiError:
    """The error that an answer of the api (problem+json, or anything a proxy made of it) stands for."""
    told: Mapping[str, Any] = body if isinstance(body, Mapping) else {}
    rows: Any = told.get("errors") or ()
    fields = [
        FieldProblem(str(row.get("field", "")), str(row.get("message", "")), str(row.get("fix") or ""))
        for row in rows
        if isinstance(row, Mapping)
    ]
    message = str(told.get("detail") or told.get("title") or f"the api answered with status {status}")
    kind = Rejected if told.get("code") == "job-rejected" else _KINDS.get(status, ApiError)
    listed = _LISTS.get(str(told.get("title", "")).removeprefix("No such ")) if status == 404 else None
    fix = str(told.get("fix") or _FIXES.get(status) or (f"`{listed}` lists those there are" if listed else ""))
    error = kind(status, str(told.get("code") or f"http-{status}"), message, fields=fields, fix=fix)
    if isinstance(error, Rejected):
        error.reason, error.job_id = str(told.get("reason", "")), str(told.get("job_id", ""))
        error.fix = _REJECTION_FIXES.get(error.reason, "")
    return error
