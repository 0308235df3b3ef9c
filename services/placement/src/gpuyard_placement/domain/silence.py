"""Who is silent, who is given up, and whether it is we who are blind.

Not knowing is not failing: a silent node is `unknown` and its work goes on. It is `lost` only after the lease that it holds has ended
(by then it has stopped its own work) and a margin. If more than half of the fleet, and at least two nodes, are silent at once, the likelier
explanation is that we do not hear: the breaker opens and nothing is given up until we do. Whenever we come back to our senses (a
start, an end of blindness, a gap in our own watch) every node gets a full lease from that instant on.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuyard_placement.domain.model import Node, NodeStatus, Policy, Sight

_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Change:
    """One node's new status, and why, for people."""

    node: Node
    status: NodeStatus
    detail: str


@dataclass(frozen=True, slots=True)
class Watch:
    """What the fleet's silence comes to. `sight` is None while it stays as it is; `silent` and `nodes` are the counts behind it."""

    changes: tuple[Change, ...]
    sight: Sight | None
    silent: int
    nodes: int


def watch(
    nodes: Iterable[Node], heard_at: Mapping[str, datetime], listening_since: datetime, sight: Sight, at: datetime, policy: Policy
) -> Watch:
    """Judge every node's silence. A node is lost only if it was `unknown` before, so that it takes two looks to give one up."""
    known = [node for node in nodes if node.status != "lost"]
    silences = {node.node_id: at - max(heard_at.get(node.node_id, listening_since), listening_since) for node in known}
    newly = [node for node in known if node.status == "ready" and silences[node.node_id] > policy.unknown_after]
    changes = [Change(node, "unknown", f"not heard for {silences[node.node_id] // _SECOND} s; its lease runs on") for node in newly]
    silent = len(newly) + sum(1 for node in known if node.status == "unknown")
    is_blind = silent >= 2 and 2 * silent > len(known)
    if is_blind != sight.is_blind:
        # When sight comes back, whoever is still silent has its lease counted anew from now: nobody is given up in this look.
        return Watch(tuple(changes), Sight(is_blind, at), silent, len(known))
    if not is_blind:
        limit = policy.lease + policy.lost_margin
        changes += [
            Change(node, "lost", f"not heard for {silences[node.node_id] // _SECOND} s: its lease has ended, what ran there has stopped")
            for node in known
            if node.status == "unknown" and silences[node.node_id] > limit
        ]
    return Watch(tuple(changes), None, silent, len(known))


def is_deaf(last_watch_at: datetime | None, at: datetime, policy: Policy) -> bool:
    """Whether so long has passed since our own last look that we cannot have heard anybody in between."""
    return last_watch_at is not None and at - last_watch_at > policy.gap_is_deafness
