"""Processes in memory: a :class:`gpuyard_node_agent.ports.Runtime` without any process, for tests and simulations.

It stands for the keeper, so it outlives an agent: give it to the next one. What it has to tell is told when
:meth:`MemoryProcesses.deliver` is called, in order, so that whoever drives it decides what happens before an agent learns of it.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gpuyard_node_agent.domain.model import Born, Gone
from gpuyard_node_agent.ports import Absent, Clock, Failed, Launch, Seen, Survey


@dataclass
class Kept:
    """One key in memory."""

    launch: Launch | None
    born: Born
    gone: Gone | None = None
    stop_ms: int | None = None


class MemoryProcesses:
    """What a keeper would hold. `launches` counts real starts by key; `failing` makes the start of a program fail with an errno."""

    def __init__(self, clock: Clock, instance: str = "keeper-1") -> None:
        self.instance = instance
        self.held: dict[str, Kept] = {}
        self.launches: dict[str, int] = {}
        self.failing: dict[str, int] = {}
        self.is_deaf = False
        """While set, what is asked gets lost, as with an agent that dies between its journal and its deed."""
        self.lease_ms: int | None = None
        self._clock = clock
        self._told: deque[Seen] = deque()
        self._hears: Callable[[Seen], None] = lambda seen: None
        self._pids = 100
        self._elsewhere: Mapping[str, Kept] = {}

    async def open(self, hears: Callable[[Seen], None]) -> Survey:
        """A new agent: what was told to the one before is void."""
        self._hears = hears
        self._told.clear()
        return self.survey()

    def survey(self) -> Survey:
        """Everything that is held."""
        born = tuple(kept.born for kept in self.held.values())
        return Survey(self.instance, self.lease_ms, born, tuple(kept.gone for kept in self.held.values() if kept.gone is not None))

    def replace_keeper(self, instance: str) -> None:
        """The keeper dies and another comes: it holds nothing until it adopts."""
        self.instance = instance
        self._elsewhere = {key: kept for key, kept in self.held.items() if kept.gone is None}
        self.held = {}
        self._told.append(self.survey())

    def launch(self, launch: Launch) -> None:
        """Start, unless the key is held."""
        if self.is_deaf:
            return
        kept = self.held.get(launch.key)
        if kept is None:
            if self.lease_ms is None or self._clock.ms() >= self.lease_ms:
                self._told.append(Failed(launch.key, 0, "the lease is over"))
                return
            if launch.path in self.failing:
                self._told.append(Failed(launch.key, self.failing[launch.path], "it fails"))
                return
            self._pids += 1
            self.launches[launch.key] = self.launches.get(launch.key, 0) + 1
            kept = self.held[launch.key] = Kept(launch, Born(launch.key, self._pids, self._pids * 10, self._clock.ms(), self._clock.now()))
        self._told.append(kept.born)
        if kept.gone is not None:
            self._told.append(kept.gone)

    def adopt(self, key: str, born: Born | None, caps: Mapping[str, int], uid: int | None) -> None:
        """Found if it ran under an earlier keeper."""
        kept = self.held.get(key) or self._elsewhere.get(key)
        if kept is None:
            self._told.append(Absent(key))
        else:
            self.held[key] = kept
            self._told.append(kept.born)

    def stop(self, key: str, grace_ms: int) -> None:
        """Remembered; :meth:`end` ends it."""
        kept = self.held.get(key)
        if kept is not None and kept.gone is None and not self.is_deaf:
            kept.stop_ms = grace_ms if kept.stop_ms is None else min(kept.stop_ms, grace_ms)

    def end(self, key: str, *, code: int | None = None, number: int | None = None) -> None:
        """The process ends: by itself, or because it was told to."""
        kept = self.held[key]
        kept.gone = Gone(key, self._clock.ms(), code, number, is_stopped=kept.stop_ms is not None)
        self._told.append(kept.gone)

    def renew(self, until_ms: int) -> None:
        """The lease ends then."""
        self.lease_ms = until_ms

    def fence(self) -> None:
        """Kill everything if the lease has run out, as a keeper does by itself."""
        if self.lease_ms is None or self._clock.ms() < self.lease_ms:
            return
        for kept in self.held.values():
            if kept.gone is None:
                kept.gone = Gone(kept.born.key, self.lease_ms, None, 9, is_fenced=True)
                self._told.append(kept.gone)

    def forget(self, key: str) -> None:
        """Its end is safe."""
        kept = self.held.get(key)
        if kept is not None and kept.gone is not None:
            del self.held[key]

    def deliver(self) -> int:
        """Tell the agent everything that waits; how much that was."""
        told = 0
        while self._told:
            self._hears(self._told.popleft())
            told += 1
        return told

    async def close(self) -> None:
        """Nothing to close: what runs goes on."""
