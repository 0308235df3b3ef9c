"""One api in memory for each test, with an operator and two tenants."""

from collections.abc import AsyncIterator

import pytest

from tests.support.api_yard import ApiWorld


@pytest.fixture
async def world() -> AsyncIterator[ApiWorld]:
    made = await ApiWorld().open()
    yield made
    await made.close()
