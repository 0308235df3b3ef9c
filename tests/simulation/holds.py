"""INV-1, 2, 4, 8, 9 after each step: who holds what, by placement's own word, against its rows, the cards, the cordons and the quotas."""

from datetime import datetime
from typing import Any

from gpuyard_contracts.envelope import Envelope
from gpuyard_contracts.messages.placement import (
    AllocationCommittedV1,
    AllocationRefusedV1,
    AllocationReleasedV1,
    FleetSightChangedV1,
    NodeCordonedV1,
    NodeStateV1,
    NodeStatusChangedV1,
    NodeUncordonedV1,
    StartV1,
)

from tests.simulation.record import Record, Violation, must
from tests.simulation.tenants import QUOTAS

Part = tuple[str, str, int]
"""Card, allocation, rank."""


class Holds:
    """The books of what is held, kept from what placement committed to saying."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.memory = {card.uuid: card.memory_mib for agent in record.agents for card in agent.machine.cards}
        self.homes = {card.uuid: agent.node_id for agent in record.agents for card in agent.machine.cards}
        self.live: dict[str, AllocationCommittedV1] = {}
        self.past: dict[str, int] = {}
        """Job → the highest attempt that was refused or released."""
        self.known: set[str] = set()
        self.cordons: dict[str, set[tuple[str, str]]] = {}
        self.status: dict[str, str] = {}
        self.states: dict[str, NodeStateV1] = {}
        self.held: dict[Part, tuple[int, int]] = {}
        self.is_blind = False
        self.ports: dict[str, tuple[str, int]] = {}
        self.whole_since: datetime | None = None
        """Since when every kind of card of every node has been known."""

    def told(self, event: Envelope[Any]) -> None:
        """Placement committed to saying this."""
        data = event.data
        if event.id in self.known:
            return
        self.known.add(event.id)
        if isinstance(data, AllocationCommittedV1):
            self._commit(data)
        elif isinstance(data, AllocationReleasedV1):
            self._release(data)
        elif isinstance(data, AllocationRefusedV1):
            must(data.allocation_id not in self.live, "INV-2", f"{data.allocation_id} is refused and held")
            self.past[data.job_id] = max(data.attempt, self.past.get(data.job_id, 0))
        elif isinstance(data, NodeCordonedV1):
            self.cordons.setdefault(data.node_id, set()).add((data.cordon.holder, data.cordon.gpu_uuid or ""))
        elif isinstance(data, NodeUncordonedV1):
            self.cordons.get(data.node_id, set()).discard((data.holder, data.gpu_uuid or ""))
        elif isinstance(data, NodeStatusChangedV1):
            must(not (self.is_blind and data.status == "lost"), "blind", f"{data.node_id} is given up by who is blind")
            self.status[data.node_id] = data.status
        elif isinstance(data, FleetSightChangedV1):
            self.is_blind = data.is_blind
        elif isinstance(data, StartV1):
            self._rendezvous(data)
        elif isinstance(data, NodeStateV1):
            known = self.states.get(data.node_id)
            must(known is None or data.version > known.version, "INV-4", f"two states of {data.node_id} under version {data.version}")
            self.states[data.node_id] = data
            is_whole = len(self.states) == len(self.record.agents) and all(state.facts.gpus for state in self.states.values())
            self.whole_since = (self.whole_since or event.time) if is_whole else None

    def _commit(self, data: AllocationCommittedV1) -> None:
        name = data.allocation_id
        others = [found.allocation_id for found in self.live.values() if found.job_id == data.job_id]
        must(not others, "INV-6", f"{name} is committed while {others} of the same job holds slices")
        must(data.attempt > self.past.get(data.job_id, 0), "INV-6", f"{name} comes back: attempt {self.past.get(data.job_id)} is over")
        asked = self.record.tenants.asked.get(data.job_id)
        if asked is not None and asked.spec is not None:
            shape = [len({part.gpu_uuid for part in rank.slices}) for rank in data.ranks]
            must(shape == [asked.spec.gpu.count] * asked.spec.ranks, "INV-2", f"{name} was asked for {asked.spec.gpu}, it holds {shape}")
        for rank in data.ranks:
            self._must_be_open(name, rank.node_id, [part.gpu_uuid for part in rank.slices])
            for part in rank.slices:
                self.held[part.gpu_uuid, name, rank.rank] = (part.milli, part.memory_mib)
        self.live[name] = data
        for rank in data.ranks:
            for part in rank.slices:
                self._must_fit(part.gpu_uuid)
        self._must_be_within_quota(data.tenant)

    def _must_be_open(self, name: str, node_id: str, uuids: list[str]) -> None:
        cordons = [(holder, uuid) for holder, uuid in self.cordons.get(node_id, ()) if uuid == "" or uuid in uuids]
        must(not cordons, "INV-9", f"{name} is committed to {node_id}, which is cordoned: {cordons}")
        status = self.status.get(node_id, "ready")
        must(status == "ready", "INV-9", f"{name} is committed to {node_id}, which is {status}")
        must(all(self.homes.get(uuid) == node_id for uuid in uuids), "INV-1", f"{name} holds cards that {node_id} does not have")

    def _must_fit(self, uuid: str) -> None:
        parts = [amount for (card, _, _), amount in self.held.items() if card == uuid]
        milli, memory = sum(part[0] for part in parts), sum(part[1] for part in parts)
        is_shared = len(parts) > 1 and any(part[0] == 1000 for part in parts)
        fits = milli <= 1000 and memory <= self.memory[uuid] and not is_shared
        must(fits, "INV-1", f"{uuid} is held twice: {sorted(key[1:] for key in self.held if key[0] == uuid)}")

    def _must_be_within_quota(self, tenant: str) -> None:
        milli, memory = QUOTAS.get(tenant, (None, None))
        mine = [part for found in self.live.values() if found.tenant == tenant for rank in found.ranks for part in rank.slices]
        used = sum(part.milli for part in mine), sum(part.memory_mib for part in mine)
        within = (milli is None or used[0] <= milli) and (memory is None or used[1] <= memory)
        must(within, "INV-8", f"{tenant} uses {used} of {(milli, memory)}")

    def _rendezvous(self, data: StartV1) -> None:
        """A gang meets where no other gang does."""
        found = (data.rendezvous.master_addr, data.rendezvous.master_port)
        must(self.ports.setdefault(data.allocation_id, found) == found, "INV-2", f"the ranks of {data.allocation_id} meet at two places")
        others = [name for name, place in self.ports.items() if place == found and name != data.allocation_id and name in self.live]
        must(not others, "INV-1", f"{data.allocation_id} and {others} meet at {found}")

    def _release(self, data: AllocationReleasedV1) -> None:
        must(data.allocation_id in self.live, "INV-4", f"{data.allocation_id} is released and was not held")
        found = self.live.pop(data.allocation_id)
        self.past[data.job_id] = max(data.attempt, self.past.get(data.job_id, 0))
        for rank in found.ranks:
            for part in rank.slices:
                self.held.pop((part.gpu_uuid, data.allocation_id, rank.rank), None)

    def check(self) -> None:
        """The rows are what was said."""
        rows = {key: (row.milli, row.memory_mib) for key, row in self.record.rows("placement", "slices_held").items()}
        if rows != self.held:
            missing = sorted(set(self.held) - set(rows))
            must(not missing, "INV-2", f"committed and not held: {missing}")
            must(False, "INV-4", f"held and not committed: {sorted(set(rows) - set(self.held))}")
        for node_id, state in self.states.items():
            shown = {(part.gpu_uuid, hold.allocation_id, hold.rank) for hold in state.holds for part in hold.slices}
            true = {key for key in self.held if self.homes[key[0]] == node_id}
            if shown != true:
                raise Violation("INV-4", f"{node_id} shows {sorted(shown)}, held are {sorted(true)}")
