"""All rows of placement, and the only SQL that it has beside its migrations.

What is free is never counted: it is what the held slices leave, looked up when it is asked for. Beside the tables, in memory only, is
what the nodes last said (`heard`: undone with its unit) and when (`heard_at`: true even if the unit fails, since it was heard).
"""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from gpuyard_contracts.messages.placement import HoldV1
from gpuyard_runtime.store import Statement, Store
from gpuyard_runtime.table import Column, Table

from gpuyard_placement.domain.commit import Used
from gpuyard_placement.domain.model import Allocation, Cordon, Gpu, Held, Mark, Node, NodeStatus, Policy, RankKey, Sight, Tombstone
from gpuyard_placement.domain.reconcile import Heard
from gpuyard_placement.mapping import messages, rows

_NODES: tuple[Column[Node], ...] = (
    Column("node_id", "text", is_key=True),
    Column("status", "text"),
    Column("boot_id", "text"),
    Column("facts", "json", lambda row: row.facts.text),
    Column("lost_gpus", "json", lambda row: rows.text_of(row.lost_gpus)),
)
_MARKS: tuple[Column[Mark], ...] = (
    Column("node_id", "text", is_key=True),
    Column("version", "int8"),
    Column("heard_at", "timestamptz"),
    Column("agent_id", "text"),
    Column("past_agents", "json", lambda row: rows.text_of(row.past_agents)),
)
_CORDONS: tuple[Column[Cordon], ...] = (
    Column("node_id", "text", is_key=True),
    Column("holder", "text", is_key=True),
    Column("gpu_uuid", "text", is_key=True),
    Column("reason", "text"),
    Column("is_drain", "bool"),
    Column("at", "timestamptz"),
)
_ALLOCATIONS: tuple[Column[Allocation], ...] = (
    Column("allocation_id", "text", is_key=True),
    Column("tenant", "text"),
    Column("job_id", "text"),
    Column("attempt", "int4"),
    Column("state", "text"),
    Column("terms", "json", rows.terms_text),
    Column("ranks", "json", rows.ranks_text),
    Column("stop", "json", rows.stop_text),
    Column("committed_at", "timestamptz"),
    Column("started_at", "timestamptz"),
    Column("ended_at", "timestamptz"),
)
_HELD: tuple[Column[Held], ...] = (
    Column("gpu_uuid", "text", is_key=True),
    Column("allocation_id", "text", is_key=True),
    Column("rank", "int4", is_key=True),
    Column("node_id", "text"),
    Column("milli", "int4"),
    Column("memory_mib", "int8"),
    Column("capacity_mib", "int8"),
)
_TOMBSTONES: tuple[Column[Tombstone], ...] = (Column("key", "text", is_key=True), Column("attempt", "int4"), Column("at", "timestamptz"))
_SIGHT: tuple[Column[Sight], ...] = (
    Column("one", "bool", lambda row: True, is_key=True),
    Column("is_blind", "bool"),
    Column("at", "timestamptz"),
)

_PRUNE = "delete from allocations where state = 'released' and ended_at"


