"""The API's description: complete, and the committed file is what the code says."""

import json
from pathlib import Path
from typing import Any

import pytest
from gpuyard_api.openapi import text

from tests.support.api_yard import ApiWorld

ROOT = Path(__file__).parents[3]
DOCUMENT: dict[str, Any] = json.loads(text())
OPERATIONS = [(f"{method} {path}", operation) for path, item in DOCUMENT["paths"].items() for method, operation in item.items()]


def test_the_committed_description_is_current() -> None:
    """Run ``python -m gpuyard_api.openapi docs/openapi.json`` after a change of the API."""
    assert (ROOT / "docs" / "openapi.json").read_text(encoding="utf-8") == text()


def test_it_is_openapi_3_1_and_the_same_each_time() -> None:
    """Deterministic, so that a diff is a change."""
    assert DOCUMENT["openapi"].startswith("3.1")
    assert text() == text()


@pytest.mark.parametrize(("name", "operation"), OPERATIONS, ids=[name for name, _ in OPERATIONS])
def test_every_operation_is_described(name: str, operation: dict[str, Any]) -> None:
    """Summary, description, an example of body and answer, problems as problems, and the token that it takes."""
    assert operation["summary"]
    assert operation["description"]
    answers = [body for status, body in operation["responses"].items() if status.startswith("2")]
    for content in [*(body["content"] for body in answers), *([operation["requestBody"]["content"]] if "requestBody" in operation else [])]:
        assert all(_has_example(each) for each in content.values()), f"{name}: no example"
    if "health" not in name:
        assert operation["security"]
        assert {"401", "503"} <= set(operation["responses"])
        for status, body in operation["responses"].items():
            if not status.startswith("2"):
                assert body["content"] == {"application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemView"}}}


def _has_example(content: dict[str, Any]) -> bool:
    schema = content["schema"]
    for part in (schema, *schema.get("anyOf", [])):
        if "$ref" in part and DOCUMENT["components"]["schemas"][part["$ref"].rpartition("/")[2]].get("examples"):
            return True
    return "example" in content or "examples" in content or "examples" in schema


def test_every_reference_leads_somewhere() -> None:
    """No schema is named that is not there."""
    names = {part.split('"')[0] for part in text().split("#/components/schemas/")[1:]}
    assert names <= set(DOCUMENT["components"]["schemas"])
    assert "HTTPValidationError" not in names


async def test_it_is_served(world: ApiWorld) -> None:
    """Without a token, as the committed file has it."""
    answer = await world.as_(None).get("/v1/openapi.json")
    assert answer.json() == DOCUMENT
