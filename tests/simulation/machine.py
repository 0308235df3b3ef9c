"""A machine of the simulation: its cards, and what truly runs on it.

This is the truth that the checkers hold everything else against. A process ends by itself, by a stop, when the lease of its keeper is
over or when the machine loses its power; each at its own instant of virtual time, however late anybody looks. The keeper (which starts,
stops and fences) outlives the agent, as the real one does; a reboot ends both.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from gpuyard_contracts.messages.placement import GpuV1, NodeFactsV1, StartV1

NO_SUCH_PROGRAM = "no-such-program"


def after(at: datetime, seconds: float) -> datetime:
    """So many seconds later, to the millisecond."""
    return at + timedelta(milliseconds=round(seconds * 1000))


@dataclass(frozen=True, slots=True)
class Program:
    """What a simulated command does: run for so long (None: until it is stopped), then exit with `code`.

    `fails`: this rank alone exits with 1 after half of the time. `fails_first`: the first attempt exits with 1. `is_stubborn`: it ignores
    the request to stop and is killed after its grace.
    """

    seconds: float | None
    code: int = 0
    fails: int | None = None
    fails_first: bool = False
    is_stubborn: bool = False

    def command(self) -> list[str]:
        """The program as a job's command."""
        fails = "-" if self.fails is None else str(self.fails)
        return ["sim", str(self.seconds), str(self.code), fails, str(int(self.fails_first)), str(int(self.is_stubborn))]

    @classmethod
    def of(cls, command: Sequence[str]) -> "Program":
        """The program in a command."""
        _, seconds, code, fails, first, stubborn = command
        return cls(
            None if seconds == "None" else float(seconds),
            int(code),
            None if fails == "-" else int(fails),
            fails_first=first == "1",
            is_stubborn=stubborn == "1",
        )

    def outcome(self, rank: int, attempt: int) -> tuple[float | None, int]:
        """How long this rank of this attempt runs, and its exit code."""
        if self.fails == rank:
            return (self.seconds or 2.0) / 2, 1
        if self.fails_first and attempt == 1:
            return 1.0, 1
        return self.seconds, self.code


@dataclass(slots=True)
class Card:
    """One card. `is_lost`: it fell off the bus; it may come back."""

    uuid: str
    model: str
    memory_mib: int
    is_shared: bool = True
    temperature_c: int = 40
    is_lost: bool = False


@dataclass(slots=True)
class Process:
    """One process, true to the instant. `how` it ended: exited, stopped, fenced, died (with its machine, seen by nobody)."""

    key: str
    order: StartV1
    pid: int
    started_at: datetime
    ends_at: datetime | None
    code: int
    is_stubborn: bool
    stop_at: datetime | None = None
    ended_at: datetime | None = None
    how: str = ""

    @property
    def rank(self) -> int:
        """Its rank in the gang."""
        return self.order.rendezvous.rank

    @property
    def is_clean(self) -> bool:
        """It came to a good end by itself."""
        return self.how == "exited" and self.code == 0

    def end(self, how: str, at: datetime) -> None:
        """It is gone."""
        self.how, self.ended_at = how, at


def key_of(allocation_id: str, rank: int) -> str:
    """What names one rank of one attempt."""
    return f"{allocation_id}.{rank}"


@dataclass
class Machine:
    """Hardware and keeper. `running` by key; `gone`: ended, and the keeper still knows how; `ever`: every process that was ever started."""

    node_id: str
    cards: tuple[Card, ...]
    cpu_milli: int
    memory_mib: int
    zone: str = "default"
    boots: int = 1
    is_on: bool = True
    lease_until: datetime | None = None
    running: dict[str, Process] = field(default_factory=dict[str, Process])
    gone: dict[str, Process] = field(default_factory=dict[str, Process])
    ever: list[Process] = field(default_factory=list[Process])

    fences = True
    """Whether the keeper keeps its lease; the tests of the checkers turn it off."""

    @property
    def boot_id(self) -> str:
        """Another one after each boot."""
        return f"boot-{self.node_id}-{self.boots}"

    def facts(self) -> NodeFactsV1:
        """What the agent finds: cards that are lost are not there."""
        present = [card for card in self.cards if not card.is_lost]
        uuids = [card.uuid for card in present]
        return NodeFactsV1(
            display_name=self.node_id,
            address=f"{self.node_id}.test",
            gpus=tuple(
                GpuV1(
                    uuid=card.uuid,
                    model=card.model,
                    memory_mib=card.memory_mib,
                    sharing="shared" if card.is_shared else "exclusive",
                    links=tuple(uuid for uuid in uuids if uuid != card.uuid),
                )
                for card in present
            ),
            cpu_milli=self.cpu_milli,
            memory_mib=self.memory_mib,
            zone=self.zone,
        )

    def lost(self) -> tuple[str, ...]:
        """Cards that are not there."""
        return tuple(card.uuid for card in self.cards if card.is_lost)

    def card(self, uuid: str) -> Card | None:
        """The card of this uuid."""
        return next((card for card in self.cards if card.uuid == uuid), None)

    # The keeper.

    def start(self, key: str, order: StartV1, now: datetime) -> None:
        """Start a process; a key that is known is not started again."""
        if key in self.running or key in self.gone:
            return
        program = Program.of(order.spec.command)
        seconds, code = program.outcome(order.rendezvous.rank, order.attempt)
        ends_at = None if seconds is None else after(now, seconds)
        made = Process(key, order, 1000 + len(self.ever), now, ends_at, code, program.is_stubborn)
        self.running[key] = made
        self.ever.append(made)

    def stop(self, key: str, grace_ms: int, now: datetime) -> None:
        """SIGTERM, and SIGKILL after the grace; the shorter grace counts."""
        found = self.running.get(key)
        if found is not None:
            at = after(now, grace_ms / 1000 if found.is_stubborn else min(0.05, grace_ms / 1000))
            found.stop_at = at if found.stop_at is None else min(at, found.stop_at)

    def renew(self, until: datetime) -> None:
        """The lease goes on until then."""
        self.lease_until = until if self.lease_until is None else max(until, self.lease_until)

    def has_lease(self, now: datetime) -> bool:
        """Work may run now."""
        return self.lease_until is not None and now < self.lease_until

    def pass_time(self, now: datetime) -> None:
        """Everything that ends up to this instant ends at its own."""
        lease = self.lease_until if self.fences else None
        for key, found in list(self.running.items()):
            ends = [(at, how) for at, how in ((found.ends_at, "exited"), (found.stop_at, "stopped"), (lease, "fenced")) if at is not None]
            if not ends:
                continue
            at, how = min(ends)
            if at <= now:
                found.end(how, max(at, found.started_at))
                self.gone[key] = self.running.pop(key)

    def lose_power(self, now: datetime) -> None:
        """Everything dies, and nobody saw it."""
        self.is_on = False
        for found in self.running.values():
            found.end("died", now)
        self.running.clear()
        self.gone.clear()
        self.lease_until = None

    def boot(self) -> None:
        """It comes up again, under another boot id; cards that had fallen off the bus are back."""
        self.is_on = True
        self.boots += 1
        for card in self.cards:
            card.is_lost, card.temperature_c = False, 40