class PlacementStore(Store):
    """The truth about nodes and what is held on them."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.policy = policy
        self.nodes: Table[str, Node] = self.table("nodes", lambda row: row.node_id, _NODES, rows.node_row)
        self.marks: Table[str, Mark] = self.table("node_marks", lambda row: row.node_id, _MARKS, rows.mark_row)
        self.cordons: Table[tuple[str, str, str], Cordon] = self.table(
            "cordons", lambda row: (row.node_id, row.holder, row.gpu_uuid), _CORDONS, lambda record: Cordon(**record)
        )
        self.allocations: Table[str, Allocation] = self.table(
            "allocations",
            lambda row: row.allocation_id,
            _ALLOCATIONS,
            rows.allocation_row,
            keep=lambda row: row.is_live,
            where="state <> 'released'",
            # A job's old attempt leaves the index of live ones before its new one enters it.
            order=lambda row: row.is_live,
        )
        self.held: Table[tuple[str, str, int], Held] = self.table(
            "slices_held", lambda row: (row.gpu_uuid, row.allocation_id, row.rank), _HELD, lambda record: Held(**record)
        )
        self.tombstones: Table[str, Tombstone] = self.table(
            "tombstones", lambda row: row.key, _TOMBSTONES, lambda record: Tombstone(**record)
        )
        self.sights: Table[str, Sight] = self.table(
            "fleet_sight", lambda row: "fleet", _SIGHT, lambda record: Sight(record["is_blind"], record["at"])
        )
        self._follow_rows()
        self.heard: Table[str, Heard] = Table("heard", lambda row: row.node_id, (Column("node_id", "text", is_key=True),), _never)
        self.heard_at: dict[str, datetime] = {}
        self.listening_since: datetime | None = None
        self.last_watch_at: datetime | None = None
        self.ignored: Counter[str] = Counter()
        self._prune_before: datetime | None = None
        self._published: set[str] = set()
        self._owed: set[str] = set()

    def _follow_rows(self) -> None:
        """What is looked up, and follows the rows."""
        self._by_gpu = self.nodes.index_each(lambda row: [gpu.uuid for gpu in row.facts.gpus])
        self._cordons_by_node = self.cordons.index(lambda row: row.node_id)
        self._on_node = self.allocations.index_each(lambda row: row.nodes() if row.is_live else ())
        self._of_job = self.allocations.index(lambda row: row.job_id if row.is_live else None)
        self._by_port = self.allocations.index(lambda row: (row.terms.plan[0].node_id, row.terms.port) if row.is_live else None)
        self._used = self.allocations.sums(_uses)
        self._holds = self.allocations.derived(messages.holds_of)
        self._held_by_gpu = self.held.index(lambda row: row.gpu_uuid)

    def inherit(self, before: Store) -> None:
        """Go on with what was only heard: the rows were read anew, but we did not stop listening."""
        assert isinstance(before, PlacementStore)
        self.heard.restore(before.heard.values())
        self.heard_at = before.heard_at
        self.listening_since = before.listening_since
        self.last_watch_at = before.last_watch_at
        self.ignored = before.ignored
        self._owed = before._owed

    def undo(self) -> None:
        """Take back the open unit, what was heard in it included."""
        super().undo()
        self.heard.undo()
        self._prune_before = None
        self._published.clear()

    def settle(self) -> None:
        """The open unit has committed. States that it could not publish are owed to the next one."""
        self._owed = set(self.touched()) - self._published
        self._published.clear()
        super().settle()
        self.heard.settle()
        self._prune_before = None

    @property
    def is_changed(self) -> bool:
        """Whether the database has something to do."""
        return self._prune_before is not None or super().is_changed

    def statements(self) -> list[Statement]:
        """Write what the unit changed; forget what is older than was asked for."""
        found = super().statements()
        if self._prune_before is not None:
            found.append(Statement("pruned", lambda first: f"{_PRUNE} < ${first}", [self._prune_before]))
        return found

    def prune(self, before: datetime) -> None:
        """Delete allocations released before this instant, with this unit."""
        self._prune_before = before

    # The truth, as domain.commit asks for it.

    def node(self, node_id: str) -> Node | None:
        """The node, if it was ever enrolled."""
        return self.nodes.get(node_id)

    def cordons_on(self, node_id: str) -> list[Cordon]:
        """All cordons of the node and its cards, by holder."""
        return self._cordons_by_node.get(node_id)

    def held_of(self, gpu_uuid: str) -> list[Held]:
        """The slices of a card that are held."""
        return self._held_by_gpu.get(gpu_uuid)

    def used_on(self, node_id: str) -> Used:
        """CPU and memory that live allocations hold of the node."""
        return Used(*self._used.get(node_id))

    def is_port_taken(self, node_id: str, port: int) -> bool:
        """Whether a rendezvous port of the node is in use."""
        return self._by_port.count((node_id, port)) > 0

    def live_of(self, job_id: str) -> Allocation | None:
        """The job's live allocation."""
        found = self._of_job.get(job_id)
        return found[0] if found else None

    def closed_up_to(self, key: str) -> int:
        """The highest attempt of a job that may not come back; 0 for none."""
        found = self.tombstones.get(key)
        return 0 if found is None else found.attempt

    # What else handlers and ticks look up.

    def live(self, allocation_id: str) -> Allocation | None:
        """The allocation, if it is not released."""
        found = self.allocations.get(allocation_id)
        return found if found is not None and found.is_live else None

    def allocations_on(self, node_id: str) -> list[Allocation]:
        """Live allocations with a rank on the node, by id."""
        return self._on_node.get(node_id)

    def holds_on(self, node_id: str) -> list[HoldV1]:
        """What the ranks on the node hold, as it is told with every change of the node; by allocation and rank."""
        return [
            hold
            for found in self._on_node.get(node_id)
            for plan, hold in zip(found.terms.plan, self._holds.get(found.allocation_id, found), strict=True)
            if plan.node_id == node_id
        ]

    def owners_of(self, gpus: Sequence[Gpu]) -> dict[str, Node]:
        """The live node that each of these cards is enrolled on."""
        found: dict[str, Node] = {}
        for gpu in gpus:
            for node in self._by_gpu.get(gpu.uuid):
                if node.status != "lost":
                    found[gpu.uuid] = node
        return found

    def status_of(self, node_id: str) -> NodeStatus | None:
        """A node's status; None for one that was never enrolled."""
        found = self.nodes.get(node_id)
        return None if found is None else found.status

    def sight(self) -> Sight | None:
        """Whether we are blind; None before the first judgement."""
        return self.sights.get("fleet")

    def last_heard(self, node_id: str) -> datetime | None:
        """When the node was last heard, as far as it is remembered."""
        found = self.heard_at.get(node_id)
        if found is not None:
            return found
        mark = self.marks.get(node_id)
        return None if mark is None else mark.heard_at

    def proof_of(self, allocation: Allocation, rank: int) -> datetime:
        """The last instant at which the rank is known to have been alive: when its node last listed it.

        After a restart of ours, until the node's first list is judged, it is when the node was last heard before; never before the rank's
        start.
        """
        node_id = allocation.terms.plan[rank].node_id
        state = allocation.ranks[rank]
        least = state.started_at or allocation.committed_at
        key: RankKey = (allocation.allocation_id, rank)
        heard = self.heard.get(node_id)
        if heard is None:
            mark = self.marks.get(node_id)
            proof = None if mark is None else mark.heard_at
        else:
            proof = heard.proof_of(key)
        return least if proof is None else max(proof, least)

    def touched(self) -> list[str]:
        """Nodes whose published state the open unit has changed, or an earlier one that could not publish it, in order."""
        found = set(self._owed)
        for table in (self.nodes, self.held, self.cordons):
            if table.is_changed:
                changes = table.changes()
                changed: list[Any] = [*changes.upserts, *changes.drops]
                found.update(row.node_id for row in changed)
        return sorted(found)

    def published(self, node_id: str) -> None:
        """The open unit has said the node's state."""
        self._published.add(node_id)


def _uses(row: Allocation) -> list[tuple[str, int, int]]:
    """CPU and memory that an allocation holds, by node."""
    return [(plan.node_id, plan.cpu_milli, plan.memory_mib) for plan in row.terms.plan] if row.is_live else []


def _never(record: Any) -> Heard:
    raise NotImplementedError("what was heard is not kept in the database")
