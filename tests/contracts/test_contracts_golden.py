"""What is committed of the contracts is what the code says; and old bodies can still be read."""

import json
from pathlib import Path

import pytest
from gpuyard_contracts import catalog
from gpuyard_contracts.asyncapi import as_json, document, page, schema

ROOT = Path(__file__).parents[2]
SCHEMAS = ROOT / "libs/contracts/schemas"
BODIES = ROOT / "libs/contracts/bodies"
KINDS = (*catalog.PAYLOADS, *catalog.ASKS)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.TYPE)
def test_the_golden_schema_is_the_class(kind) -> None:
    """A change of a message is seen as a change of its committed schema; `make docs` writes it."""
    assert (SCHEMAS / f"{kind.TYPE}.json").read_text(encoding="utf-8") == as_json(schema(kind))


def test_no_golden_schema_is_left_over() -> None:
    """A message that is gone takes its schema with it."""
    assert {path.stem for path in SCHEMAS.glob("*.json")} == {kind.TYPE for kind in KINDS}


def test_the_documents_are_current() -> None:
    """docs/asyncapi.json and docs/events.md are generated; `make docs` writes them."""
    assert (ROOT / "docs/asyncapi.json").read_text(encoding="utf-8") == as_json(document())
    assert (ROOT / "docs/events.md").read_text(encoding="utf-8") == page()


@pytest.mark.parametrize("kind", catalog.PAYLOADS, ids=lambda kind: kind.TYPE)
def test_a_body_written_by_version_one_is_still_read(kind) -> None:
    """Every published message has a golden body, never changed after its release: today's class must read it and lose nothing of it."""
    body = json.loads((BODIES / f"{kind.TYPE}.json").read_text(encoding="utf-8"))
    read = kind.model_validate(body)
    again = json.loads(read.model_dump_json(exclude_none=True))
    missing = {name for name in body if name not in again}
    assert not missing
    assert kind.model_validate(again) == read
    assert read.subject().startswith("gpuyard.")


def test_no_golden_body_is_left_over() -> None:
    """Every golden body belongs to a message."""
    assert {path.stem for path in BODIES.glob("*.json")} == {kind.TYPE for kind in catalog.PAYLOADS}
