"""A running stack as the end-to-end tests use it: clients, small jobs, waiting for conditions."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx
from gpuyard import Client
from gpuyard.results import Job
from gpuyard_local import tenants
from gpuyard_local.stack import Stack

T = TypeVar("T")

WAIT_SECONDS = 90.0


@dataclass
class Yard:
    """The stack, its administrator and its tenants."""

    stack: Stack
    admin: Client
    tokens: dict[str, str]
    folder: Path
    _clients: dict[str, Client] = field(default_factory=dict[str, Client])
    _names: int = 0

    def __enter__(self) -> "Yard":
        return self

    def __exit__(self, *error: object) -> None:
        for client in self._clients.values():
            client.close()

    def client(self, tenant: str) -> Client:
        """A tenant's client."""
        if tenant not in self._clients:
            self._clients[tenant] = Client(url=self.stack.api_url, token=self.tokens[tenant])
        return self._clients[tenant]

    def tally(self) -> Path:
        """A new empty file for jobs to write into."""
        self._names += 1
        path = self.folder / f"tally-{self._names}"
        path.touch()
        return path

    def shell(self, script: str, *, tenant: str = "acme", gpu: str = "A100:1", name: str = "", **spec: Any) -> Job:
        """Submit a small shell job."""
        self._names += 1
        spec = {"cpu_milli": 100, "memory_mib": 64, "wait_seconds": 0, **spec}
        return self.client(tenant).submit(name or f"job-{self._names}", ["/bin/sh", "-c", script], gpu=gpu, **spec)

    def until(self, what: str, look: Callable[[], T], when: Callable[[T], bool] = bool, *, seconds: float = WAIT_SECONDS) -> T:
        """Look until it is as wanted; the test fails after `seconds`. An api that is away for a moment is asked again."""
        deadline = time.monotonic() + seconds
        found: Any = None
        while time.monotonic() < deadline:
            found = look()
            if when(found):
                return found
            time.sleep(0.05)
        raise AssertionError(f"{what}: not within {seconds:.0f} s; last seen: {found!r}")

    def ended(self, job: Job | str, *, tenant: str = "acme") -> Job:
        """The job once it has ended."""
        return self.client(tenant).wait(job if isinstance(job, str) else job.job_id, timeout_seconds=WAIT_SECONDS)

    def running(self, job: Job | str, *, tenant: str = "acme") -> Job:
        """The job once it runs."""
        job_id = job if isinstance(job, str) else job.job_id
        found = self.client(tenant).wait(job_id, until=lambda seen: seen.is_ended or seen.state == "running", timeout_seconds=WAIT_SECONDS)
        assert found.state == "running", f"{found.name} is {found.state}: {found.reason}: {found.detail}"
        return found

    def log(self, job: Job, *, tenant: str = "acme") -> str:
        """What a job has written so far."""
        return "\n".join(line.text for line in self.client(tenant).logs(job.job_id))

    def unready(self, program: str) -> str:
        """What a program's /readyz says while it is not ready; empty when it is."""
        answer = httpx.get(f"http://127.0.0.1:{self.stack.health_ports()[program]}/readyz", timeout=10)
        return "" if answer.status_code == 200 else answer.text

    def nothing_is_held(self) -> None:
        """Every card is free in the end: nothing leaks."""
        self.until("free cards", self.admin.gpus, lambda gpus: all(gpu.used_milli == 0 and not gpu.holders for gpu in gpus))

    def ran_once(self, tally: Path, jobs: list[Job]) -> None:
        """Each job wrote its id exactly once."""
        assert Counter(tally.read_text().split()) == Counter(job.job_id for job in jobs)

    def money_is_right(self) -> None:
        """All bills are final, and the ledger is what the events say."""
        for tenant in self.tokens:
            self.until(
                f"{tenant}'s bills",
                lambda tenant=tenant: self.client(tenant).usage(limit=500).rows,
                lambda rows: all(row.is_final for row in rows),
            )
        report = self.until("the verification", self.admin.verify_ledger, lambda found: found.is_right, seconds=30)
        assert report.ledger_micros == report.expected_micros

    def bus_credentials(self, tenant: str) -> Path:
        """A tenant's own credentials on the bus."""
        return tenants.add_bus_user(self.stack, tenant)

    def publish(self, subject: str, body: bytes, headers: dict[str, str] | None = None) -> None:
        """Publish as the operator: whatever a test wants to put on the bus."""
        asyncio.run(self._publish(subject, body, headers))

    async def _publish(self, subject: str, body: bytes, headers: dict[str, str] | None) -> None:
        bus = await self.stack.bus()
        await bus.jetstream().publish(subject, body, headers=headers)
        await bus.close()
