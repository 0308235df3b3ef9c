"""A whole gpuyard to measure: the real stack of `gpuyard-local` with simulated nodes, one tenant, and eyes on its events.

Everything is as durable as `make up` makes it. Nodes are simulated machines whose workloads are real processes.
"""

import asyncio
import json
import shutil
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from gpuyard_contracts.messages.billing import LedgerPostedV1
from gpuyard_contracts.messages.scheduler import JobRunningV1
from gpuyard_contracts.spec import JobSpec
from gpuyard_contracts.subjects import wildcard
from gpuyard_local import keepers
from gpuyard_local.stack import Stack
from gpuyard_runtime.bus import Bus

from bench.door import Door

TENANT = "bench"
NODES = {f"bench-{number}": "8xA100-80GB" for number in range(2)}
MANY = 10**9
SPEC = {"name": "bench", "command": ["/bin/true"], "gpu": "0.06", "cpu_milli": 100, "memory_mib": 16}
"""A program that ends at once, on so small a part of a card that the fleet has room for all jobs that are ever under way: what is measured
is gpuyard's own work, neither the workload's nor the number of simulated cards."""
_PLACE_OF_JOB = 7
"""The job in the subjects of events: the eighth token."""


@dataclass(frozen=True, slots=True)
class Stage:
    """The running stack and the tenant's token."""

    stack: Stack
    token: str

    @property
    def spec(self) -> JobSpec:
        """The job that is asked for."""
        return JobSpec.model_validate(SPEC)

    def now(self) -> datetime:
        """The present instant."""
        return datetime.now(UTC)

    async def doors(self, count: int) -> list[Door]:
        """Connections to the api."""
        return [await Door.open(self.stack.api_url, self.token) for _ in range(count)]

    @asynccontextmanager
    async def eyes(self) -> AsyncGenerator["Eyes"]:
        """See the tenant's jobs run and be paid, from now on."""
        bus = await self.stack.operator()
        try:
            found = Eyes(bus)
            await found.open()
            yield found
        finally:
            await bus.close()

    def programs(self) -> dict[str, int]:
        """By name, the pid of all that takes part in a job's life. The agents' keepers, with the workloads, stand for themselves."""
        return self.stack.pids() | {f"keeper-{number}": who.pid for number, who in enumerate(keepers.found(self.stack.layout))}


class Eyes:
    """When each job was seen to run and to be paid (seconds since 1970), as a tenant's own program on the bus would see it."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.running_at: dict[str, float] = {}
        self.started_at: dict[str, str] = {}
        self.paid_at: dict[str, float] = {}
        self.paid: Callable[[], None] = lambda: None
        self._changed = asyncio.Event()

    async def open(self) -> None:
        """Look from now on."""
        await self._bus.client.sink(wildcard(JobRunningV1.SUBJECT, tenant=TENANT), self._on_running)
        await self._bus.client.sink(wildcard(LedgerPostedV1.SUBJECT, tenant=TENANT), self._on_posted)
        await self._bus.client.flush()

    def _on_running(self, subject: bytes, reply: bytes, headers: bytes, body: bytes) -> None:
        job_id = subject.split(b".")[_PLACE_OF_JOB].decode()
        self.running_at.setdefault(job_id, time.time())
        self.started_at[job_id] = json.loads(body)["started_at"]
        self._changed.set()

    def _on_posted(self, subject: bytes, reply: bytes, headers: bytes, body: bytes) -> None:
        if b'"is_final":true' not in body:
            return
        job_id = subject.split(b".")[_PLACE_OF_JOB].decode()
        if job_id not in self.paid_at:
            self.paid_at[job_id] = time.time()
            self.paid()
            self._changed.set()

    async def until(self, is_true: Callable[[], bool]) -> None:
        """Wait until what was seen is enough."""
        while not is_true():
            self._changed.clear()
            await self._changed.wait()


@contextmanager
def a_stage() -> Generator[Stage]:
    """A stack in a temporary folder; nothing is left of it."""
    folder = Path(tempfile.mkdtemp(prefix="gpuyard-bench-"))
    stack = Stack(folder / "state", own_gpus=False, nodes=NODES)
    try:
        stack.start(seconds=120)
        yield Stage(stack, asyncio.run(_tenant(stack)))
    finally:
        stack.purge()
        shutil.rmtree(folder, ignore_errors=True)


async def _tenant(stack: Stack) -> str:
    """Make the tenant, without limits; returns its token."""
    door = await Door.open(stack.api_url, stack.admin_token)
    limits = {"tenant": TENANT, "sla": "gold", "max_waiting": MANY, "max_requests_per_minute": MANY}
    await door.ask("POST", "/v1/tenants", json.dumps(limits).encode())
    made = json.loads(await door.ask("POST", f"/v1/tenants/{TENANT}/tokens", b'{"name":"bench"}'))
    door.close()
    return str(made["token"])
