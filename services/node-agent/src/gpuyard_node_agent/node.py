"""All that an order meets on this node, in one hand: what is known, what runs, what goes out."""

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from gpuyard_contracts.envelope import Envelope

from gpuyard_node_agent.domain.admission import Refused, Scene
from gpuyard_node_agent.domain.model import Machine, Order, Workload
from gpuyard_node_agent.domain.uids import Uids, next_uid
from gpuyard_node_agent.ports import Clock, Launch, Runtime
from gpuyard_node_agent.store import NodeStore

ENDS_SHOWN_MS = 3_000
"""How long a heartbeat still names an end that the stream has: placement must not take for vanished what it has not read yet."""
MOST_ENDS_SHOWN = 1_000


class Way(Protocol):
    """The way out; :class:`gpuyard_node_agent.outlet.Outlet` is one."""

    def put(self, lane: str, event: Envelope[Any], before: Callable[[], Awaitable[None]] | None = None) -> None:
        """Publish behind what the lane has."""
        ...


class Workplace(Protocol):
    """Where workloads live on disk; :class:`gpuyard_node_agent.processes.workspace.Workspace` is one."""

    def prepare(self, order: Order, uid: int | None) -> Launch | Refused:
        """Make the folders, that user's own where one is named, and say what to launch."""
        ...

    def caps_of(self, key: str) -> dict[str, int]:
        """A workload's output files with their greatest size."""
        ...

    def leave(self, order: Order, uid: int | None, *, is_alone: bool) -> None:
        """The workload is over. `is_alone`: no other attempt of its job can live anywhere."""
        ...


class Printed(Protocol):
    """What workloads print; :class:`gpuyard_node_agent.outputs.Outputs` is one."""

    def follow(self, order: Order) -> None:
        """Publish what its process prints from now on."""
        ...

    def last_words(self, key: str) -> str:
        """The end of its standard error."""
        ...

    def finish(self, key: str) -> Callable[[], Awaitable[None]] | None:
        """What must be awaited before its end is told; None where nothing is left to publish."""
        ...


@dataclass(kw_only=True)
class Node:
    """One node. `machine` is None until its cards have been found; `waits` are orders that wait, with their deadline on the boot clock."""

    node_id: str
    boot_id: str
    store: NodeStore
    runtime: Runtime
    outlet: Way
    workspace: Workplace
    outputs: Printed
    clock: Clock
    patience_ms: int = 5_000
    uids: Uids | None = None
    """The users that workloads run as; None: the agent's own."""
    keeper: str = ""
    machine: Machine | None = None
    waits: dict[str, int] = field(default_factory=dict[str, int])
    finals: dict[str, Any] = field(default_factory=dict[str, Any])
    """Last statements of use of what has ended, for the next tick."""
    recent_ends: deque[tuple[int, str]] = field(default_factory=lambda: deque[tuple[int, str]](maxlen=MOST_ENDS_SHOWN))
    counts: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def lost(self) -> frozenset[str]:
        """Cards that are known and not there."""
        return self.store.observed.lost

    @property
    def busy(self) -> frozenset[str]:
        """Cards that somebody holds."""
        return frozenset(part.gpu_uuid for workload in self.store.workloads.values() for part in workload.order.slices)

    def scene(self) -> Scene:
        """The node as admission sees it now."""
        store = self.store
        return Scene(store.workloads, store.past, store.attempts, self.machine, self.lost, store.lease, self.clock.ms())

    def uid_for(self, workload: Workload) -> int | Refused | None:
        """The user that it is to run as, which no other living workload has: the one that it was given before, or the next free one."""
        if self.uids is None or workload.uid is not None:
            return workload.uid
        store = self.store
        found = next_uid(self.uids, frozenset(store.uids.values()), store.last_uid)
        return Refused("no-room", "every user id of the node's range is taken") if found is None else found

    def count(self, what: str) -> None:
        """One more of it, for the metrics."""
        self.counts[what] = self.counts.get(what, 0) + 1

    def on_said(self, event: Envelope[Any]) -> None:
        """A stream has the event."""
        ended = self.store.unsaid_ends.get(event.id)
        if ended is not None:
            self.recent_ends.append((self.clock.ms(), ended))
        self.store.said(event.id)

    def ends_on_their_way(self) -> tuple[str, ...]:
        """Allocations whose end is not on the bus yet, or only just."""
        since = self.clock.ms() - ENDS_SHOWN_MS
        while self.recent_ends and self.recent_ends[0][0] < since:
            self.recent_ends.popleft()
        shown = dict.fromkeys(self.store.unsaid_ends.values())
        shown.update(dict.fromkeys(allocation for _, allocation in self.recent_ends))
        return tuple(shown)[:MOST_ENDS_SHOWN]
