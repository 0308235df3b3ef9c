"""A whole agent as a process on a real bus, and a placement that only answers heartbeats and sends orders."""

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from gpuyard_contracts.envelope import Envelope, Payload, decode
from gpuyard_contracts.messages.asks import InjectFaultAskV1, InjectReplyV1
from gpuyard_contracts.messages.node import HeartbeatReplyV1, HeartbeatV1, LogLinesV1, WorkloadStartedV1
from gpuyard_contracts.messages.placement import RendezvousV1, StartV1, StopV1
from gpuyard_contracts.messages.scheduler import SliceV1
from gpuyard_contracts.spec import JobSpec
from gpuyard_contracts.topology import STREAMS, node_durable
from gpuyard_node_agent.backends.profiles import uuid_of
from gpuyard_node_agent.processes.keeping import end_everything
from gpuyard_runtime.asks import read_ask, write_answer
from gpuyard_runtime.bootstrap import bootstrap, ensure_durable
from gpuyard_runtime.bus import Bus, connect
from gpuyard_runtime.settings import BusSettings
from pydantic import SecretStr

P = TypeVar("P", bound=Payload)
T = TypeVar("T")

WAIT_SECONDS = 60.0
SPOKEN = ("EVT_NODE_AGENT", "USAGE", "HEALTH", "TELEMETRY", "LOGS")
JOB = "job-abcdefghijklmnop"
OTHER = "job-bbbbbbbbbbbbbbbb"


