"""Write what is generated from the contracts: ``python -m gpuyard_contracts FOLDER_OF_DOCS FOLDER_OF_SCHEMAS``."""

import sys
from pathlib import Path

from gpuyard_contracts import catalog
from gpuyard_contracts.asyncapi import as_json, document, page, schema


def write(docs: Path, schemas: Path) -> None:
    """Write ``asyncapi.json`` and ``events.md`` into `docs` and one golden schema for each message into `schemas`."""
    docs.mkdir(parents=True, exist_ok=True)
    schemas.mkdir(parents=True, exist_ok=True)
    (docs / "asyncapi.json").write_text(as_json(document()), encoding="utf-8")
    (docs / "events.md").write_text(page(), encoding="utf-8")
    for kind in (*catalog.PAYLOADS, *catalog.ASKS):
        (schemas / f"{kind.TYPE}.json").write_text(as_json(schema(kind)), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.argv[2]))
