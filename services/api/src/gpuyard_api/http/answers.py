"""From what went wrong to the problem that is answered, and the problems' place in the API's description."""

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any, get_args, get_type_hints

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from gpuyard_runtime.faults import Unavailable
from pydantic import BaseModel
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.responses import Response

from gpuyard_api import problems
from gpuyard_api.domain.plain import sentence
from gpuyard_api.problems import MEDIA_TYPE, FieldError, Problem
from gpuyard_api.views.shapes import ProblemView

_TITLES = {
    401: "No token, or one that does not work",
    403: "The token may not do this",
    404: "There is none, or it is somebody else's",
    409: "The present state does not allow it",
    413: "The body is too large",
    422: "The request is not valid, or was not taken",
    503: "Something that is needed does not answer",
}
_SHOWN_ERRORS = 20


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """For a route's description: the problems that it answers, besides 401 and 503 which any may answer."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemView"}}}
    return {status: {"description": _TITLES[status], "content": content} for status in sorted({401, 503, *statuses})}


def render(problem: Problem) -> Response:
    """The answer of a problem."""
    return Response(to_json(problem.content()), problem.status, problem.headers, MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Answer every error of a route as a problem."""

    async def on_error(request: Request, error: Exception) -> Response:
        return render(problem_of(error))

    async def on_invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return render(invalid_of(error, request.scope.get("endpoint")))

    async def on_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return render(_http_problem(request, error))

    for kind in (Problem, Unavailable, Exception):  # the last is raised on, to be logged
        app.add_exception_handler(kind, on_error)
    app.add_exception_handler(RequestValidationError, on_invalid)
    app.add_exception_handler(HTTPException, on_http)


FAULT = Problem(500, "internal", "Something is wrong here", "This is a fault of gpuyard; its log says more.")
"""What is answered where the error is our own."""


def problem_of(error: Exception) -> Problem:
    """What is answered where something was raised."""
    if isinstance(error, Problem):
        return error
    if not isinstance(error, Unavailable):
        return FAULT
    who = str(error).split(":")[0]
    return problems.unavailable(who if who.isalnum() else "bus", f"The {who} did not answer in time; try again.")


def invalid_of(error: RequestValidationError, endpoint: Any) -> Problem:
    """A validation error as a problem, in plain English."""
    found: list[Any] = list(error.errors())
    broken = next((each for each in found if each["type"] == "json_invalid"), None)
    if broken is not None:
        where = broken["loc"][-1]
        detail = f"The body is not JSON: {broken.get('ctx', {}).get('error', 'it cannot be read')} at character {where}."
        return Problem(400, "bad-json", "The body is not JSON", detail)
    told = dict.fromkeys(
        FieldError(*sentence(each, lambda place: known_fields(_body_of(endpoint), place))) for each in _first_hand(found)[:_SHOWN_ERRORS]
    )
    return problems.invalid(*told)


def _first_hand(errors: Sequence[Any]) -> list[Any]:
    """The errors without those that only follow from others: a list is called too short because its entries were refused."""
    places = [tuple(each["loc"]) for each in errors]
    return [
        each
        for each, place in zip(errors, places, strict=True)
        if each["type"] != "too_short" or not any(len(other) > len(place) and other[: len(place)] == place for other in places)
    ]


@lru_cache(maxsize=256)
def _body_of(endpoint: Any) -> type[BaseModel] | None:
    """The model of a route's body."""
    for hint in get_type_hints(endpoint).values() if endpoint is not None else ():
        if isinstance(hint, type) and issubclass(hint, BaseModel):
            return hint
    return None


def known_fields(model: type[BaseModel] | None, place: tuple[Any, ...]) -> Collection[str]:
    """The fields of the model at a place within another; empty where there is no model."""
    for part in place:
        if isinstance(part, int):
            continue
        field = None if model is None else model.model_fields.get(str(part))
        model = None if field is None else _model_in(field.annotation)
    return () if model is None else tuple(model.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model_in(part)) is not None), None)


def _http_problem(request: Request, error: HTTPException) -> Problem:
    path = problems.shown(request.url.path)
    if error.status_code == 404:
        return Problem(404, "no-such-path", "No such path", f"{path} is no path of this API; see /v1/openapi.json.")
    if error.status_code == 405:
        allowed = dict(error.headers or {})
        return Problem(405, "method-not-allowed", "Method not allowed", f"{path} does not know {request.method}.", headers=allowed)
    if error.status_code == 400:
        return Problem(400, "bad-json", "The body is not JSON", "The body cannot be read as JSON.")
    return Problem(error.status_code, "refused", "The request was refused", str(error.detail)[:200])


PROBLEM_MODELS = (ProblemView,)
