"""The HTTP application: routers, problems, the door in front; without a word about where its yard comes from."""

from fastapi import FastAPI
from starlette.responses import Response

from gpuyard_api.http import answers, explaining, health, jobs, money, nodes, operators, streams, submitting, tenants
from gpuyard_api.http.context import Yard
from gpuyard_api.http.door import MAX_BODY_BYTES, Door, Observe, Scope, unseen
from gpuyard_api.openapi import document

VERSION = "1"
ROUTERS = (jobs.router, explaining.router, streams.router, nodes.router, tenants.router, money.router, operators.router, health.router)


def web(yard: Yard, *, app: FastAPI | None = None, observe: Observe = unseen, max_body_bytes: int = MAX_BODY_BYTES) -> Door:
    """The ASGI application over a yard; `app` are routes that were made before."""

    async def short(scope: Scope, body: bytes) -> Response | None:
        return await submitting.short_way(scope, body, yard)

    behind = routes() if app is None else app
    behind.state.yard = yard
    return Door(behind, observe, max_body_bytes, short=short)


def routes() -> FastAPI:
    """All routes, without a yard and without a door in front: what the API's description is made from."""
    app = FastAPI(
        title="gpuyard",
        version=VERSION,
        openapi_url="/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        strict_content_type=False,  # a body without a type is taken for JSON; the door refuses other types
        separate_input_output_schemas=False,
    )
    for router in ROUTERS:
        app.include_router(router)
    answers.install(app)
    app.openapi = lambda: document(app)
    return app
