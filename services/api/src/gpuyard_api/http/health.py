"""Whether the API works, for whoever has no token: nothing about what it works on."""

from typing import Literal

from fastapi import APIRouter
from pydantic import ConfigDict
from starlette.responses import Response

from gpuyard_api.http.context import TheYard
from gpuyard_api.views.shapes import Answer, example

router = APIRouter(prefix="/v1", tags=["health"])


class HealthView(Answer):
    """`complaints` says in words what is missing."""

    model_config = ConfigDict(frozen=True, json_schema_extra=example(status="ready", complaints=[]))

    status: Literal["ready", "not-ready"]
    complaints: list[str]


@router.get(
    "/health", summary="Is the API ready", response_model=HealthView, responses={503: {"model": HealthView, "description": "Not now."}}
)
async def health(yard: TheYard, response: Response) -> HealthView:
    """200 if requests can be served now, 503 with the reasons if not."""
    complaints = yard.engine.complaints()
    response.status_code = 503 if complaints else 200
    return HealthView(status="not-ready" if complaints else "ready", complaints=complaints)
