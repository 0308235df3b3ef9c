"""The api with a real bus, a real database and real HTTP around it; the test plays the other services."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import httpx
from gpuyard_api.app import Api
from gpuyard_api.settings import ApiSettings
from gpuyard_contracts.envelope import Payload, decode
from gpuyard_contracts.messages.requests import JobSubmitV1
from gpuyard_contracts.topology import durables_of
from gpuyard_contracts.types import job_id_of
from gpuyard_runtime.bootstrap import bootstrap
from gpuyard_runtime.bus import Bus, connect
from gpuyard_runtime.running import Running
from gpuyard_runtime.saying import enveloped
from gpuyard_runtime.settings import BusSettings
from pydantic import SecretStr

from tests.support.api_yard import queued
from tests.support.toy_stack import until


class ApiStack:
    """What a test holds: the running api, an operator's view of the bus, HTTP clients."""

    def __init__(self, folder: Path, url: str, dsn: str, operator: Bus) -> None:
        self.folder = folder
        self.operator = operator
        self.settings = ApiSettings(
            nats_url=url,
            postgres_dsn=SecretStr(dsn),
            api_port=0,
            api_port_file=folder / "api.port",
            admin_token_file=folder / "admin.token",
            drain_seconds=5.0,
        )
        self.dsn = dsn
        self.tokens: dict[str, str] = {}

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[Running[Any]]:
        """The api in this process, ready; drained at the end."""
        api = Api()
        port_file = self.folder / "api.port"
        port_file.unlink(missing_ok=True)
        made = Running(api.service(self.settings), self.settings)
        task = asyncio.create_task(made.serve(api.serve))
        try:
            await until("the api serves", lambda: task.done() or (port_file.exists() and made.health.is_ready))
            assert not task.done(), f"it ended with {task.result()}"
            self.tokens["admin"] = (self.folder / "admin.token").read_text().strip()
            yield made
        finally:
            made.stop()
            assert await task == 0

    def client(self, who: str = "admin") -> httpx.AsyncClient:
        """An HTTP client with someone's token."""
        port = (self.folder / "api.port").read_text()
        return httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers={"authorization": f"Bearer {self.tokens[who]}"}, timeout=60)

    async def tenant(self, name: str = "acme") -> None:
        """A tenant with a token."""
        async with self.client() as admin:
            assert (await admin.post("/v1/tenants", json={"tenant": name})).status_code == 201
            made = await admin.post(f"/v1/tenants/{name}/tokens", json={"name": "ci"})
            self.tokens[name] = made.json()["token"]

    async def tell(self, *payloads: Payload) -> None:
        """Another service says something."""
        for data in payloads:
            await self.operator.publish(enveloped(data, source="test", at=datetime.now(UTC), event_id=str(uuid4())))

    async def requests(self) -> list[JobSubmitV1]:
        """All job requests that lie on the bus."""
        info = await self.operator.api("STREAM.INFO.REQUESTS")
        found: list[JobSubmitV1] = []
        if info["state"]["messages"]:
            async for batch in self.operator.read("REQUESTS", ["gpuyard.req.*.job.submit.v1"], after=0):
                found += [_submit(each) for each in batch]
                if len(found) >= info["state"]["messages"]:
                    break
        return found

    async def accept_all(self) -> None:
        """Play a scheduler that takes every request, until cancelled."""
        async for batch in self.operator.read("REQUESTS", ["gpuyard.req.*.job.submit.v1"], after=0):
            for each in batch:
                submit = _submit(each)
                request_id = submit.request_id or ""
                await self.tell(queued(job_id_of(submit.tenant, request_id), submit.tenant, submit.spec, request_id, datetime.now(UTC)))

    async def query(self, sql: str, *args: Any) -> list[Any]:
        """Rows of a query in api's schema."""
        conn = await asyncpg.connect(self.dsn, server_settings={"search_path": "api"})
        try:
            return await conn.fetch(sql, *args)
        finally:
            await conn.close()


def _submit(delivery: Any) -> JobSubmitV1:
    data = decode(delivery.subject, delivery.headers, delivery.body, sequence=delivery.sequence, arrived=delivery.arrived).data
    assert isinstance(data, JobSubmitV1)
    return data


@asynccontextmanager
async def api_stack(folder: Path, url: str, dsn: str) -> AsyncGenerator[ApiStack]:
    """A bus with the topology's streams and api's durables, an empty database; the api is started by the test."""
    operator = await connect(BusSettings(nats_url=url), name="operator")
    await bootstrap(operator, durables=durables_of("api"))
    try:
        yield ApiStack(folder, url, dsn, operator)
    finally:
        await operator.close()


async def events_of(answer: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """The events of a live stream."""
    async for line in answer.aiter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))