class Site:
    """One node with its agent, and everything that it says."""

    def __init__(self, folder: Path, url: str, node_id: str, *, password: str = "") -> None:
        self.folder = folder
        self.url = url
        self.node_id = node_id
        self.lease_ms = 30_000
        self.is_answering = True
        self.heard: list[HeartbeatV1] = []
        self.said: list[Envelope[Any]] = []
        self._password = password
        self._agents: list[asyncio.subprocess.Process] = []
        self._bus: Bus | None = None
        self._readers: list[asyncio.Task[None]] = []
        self._came = asyncio.Event()

    # -- placement's side

    async def open(self) -> None:
        """Streams, the node's durable, an ear for everything that the node says."""
        await self.connect(is_new=True)

    async def connect(self, *, is_new: bool = False) -> None:
        """Reach the bus and listen, from the streams' beginning."""
        user = "operator" if self._password else ""
        settings = BusSettings(nats_url=self.url, nats_user=user, nats_password=SecretStr(self._password))
        self._bus = await connect(settings, name="test")
        if is_new:
            await bootstrap(self._bus, streams=[stream for stream in STREAMS if stream.name in (*SPOKEN, "CMD_NODE")], durables=())
            await ensure_durable(self._bus, node_durable(self.node_id))
        await self._bus.answer(HeartbeatV1, self._on_heartbeat)
        self._readers = [asyncio.create_task(self._follow(name)) for name in SPOKEN]

    @property
    def bus(self) -> Bus:
        """The test's own connection."""
        assert self._bus is not None
        return self._bus

    def _on_heartbeat(self, subject: bytes, reply: bytes, headers: bytes, body: bytes) -> None:
        heartbeat = read_ask(HeartbeatV1, subject.decode(), body)
        assert isinstance(heartbeat, HeartbeatV1)
        if heartbeat.node_id == self.node_id:
            self.heard.append(heartbeat)
            if self.is_answering:
                self.bus.reply(reply, *write_answer(HeartbeatReplyV1(is_accepted=True, lease_ms=self.lease_ms, at=datetime.now(UTC))))
            self._came.set()

    async def _follow(self, stream: str) -> None:
        filters = [subject for found in STREAMS if found.name == stream for subject in found.subjects]
        async for batch in self.bus.read(stream, filters, after=0):
            for told in batch:
                event = decode(told.subject, told.headers, told.body, sequence=told.sequence, arrived=told.arrived)
                if getattr(event.data, "node_id", "") == self.node_id:
                    self.said.append(event)
            self._came.set()

    async def order(self, script: str, *, job: str = JOB, attempt: int = 1, gpus: tuple[int, ...] = (0,), **spec: Any) -> None:
        """Start a shell script."""
        command = spec.pop("command", ("/bin/sh", "-c", script))
        payload = StartV1(
            node_id=self.node_id,
            tenant="acme",
            job_id=job,
            allocation_id=f"{job}-{attempt}",
            attempt=attempt,
            spec=JobSpec(name="x", command=command, **spec),
            slices=tuple(SliceV1(gpu_uuid=uuid_of(self.node_id, index), milli=1000, memory_mib=15_360) for index in gpus),
            rendezvous=RendezvousV1(rank=0, world_size=1, local_rank=0, local_world_size=1, master_addr="127.0.0.1", master_port=20000),
            issued_at=datetime.now(UTC),
        )
        await self.publish(payload)

    async def stop(self, *, job: str = JOB, attempt: int = 1, grace_ms: int = 5_000) -> None:
        """Stop a job."""
        payload = StopV1(
            node_id=self.node_id,
            tenant="acme",
            job_id=job,
            allocation_id=f"{job}-{attempt}",
            attempt=attempt,
            rank=0,
            grace_ms=grace_ms,
            reason="told to",
            issued_at=datetime.now(UTC),
        )
        await self.publish(payload)

    async def publish(self, payload: Payload) -> None:
        """An order, as placement says it."""
        await self.bus.publish(
            Envelope(id=str(uuid4()), source="placement", time=datetime.now(UTC), data=payload, subject=payload.subject())
        )

    async def inject(self, fault: Any, *, gpu: str | None = None, value: int | None = None) -> None:
        """Make a simulated card or the node misbehave."""
        reply: InjectReplyV1 = await self.bus.ask(InjectFaultAskV1(node_id=self.node_id, fault=fault, gpu=gpu, value=value))
        assert reply.is_done, reply.detail

    # -- what is seen

    async def until(self, what: str, look: Callable[[], T]) -> T:
        """Look, whenever something came, until it is so."""
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while not (found := look()):
                    self._came.clear()
                    await asyncio.wait([asyncio.ensure_future(self._came.wait())], timeout=0.2)
                return found
        except TimeoutError:
            raise AssertionError(f"{what}: not within {WAIT_SECONDS:.0f} s; said: {Counter(event.type for event in self.said)}") from None

    async def hear(self, kind: type[P], when: Callable[[P], bool] = lambda _: True) -> P:
        """The first message of its kind that is so."""
        return (await self.until(kind.__name__, lambda: [found for found in self.all(kind) if when(found)]))[0]

    def all(self, kind: type[P]) -> list[P]:
        """All messages of a kind so far."""
        return [event.data for event in self.said if isinstance(event.data, kind)]

    def printed(self, job: str = JOB) -> list[str]:
        """What a job has printed, as it came over the bus."""
        return [line for message in self.all(LogLinesV1) if message.job_id == job for line in message.lines]

    async def started(self, job: str = JOB) -> int:
        """The pid of a job that runs."""
        return (await self.hear(WorkloadStartedV1, lambda told: told.job_id == job)).pid

    # -- the agent

    async def start_agent(self, **settings: str) -> asyncio.subprocess.Process:
        """A new agent on the node's folder."""
        environment = {
            "PATH": os.environ["PATH"],
            "GPUYARD_NATS_URL": self.url,
            "GPUYARD_NODE_ID": self.node_id,
            "GPUYARD_STATE_DIR": str(self.folder / "state"),
            "GPUYARD_CHECKPOINT_ROOT": str(self.folder / "checkpoints"),
            "GPUYARD_BACKEND": "simulated",
            "GPUYARD_PROFILE": "4xT4",
            "GPUYARD_HEARTBEAT_SECONDS": "0.1",
            "GPUYARD_TELEMETRY_SECONDS": "0.2",
            "GPUYARD_USAGE_SECONDS": "0.2",
            "GPUYARD_OBSERVE_DEADLINE_SECONDS": "0.3",
            "GPUYARD_START_PATIENCE_SECONDS": "1",
            "GPUYARD_HTTP_PORT_FILE": str(self.folder / "port"),
            "A_SECRET_OF_THE_AGENT": "hidden",
            **settings,
        }
        if self._password:
            environment |= {"GPUYARD_NATS_USER": f"node-{self.node_id}", "GPUYARD_NATS_PASSWORD": self._password}
        with (self.folder / "agent.log").open("ab") as log:
            agent = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "gpuyard_node_agent", env=environment, stderr=log, start_new_session=True
            )
        self._agents.append(agent)
        return agent

    async def working_agent(self, **settings: str) -> asyncio.subprocess.Process:
        """A new agent that has sent its first heartbeat."""
        before = {heartbeat.agent_id for heartbeat in self.heard}
        agent = await self.start_agent(**settings)
        await self.until("a heartbeat", lambda: [heartbeat for heartbeat in self.heard if heartbeat.agent_id not in before])
        return agent

    async def kill(self, agent: asyncio.subprocess.Process, number: int = signal.SIGKILL) -> int:
        """Signal the agent; its exit status."""
        agent.send_signal(number)
        async with asyncio.timeout(WAIT_SECONDS):
            return await agent.wait()

    async def close(self) -> None:
        """Kill the agent and all that runs."""
        for agent in self._agents:
            if agent.returncode is None:
                await self.kill(agent)
        await end_everything(self.folder / "state" / "keeper", grace_ms=0)
        await self.disconnect()

    async def disconnect(self) -> None:
        """Leave the bus."""
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)
        if self._bus is not None:
            await self._bus.close()
            self._bus = None
