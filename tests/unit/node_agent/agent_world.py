"""A node without processes, cards and bus: real journal and decisions, the rest in memory. An agent can be killed and started again."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from gpuyard_contracts.envelope import Envelope, Payload
from gpuyard_contracts.messages.placement import RendezvousV1, StartV1, StopV1
from gpuyard_contracts.messages.scheduler import SliceV1
from gpuyard_contracts.spec import JobSpec
from gpuyard_node_agent import handlers, mapping
from gpuyard_node_agent.domain.admission import Refused
from gpuyard_node_agent.domain.lease import Lease
from gpuyard_node_agent.domain.model import Card, Machine, Order
from gpuyard_node_agent.journal import Journal
from gpuyard_node_agent.node import Node
from gpuyard_node_agent.ports import Launch, Survey
from gpuyard_node_agent.processes.memory import MemoryProcesses
from gpuyard_node_agent.store import NodeStore

P = TypeVar("P", bound=Payload)

NODE = "n1"
BOOT = "boot-1"
START = datetime(2030, 1, 1, tzinfo=UTC)
JOB = "job-abcdefghijklmnop"
OTHER = "job-bbbbbbbbbbbbbbbb"
CARDS = tuple(Card(uuid=f"GPU-{index}", model="T4", memory_mib=16_000, index=index) for index in range(4))


class HandClock:
    """Both clocks, moved by hand."""

    def __init__(self) -> None:
        self.at_ms = 1_000_000

    def now(self) -> datetime:
        """The instant."""
        return START + timedelta(milliseconds=self.at_ms - 1_000_000)

    def ms(self) -> int:
        """The boot clock."""
        return self.at_ms


class Way:
    """The way out: remembers what was put, in order."""

    def __init__(self, store: NodeStore) -> None:
        self.put_events: list[Envelope[Any]] = []
        self.befores: list[Callable[[], Awaitable[None]]] = []
        self.store = store

    def put(self, lane: str, event: Envelope[Any], before: Callable[[], Awaitable[None]] | None = None) -> None:
        """Remember."""
        self.put_events.append(event)
        if before is not None:
            self.befores.append(before)


@dataclass
class Disk:
    """Folders that are not made. `refusals`: programs that are refused."""

    refusals: dict[str, Refused] = field(default_factory=dict[str, Refused])
    left: list[str] = field(default_factory=list[str])

    def prepare(self, order: Order, uid: int | None) -> Launch | Refused:
        """What to launch."""
        if order.command[0] in self.refusals:
            return self.refusals[order.command[0]]
        return Launch(order.key, order.command[0], order.command, {}, "/", "/out", "/err", 1024, uid)

    def caps_of(self, key: str) -> dict[str, int]:
        """No files."""
        return {}

    def leave(self, order: Order, uid: int | None, *, is_alone: bool) -> None:
        """Remember."""
        self.left.append(order.key)


class Silent:
    """Workloads that print one line of error."""

    def follow(self, order: Order) -> None:
        """Nothing to follow."""

    def last_words(self, key: str) -> str:
        """The one line."""
        return "it broke"

    def finish(self, key: str) -> Callable[[], Awaitable[None]] | None:
        """Nothing is left."""
        return None


class World:
    """One node. `agent` is the living one; `kill` leaves the journal and the keeper, `start` makes the next agent from them."""

    def __init__(self, folder: Path, *, lease_ms: int | None = 60_000, machine: Machine | None = None) -> None:
        self.folder = folder
        self.clock = HandClock()
        self.keeper = MemoryProcesses(self.clock)
        self.disk = Disk()
        self.boot = BOOT
        self.machine = machine or Machine(CARDS, 16_000, 64_000)
        self.agent: Node
        self.way: Way
        self.start()
        if lease_ms is not None:
            self.lease(lease_ms)

    def start(self, *, finds_cards: bool = True) -> None:
        """The next agent: reads the journal, hears the keeper's survey."""
        store = NodeStore(Journal(self.folder / "journal"), self.boot)
        store.load()
        self.way = Way(store)
        self.agent = Node(
            node_id=NODE,
            boot_id=self.boot,
            store=store,
            runtime=self.keeper,
            outlet=self.way,
            workspace=self.disk,
            outputs=Silent(),
            clock=self.clock,
            machine=self.machine if finds_cards else None,
        )
        survey = self._open()
        handlers.recover(survey, self.agent)
        self.deliver()

    def _open(self) -> Survey:
        opening = self.keeper.open(lambda seen: handlers.on_seen(seen, self.agent))
        try:
            opening.send(None)
        except StopIteration as done:
            return done.value
        raise AssertionError("it does not wait")

    def kill(self) -> None:
        """kill -9: what the journal has not is lost."""
        self.agent.store.journal.close()

    def restart(self) -> None:
        """Kill, and start the next one."""
        self.kill()
        self.start()

    def lease(self, lease_ms: int) -> None:
        """A lease, as placement's answer gives it."""
        until = self.clock.ms() + lease_ms
        self.agent.store.lease_is(Lease(until, self.agent.store.lease.horizon))
        self.keeper.renew(until)

    def deliver(self) -> None:
        """Let the agent hear everything."""
        while self.keeper.deliver():
            pass

    def order(
        self,
        job: str = JOB,
        attempt: int = 1,
        *,
        gpus: tuple[int, ...] = (0,),
        milli: int = 1000,
        share_mib: int | None = None,
        issued_at: datetime | None = None,
        **spec: Any,
    ) -> Envelope[StartV1]:
        """A start order."""
        slices = tuple(SliceV1(gpu_uuid=f"GPU-{index}", milli=milli, memory_mib=share_mib or milli * 16) for index in gpus)
        command = spec.pop("command", ("/bin/true",))
        payload = StartV1(
            node_id=NODE,
            tenant="acme",
            job_id=job,
            allocation_id=f"{job}-{attempt}",
            attempt=attempt,
            spec=JobSpec(name="x", command=command, **spec),
            slices=slices,
            rendezvous=RendezvousV1(rank=0, world_size=1, local_rank=0, local_world_size=1, master_addr="127.0.0.1", master_port=20000),
            issued_at=issued_at or self.clock.now(),
        )
        return Envelope(id=f"order-{job}-{attempt}", source="placement", time=self.clock.now(), data=payload)

    def ask_start(self, order: Envelope[StartV1]) -> None:
        """The order comes."""
        handlers.on_start_ordered(mapping.order_of(order.data, order), self.agent)

    def run(self, job: str = JOB, attempt: int = 1, **order: Any) -> str:
        """Order and start; its key."""
        self.ask_start(self.order(job, attempt, **order))
        self.deliver()
        return f"{job}-{attempt}.0"

    def ask_stop(self, job: str = JOB, attempt: int = 1, *, grace_ms: int = 1000) -> None:
        """A stop comes."""
        payload = StopV1(
            node_id=NODE,
            tenant="acme",
            job_id=job,
            allocation_id=f"{job}-{attempt}",
            attempt=attempt,
            rank=0,
            grace_ms=grace_ms,
            reason="told to",
            issued_at=self.clock.now(),
        )
        event = Envelope(id=f"stop-{job}-{attempt}", source="placement", time=self.clock.now(), data=payload)
        handlers.on_stop_ordered(payload, event, self.agent)

    def end(self, key: str, **how: Any) -> None:
        """A process ends, and the agent hears of it."""
        self.keeper.end(key, **how)
        self.deliver()

    def said(self, kind: type[P]) -> list[P]:
        """What this agent has put on its way, of one kind."""
        return [event.data for event in self.way.put_events if isinstance(event.data, kind)]

    def unsaid(self, kind: type[P]) -> list[P]:
        """What the journal still has to say, of one kind."""
        return [event.data for _, event in self.agent.store.unsaid.values() if isinstance(event.data, kind)]
