"""Whether a heartbeat is to be believed, and what it tells of its node.

A node is one machine with one agent. Of two agents that both call themselves the same node, the one seen last wins (it is the restarted
one, as a rule), and the older is refused from then on: its lease runs out and it stops its own work.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from gpuyard_placement.domain.model import Facts, Mark, Node

PAST_AGENTS = 8
"""How many replaced agents are remembered."""

MAX_GPUS = 1024
MAX_TEXT = 64 * 1024


@dataclass(frozen=True, slots=True)
class Presence:
    """What a heartbeat says of its machine. Facts that did not change are the very ones that are known."""

    node_id: str
    boot_id: str
    facts: Facts
    lost_gpus: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Enrolled:
    """The node as it is now. `has_other_hardware`: new here, or with other cards; `has_rebooted`: what ran before is dead."""

    node: Node
    has_other_hardware: bool
    has_rebooted: bool


def refusal(presence: Presence, known: Node | None, owners: Mapping[str, Node]) -> str | None:
    """Why the heartbeat is not taken, for people; None: it is taken. `owners`: GPU UUID → the live node that it is enrolled on."""
    is_same = known is not None and known.facts is presence.facts
    problem = _malformed_name("boot_id", presence.boot_id) or (None if is_same else _malformed(presence.facts))
    if problem is not None:
        return problem
    for gpu in presence.facts.gpus:
        owner = owners.get(gpu.uuid)
        if owner is not None and owner.node_id != presence.node_id:
            return f"GPU {gpu.uuid} is enrolled on node {owner.node_id}, which is {owner.status}: two nodes cannot have the same card"
    return None


def _malformed(facts: Facts) -> str | None:
    uuids = [gpu.uuid for gpu in facts.gpus]
    if len(set(uuids)) != len(uuids):
        twice = sorted({uuid for uuid in uuids if uuids.count(uuid) > 1})
        return f"facts name GPU {', '.join(twice[:3])} more than once"
    if len(uuids) > MAX_GPUS or len(facts.text) > MAX_TEXT:
        return f"facts are too large: {len(uuids)} GPUs and {len(facts.text)} characters; at most {MAX_GPUS} and {MAX_TEXT} are taken"
    for gpu in facts.gpus:
        if gpu.memory_mib == 0 or not gpu.model.strip():
            return f"facts lack the model or the memory of GPU {gpu.uuid}"
    if not facts.address.strip() or any(letter.isspace() or not letter.isprintable() for letter in facts.address):
        return f"facts give {facts.address[:80]!r} as the node's address; other nodes must be able to reach it there"
    return _nul(facts.text)


def _malformed_name(field: str, value: str) -> str | None:
    if 0 < len(value) <= 128 and value.isprintable():
        return None
    return f"{field} must have 1 to 128 printable characters, but is {value[:40]!r}"


def _nul(text: str) -> str | None:
    """JSON writes NUL as an escape; no store behind this can keep it."""
    return "facts contain a NUL character" if "\\u0000" in text.replace("\\\\", "") else None


def agent(agent_id: str, mark: Mark) -> Mark | str:
    """The node's mark once this agent has spoken; or, for people, why it is not listened to any more."""
    if agent_id and agent_id == mark.agent_id:
        return mark
    if problem := _malformed_name("agent_id", agent_id):
        return problem
    if agent_id in mark.past_agents:
        return f"agent {agent_id} of node {mark.node_id} was replaced by agent {mark.agent_id}: two agents run there, stop one of them"
    past = (*mark.past_agents, mark.agent_id) if mark.agent_id else ()
    return replace(mark, agent_id=agent_id, past_agents=past[-PAST_AGENTS:])


def enrol(presence: Presence, known: Node | None) -> Enrolled:
    """The node after a heartbeat that is believed; the very same node if nothing has changed."""
    present = {gpu.uuid for gpu in presence.facts.gpus}
    if known is None:
        node = Node(presence.node_id, "ready", presence.boot_id, presence.facts, _sorted(presence.lost_gpus, present))
        return Enrolled(node, has_other_hardware=True, has_rebooted=False)
    had = (*known.lost_gpus, *(gpu.uuid for gpu in known.facts.gpus), *presence.lost_gpus)
    node = Node(known.node_id, "ready", presence.boot_id, presence.facts, _sorted(had, present))
    return Enrolled(
        known if node == known else node,
        has_other_hardware=presence.facts.gpus != known.facts.gpus,
        has_rebooted=presence.boot_id != known.boot_id,
    )


def _sorted(had: Iterable[str], present: set[str]) -> tuple[str, ...]:
    return tuple(sorted(set(had) - present))
