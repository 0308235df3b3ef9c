"""The HTTP application: routers, problems, the door in front; without a word about where its yard comes from."""

from fastapi import FastAPI

from gpuyard_api.http import answers, health, jobs, money, nodes, operators, streams, tenants
from gpuyard_api.http.context import Yard
from gpuyard_api.http.door import MAX_BODY_BYTES, Door, Observe, unseen
from gpuyard_api.openapi import document

VERSION = "1"
ROUTERS = (jobs.router, streams.router, nodes.router, tenants.router, money.router, operators.router, health.router)


def web(yard: Yard | None, *, observe: Observe = unseen, max_body_bytes: int = MAX_BODY_BYTES) -> FastAPI:
    """The ASGI application over a yard (None: only its description is wanted)."""
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
    app.add_middleware(Door, observe=observe, max_body_bytes=max_body_bytes)
    app.state.yard = yard
    app.openapi = lambda: document(app)
    return app
