"""The api on the memory harness: its real app and its real service, without processes."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

import httpx
from gpuyard_api import acts
from gpuyard_api.app import make_service
from gpuyard_api.domain.secret import token_of
from gpuyard_api.http.context import Pace, Yard
from gpuyard_api.hub import Hub
from gpuyard_api.memory_reads import MemoryReads
from gpuyard_api.store import ApiStore
from gpuyard_api.web import routes, web
from gpuyard_contracts.envelope import Ask, Shape
from gpuyard_contracts.messages.node import LogLinesV1
from gpuyard_contracts.messages.placement import GpuV1, HoldV1, NodeFactsV1, NodeStateV1
from gpuyard_contracts.messages.requests import JobSubmitV1
from gpuyard_contracts.messages.scheduler import JobEndedV1, JobPlacingV1, JobQueuedV1, JobRejectedV1, JobRunningV1, RankPlanV1, SliceV1
from gpuyard_contracts.spec import JobSpec
from gpuyard_contracts.types import job_id_of
from gpuyard_runtime.faults import Unavailable
from gpuyard_runtime.service import Tx
from gpuyard_runtime.testing import Harness

T = TypeVar("T")

ADMIN = token_of(b"admin".ljust(32, b"-"))
SPEC: dict[str, Any] = {"name": "train", "command": ["python", "train.py"]}
GPU = "GPU-0001"
ROUTES = routes()
"""Made once: building them takes longer than most tests. Each world puts its own yard in."""
QUICK = Pace(act=0.5, ask=0.5, verify=0.5, check=0.01, heartbeat=0.02, log_end=0.0)


@dataclass
class HarnessEngine:
    """The engine over a harness. `answers` are the other services' answers by ask; `batches` is what logs give."""

    harness: Harness[ApiStore]
    answers: dict[type[Ask], Shape | Exception] = field(default_factory=dict)
    asked: list[Ask] = field(default_factory=list)
    batches: list[Sequence[LogLinesV1]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    is_hung: bool = False

    @property
    def store(self) -> ApiStore:
        return self.harness.store

    async def act(self, fn: Callable[[Tx[ApiStore]], T], *, traceparent: str | None = None) -> T:
        if self.is_hung:
            raise Unavailable("database")
        return self.harness.act(fn, traceparent=traceparent)

    async def ask(self, ask: Ask, *, seconds: float) -> Shape:
        self.asked.append(ask)
        answer = self.answers.get(type(ask), Unavailable("nobody answers"))
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def logs(self, tenant: str, job_id: str, rank: int | None, *, is_following: bool) -> AsyncIterator[Sequence[LogLinesV1]]:
        for batch in self.batches:
            wanted = [message for message in batch if message.job_id == job_id and rank in (None, message.rank)]
            if batch or is_following:
                yield wanted

    def now(self) -> datetime:
        return self.harness.clock.now()

    def complaints(self) -> list[str]:
        return self.reasons


class ApiWorld:
    """One api with an operator and the tenants ``acme`` and ``beta``; `world.as_("acme")` is an HTTP client with their token."""

    def __init__(self, pace: Pace = QUICK) -> None:
        self.hub = Hub()
        self.pruned: list[datetime] = []

        async def prune(before: datetime) -> None:
            self.pruned.append(before)

        self.harness: Harness[ApiStore] = Harness(make_service(self.hub, prune))
        self.engine = HarnessEngine(self.harness)
        self.reads = MemoryReads(lambda name: [*self.harness.database.tables.get(name, {}).values(), *self.harness.journal(name)])
        self.yard = Yard(self.engine, self.reads, self.hub, pace)
        self.app = web(self.yard, app=ROUTES)
        self.tokens = {"admin": ADMIN}
        self.harness.act(acts.first_operator(ADMIN))
        self._clients: list[httpx.AsyncClient] = []

    async def open(self) -> "ApiWorld":
        for tenant in ("acme", "beta"):
            admin = self.as_("admin")
            assert (await admin.post("/v1/tenants", json={"tenant": tenant})).status_code == 201
            made = await admin.post(f"/v1/tenants/{tenant}/tokens", json={"name": "ci"})
            self.tokens[tenant] = made.json()["token"]
        return self

    def as_(self, who: str | None) -> httpx.AsyncClient:
        headers = {} if who is None else {"authorization": f"Bearer {self.tokens.get(who, who)}"}
        client = httpx.AsyncClient(transport=httpx.ASGITransport(app=self.app), base_url="http://api", headers=headers)
        self._clients.append(client)
        return client

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()

    # What the other services tell.

    def submitted(self) -> list[JobSubmitV1]:
        return self.harness.said_of(JobSubmitV1)

    def accept(self, submit: JobSubmitV1) -> str:
        """The scheduler takes a request."""
        job_id = job_id_of(submit.tenant, submit.request_id or "")
        self.harness.feed(queued(job_id, submit.tenant, submit.spec, submit.request_id or "", self.harness.clock.now()))
        return job_id

    def reject(self, submit: JobSubmitV1, reason: Any = "never-fits", detail: str = "no node has 900 GPUs") -> None:
        """The scheduler does not take a request."""
        job_id = job_id_of(submit.tenant, submit.request_id or "")
        self.harness.feed(
            JobRejectedV1(tenant=submit.tenant, job_id=job_id, request_id=submit.request_id or "", reason=reason, detail=detail)
        )

    async def job(self, tenant: str = "acme", **spec: Any) -> str:
        """A job that was asked for and taken."""
        answer = await self.as_(tenant).post("/v1/jobs", json=SPEC | spec)
        assert answer.status_code == 202, answer.text
        return self.accept(self.submitted()[-1])

    def run(self, job_id: str, tenant: str = "acme", node: str = "a100-01") -> None:
        now = self.harness.clock.now()
        self.harness.feed(placing(job_id, tenant, now, node), JobRunningV1(tenant=tenant, job_id=job_id, attempt=1, started_at=now))

    def end(self, job_id: str, tenant: str = "acme") -> None:
        self.harness.feed(ended(job_id, tenant, self.harness.clock.now()))


def queued(job_id: str, tenant: str, spec: JobSpec, request_id: str, at: datetime) -> JobQueuedV1:
    return JobQueuedV1(tenant=tenant, job_id=job_id, request_id=request_id, spec=spec, submitted_at=at)


def placing(job_id: str, tenant: str, at: datetime, node: str = "a100-01") -> JobPlacingV1:
    part = SliceV1(gpu_uuid=GPU, milli=1000, memory_mib=81920)
    plan = RankPlanV1(rank=0, node_id=node, slices=(part,), cpu_milli=1000, memory_mib=1024)
    return JobPlacingV1(tenant=tenant, job_id=job_id, attempt=1, ranks=(plan,), at=at)


def ended(job_id: str, tenant: str, at: datetime) -> JobEndedV1:
    return JobEndedV1(tenant=tenant, job_id=job_id, attempt=1, state="succeeded", reason="completed", detail="", exit_code=0, at=at)


def node_state(node_id: str = "a100-01", *, version: int = 1, at: datetime, holds: tuple[HoldV1, ...] = (), **changes: Any) -> NodeStateV1:
    facts = NodeFactsV1(
        display_name="Regal 4, Größe L",
        address="127.0.0.1",
        gpus=(GpuV1(uuid=GPU, model="A100-80GB", memory_mib=81920, index=0),),
        cpu_milli=64000,
        memory_mib=524288,
    )
    return NodeStateV1(
        **{"node_id": node_id, "version": version, "status": "ready", "facts": facts, "holds": holds, "last_heard_at": at} | changes
    )
