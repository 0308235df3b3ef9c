"""How the ranks of a gang find each other: rank 0's address, and a port that no other live allocation of that node has.

Ports lie below the kernel's ephemeral range (32768–60999 on Linux), so that no outgoing connection can have taken one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from zlib import crc32

from gpuyard_placement.domain.model import RankPlan


@dataclass(frozen=True, slots=True)
class Place:
    """One rank's place in its gang: numbered over the gang and on its node."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int


def free_port(allocation_id: str, is_taken: Callable[[int], bool], ports: range) -> int | None:
    """A free port for the allocation; None if all are taken.

    The search starts at a place computed from the id: a port that was just given back is not taken again at once.
    """
    start = crc32(allocation_id.encode()) % len(ports)
    for step in range(len(ports)):
        port = ports[(start + step) % len(ports)]
        if not is_taken(port):
            return port
    return None


def places(plan: Sequence[RankPlan]) -> list[Place]:
    """The place of each rank, in order of rank."""
    totals: dict[str, int] = {}
    local: list[int] = []
    for rank in plan:
        number = totals.get(rank.node_id, 0)
        local.append(number)
        totals[rank.node_id] = number + 1
    return [Place(rank.rank, len(plan), number, totals[rank.node_id]) for rank, number in zip(plan, local, strict=True)]
