"""One real stack for the end-to-end tests: every process, on loopback, in a temporary folder."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpuyard import Client
from gpuyard_local.stack import Stack

from tests.support.yard import Yard


@pytest.fixture(scope="session")
def yard() -> Iterator[Yard]:
    """The stack with two tenants. Tests use jobs of their own and leave nothing cordoned or running."""
    folder = Path(tempfile.mkdtemp(prefix="gpuyard-e2e-"))
    stack = Stack(folder / "state", own_gpus=False)
    try:
        stack.start(seconds=120)
        admin = Client(url=stack.api_url, token=stack.admin_token)
        admin.create_tenant("acme", name="Acme", sla="gold", weight=300)
        admin.create_tenant("beta", name="Beta", sla="bronze", quota_gpu_milli=2000)
        tokens = {tenant: str(admin.create_token(tenant)["token"]) for tenant in ("acme", "beta")}
        with admin, Yard(stack=stack, admin=admin, tokens=tokens, folder=folder) as made:
            yield made
    finally:
        stack.purge()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def _e2e(request: pytest.FixtureRequest) -> None:
    """Everything here is marked, so that `-m "not e2e"` leaves it out."""
    assert request.node.get_closest_marker("e2e"), "put `pytestmark = pytest.mark.e2e` at the top of the module"
