"""INV-1, 5, 6 on the machines, after each step: what truly runs, whatever anybody believes."""

from datetime import datetime
from typing import Any

from gpuyard_contracts.messages.placement import AllocationCommittedV1, AllocationReleasedV1

from tests.simulation.holds import Holds
from tests.simulation.machine import Process
from tests.simulation.record import Record, must


class Truth:
    """What runs, against what was committed."""

    PATIENCE_SECONDS = 60.0
    BEATS = 10

    def __init__(self, record: Record, holds: Holds) -> None:
        self.record = record
        self.holds = holds
        self.plans: dict[str, AllocationCommittedV1] = {}
        self.seen: dict[str, int] = {}
        self.begun: set[str] = set()
        self.strays: dict[str, tuple[datetime, int]] = {}

    def told(self, data: Any) -> None:
        """A commitment says where each rank may run; a release, that nothing of it runs any more or ever will."""
        if isinstance(data, AllocationCommittedV1):
            self.plans.setdefault(data.allocation_id, data)
        elif isinstance(data, AllocationReleasedV1):
            running = [found for agent in self.record.agents for found in agent.machine.running.values()]
            left = sorted(found.key for found in running if found.order.allocation_id == data.allocation_id)
            must(not left, "INV-1", f"{data.allocation_id} is released ({data.reason}), and {left} still run")

    def check(self) -> None:
        """Hold what runs against what may run."""
        running: dict[str, list[Process]] = {}
        cards: dict[str, list[Process]] = {}
        for agent in self.record.agents:
            machine = agent.machine
            for process in machine.ever[self.seen.get(machine.node_id, 0) :]:
                self._must_be_planned(machine.node_id, process)
            self.seen[machine.node_id] = len(machine.ever)
            for key, process in machine.running.items():
                running.setdefault(process.order.job_id, []).append(process)
                for part in process.order.slices:
                    cards.setdefault(part.gpu_uuid, []).append(process)
                self._must_be_wanted(key, process, agent.confirmed.get(key, 0))
        for job_id, found in running.items():
            if len(found) > 1:
                attempts = {process.order.attempt for process in found}
                must(len(attempts) == 1, "INV-6", f"attempts {sorted(attempts)} of {job_id} run at once")
        for uuid, found in cards.items():
            if len(found) > 1:
                self._must_share(uuid, found)

    def _must_be_planned(self, node_id: str, process: Process) -> None:
        order, key = process.order, process.key
        must(key not in self.begun, "INV-6", f"{key} was started twice")
        self.begun.add(key)
        plan = self.plans.get(order.allocation_id)
        ranks = {} if plan is None else {rank.rank: rank for rank in plan.ranks}
        rank = ranks.get(process.rank)
        is_planned = rank is not None and rank.node_id == node_id and rank.slices == order.slices
        must(is_planned, "INV-5", f"{key} was started on {node_id} and was never committed there")
        must(order.allocation_id in self.holds.live, "INV-5", f"{key} was started on {node_id} after its allocation was released")

    def _must_be_wanted(self, key: str, process: Process, beats: int) -> None:
        """INV-5: what has no live allocation is gone soon after contact."""
        if process.order.allocation_id in self.holds.live:
            self.strays.pop(key, None)
            return
        now = self.record.world.clock.now()
        since, before = self.strays.setdefault(key, (now, beats))
        is_long = (now - since).total_seconds() > self.PATIENCE_SECONDS and beats - before > self.BEATS
        must(not is_long, "INV-5", f"{key} has run without an allocation since {since}, through {beats - before} heartbeats")

    def _must_share(self, uuid: str, found: list[Process]) -> None:
        parts = [part for process in found for part in process.order.slices if part.gpu_uuid == uuid]
        fits = sum(part.milli for part in parts) <= 1000 and sum(part.memory_mib for part in parts) <= self.holds.memory[uuid]
        must(fits, "INV-1", f"{uuid} is used by {sorted(process.key for process in found)} at once")
