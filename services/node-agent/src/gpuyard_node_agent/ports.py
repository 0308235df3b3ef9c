"""What the agent needs of the world, so that its decisions can be tried without it: clock, processes, cards, bus."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from gpuyard_contracts.envelope import Ask, Envelope
from gpuyard_contracts.topology import Durable
from gpuyard_runtime.work import Delivery

from gpuyard_node_agent.domain.model import Born, Card, Gone


class Clock(Protocol):
    """The instant for people, and the boot clock for measuring."""

    def now(self) -> datetime:
        """The present instant, aware, in UTC."""
        ...

    def ms(self) -> int:
        """Milliseconds on the boot clock."""
        ...


@dataclass(frozen=True, slots=True)
class Launch:
    """What the keeper is told: a complete process. `uid`: the user that it runs as, None for the keeper's own. `cgroup` with its parent's
    leaf for the keeper itself, where limits are kept.
    """

    key: str
    path: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    out: str
    err: str
    cap_bytes: int
    uid: int | None = None
    cgroup: str | None = None
    cgroup_home: str | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """A process could not be started; nothing of it runs. `number` is the system's errno, 0: the lease is over."""

    key: str
    number: int
    text: str


@dataclass(frozen=True, slots=True)
class Absent:
    """Who was to be adopted is not there."""

    key: str


@dataclass(frozen=True, slots=True)
class Survey:
    """What the keeper holds. `instance` is new where an earlier keeper's knowledge was lost."""

    instance: str
    lease_ms: int | None
    born: tuple[Born, ...] = ()
    gone: tuple[Gone, ...] = ()


Seen = Born | Failed | Absent | Gone | Survey
"""What comes from the processes' side. A `Survey` out of turn: there is a new keeper."""


class Runtime(Protocol):
    """Starts and holds processes. All calls but `open` return at once; what comes of them is told later."""

    async def open(self, hears: Callable[[Seen], None]) -> Survey:
        """Reach the keeper, starting one where none is."""
        ...

    def launch(self, launch: Launch) -> None:
        """Start a process: `Born` or `Failed` follows. A key that is held already is told again and not started twice."""
        ...

    def adopt(self, key: str, born: Born | None, caps: Mapping[str, int], uid: int | None) -> None:
        """Find a process that another keeper started, by `born` or by its mark: `Born` or `Absent` follows. Of a `uid` of its own nothing
        is left where it is absent.
        """
        ...

    def stop(self, key: str, grace_ms: int) -> None:
        """SIGTERM, after the grace SIGKILL, to the whole group: `Gone` follows once nothing is left."""
        ...

    def renew(self, until_ms: int) -> None:
        """The lease ends then (boot clock): everything that runs is killed at that moment."""
        ...

    def forget(self, key: str) -> None:
        """The end of this key is safe with us."""
        ...

    async def close(self) -> None:
        """Let the keeper alone; what runs goes on."""
        ...


@dataclass(frozen=True, slots=True)
class Reading:
    """What the cards say now, by UUID and name of value; None and absent are the same. `lost`: known cards that do not answer."""

    values: Mapping[str, Mapping[str, int | None]]
    lost: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Xid:
    """An XID event that the driver's library told of. `place` is the PCI address."""

    gpu_uuid: str
    xid: int
    place: str
    detail: str = ""


class Hung(Exception):
    """The observer did not answer in time, or has died."""


class Backend(Protocol):
    """Looks at the cards. Every call may take for ever: the caller has a deadline, and calls `restart` when it has passed."""

    name: str

    async def discover(self) -> tuple[Card, ...]:
        """The cards that are there. Raises Hung."""
        ...

    async def sample(self, busy: frozenset[str]) -> Reading:
        """Read every card once; `busy` are the ones that are held. Raises Hung."""
        ...

    def take_xids(self) -> Sequence[Xid]:
        """XIDs since the last call."""
        ...

    async def restart(self) -> None:
        """Give the hung observer up and make a new one."""
        ...

    async def close(self) -> None:
        """Let the cards go."""
        ...


class Bus(Protocol):
    """What the agent needs of the bus; :class:`gpuyard_runtime.bus.Bus` is one."""

    async def publish(self, envelope: Envelope[Any]) -> int:
        """Publish on a stream. Raises Unavailable where nobody acknowledges."""
        ...

    async def ask(self, ask: Ask, *, seconds: float = 2.0) -> Any:
        """Ask and return the answer. Raises Unavailable or Refused."""
        ...

    def pull(self, durable: Durable, *, batch: int = 50) -> AsyncIterator[list[Delivery]]:
        """Orders as they come, in batches."""
        ...
