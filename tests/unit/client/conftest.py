"""The memory api, and the command run against it."""

from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.unit.client.client_api import Api


@pytest.fixture
def api() -> Api:
    """An api in memory."""
    return Api()


@pytest.fixture
def run(api: Api, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Runs the `gpuyard` command against the memory api; gives its result (`exit_code`, `stdout`, `stderr`)."""
    from gpuyard.cli.main import build

    monkeypatch.setattr("gpuyard.client.Client", api.patched())
    monkeypatch.setattr("gpuyard.checkup.Client", api.patched())
    for name in ("GPUYARD_URL", "GPUYARD_TOKEN", "GPUYARD_TOKEN_FILE", "GPUYARD_TENANT", "GPUYARD_DEBUG", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    app = build()
    return lambda *arguments, **given: CliRunner().invoke(app, [str(part) for part in arguments], **given)
