"""A tenant's own user on the bus: may publish its job requests and hear its own events, nothing else."""

import asyncio
import http.client
import json
import time
from pathlib import Path
from urllib.parse import quote, urlsplit

from gpuyard_local import bus_config
from gpuyard_local import facts as remembered
from gpuyard_local.stack import Stack


class NoSuchTenant(Exception):
    """The api does not know the tenant."""


def add_bus_user(stack: Stack, tenant: str) -> Path:
    """Give the tenant a user on the bus. Returns the file with its credentials.

    Raises :class:`NoSuchTenant`, OSError where the api or the bus does not answer, and NotRunning.
    """
    if not exists(stack, tenant):
        raise NoSuchTenant(f"there is no tenant {tenant!r}; `gpuyard tenant create {tenant}` makes it")
    facts = stack.facts.with_tenant(tenant)
    remembered.save(stack.layout, facts)
    stack.reload_bus(facts)
    user = f"tenant-{tenant}"
    path = bus_config.write_credentials(stack.layout, user, url=stack.nats_url)
    asyncio.run(_until_taken(stack, user))
    return path


def exists(stack: Stack, tenant: str) -> bool:
    """Whether the api knows the tenant."""
    place = urlsplit(stack.api_url)
    conn = http.client.HTTPConnection(str(place.hostname), place.port, timeout=10)
    try:
        conn.request("GET", f"/v1/tenants/{quote(tenant, safe='')}", headers={"Authorization": f"Bearer {stack.admin_token}"})
        answer = conn.getresponse()
        content = answer.read(1_000_000)
    finally:
        conn.close()
    if answer.status in (404, 422):
        return False
    if answer.status != 200:
        raise OSError(f"the api answered {answer.status} when asked for the tenant")
    return bool(json.loads(content))


async def _until_taken(stack: Stack, user: str, *, seconds: float = 10.0) -> None:
    """Wait until the server takes the new user. Raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            bus = await stack.bus(user)
        except Exception as error:  # nats-py has no one class for a refused login
            if "authorization" not in str(error).lower():
                raise
            if time.monotonic() > deadline:
                raise TimeoutError(f"the bus did not take up {user}; see `gpuyard-local logs nats`") from None
            await asyncio.sleep(0.05)
        else:
            await bus.close()
            return
