"""The API's description (OpenAPI 3.1), as served under ``/v1/openapi.json`` and committed as ``docs/openapi.json``.

``python -m gpuyard_api.openapi docs/openapi.json`` writes the committed file; a test compares. The same code gives the same bytes.
"""

import json
import sys
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from gpuyard_api.problems import MEDIA_TYPE
from gpuyard_api.views.shapes import ProblemView

DESCRIPTION = """GPUs that several tenants share: ask for jobs, see why they wait, follow them, and what they cost.

Every error is a problem (`application/problem+json`, RFC 9457) with a stable `code`. Lists are paged by cursors. Streams are server-sent
events whose `id` is a cursor too: come again with `Last-Event-ID` and nothing is missed. Amounts of money are whole micro-units of the
currency, shares of a GPU thousandths, memory MiB."""

_PROBLEM = {"description": "The request is not valid", "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemView"}}}}

_SHORTHAND = {"type": "string", "description": "Shorthand.", "examples": ["H100:2", "24GB..", "A100-80GB:0.25", "T4:4GB", "mig-3g.40gb"]}


def document(app: FastAPI) -> dict[str, Any]:
    """The description of an app; made once and kept with it."""
    if app.openapi_schema is None:
        app.openapi_schema = _document(app)
    return app.openapi_schema


def _document(app: FastAPI) -> dict[str, Any]:
    found = get_openapi(
        title=app.title,
        version=app.version,
        openapi_version="3.1.0",
        description=DESCRIPTION,
        routes=app.routes,
        separate_input_output_schemas=False,
    )
    schemas: dict[str, Any] = found.setdefault("components", {}).setdefault("schemas", {})
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    _, problems = models_json_schema([(ProblemView, "serialization")], ref_template="#/components/schemas/{model}")
    schemas.update(problems["$defs"])
    spec_fields = schemas["JobSpec"]["properties"]
    spec_fields["gpu"] = {"anyOf": [spec_fields["gpu"], _SHORTHAND]}  # its validator takes both forms
    for operations in found["paths"].values():
        for operation in operations.values():
            _tidy(operation)
    return found


def _tidy(operation: dict[str, Any]) -> None:
    """Every validation error is a problem, too."""
    told = operation["responses"].get("422")
    if told is not None and "HTTPValidationError" in json.dumps(told):
        operation["responses"]["422"] = _PROBLEM


def text() -> str:
    """The committed file's content."""
    from gpuyard_api.web import routes  # the app imports this module

    return json.dumps(document(routes()), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def write(path: Path | str) -> None:
    """Write the description to a file."""
    Path(path).write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    write(sys.argv[1])
