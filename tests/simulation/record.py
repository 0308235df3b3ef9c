"""What has happened so far, as the checkers see it: committed units in their order, published messages, and the true processes.

Nothing here is asked of a service: databases, streams and machines are read from outside.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from gpuyard_contracts.envelope import Envelope, Payload
from gpuyard_runtime.testing import World

from tests.simulation.agent import Agent
from tests.simulation.tenants import Tenants


class Violation(AssertionError):
    """Something that must always hold does not. `rule` is the invariant's name."""

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(f"{rule}: {detail}")
        self.rule = rule
        self.detail = detail


def must(holds: object, rule: str, detail: str | Callable[[], str]) -> None:
    """Raise Violation unless it holds."""
    if not holds:
        raise Violation(rule, detail if isinstance(detail, str) else detail())


@dataclass(frozen=True, slots=True)
class Stored:
    """One message of a stream: its place, its id, who is its source, on which subject."""

    sequence: int
    event_id: str
    source: str
    subject: str


@dataclass
class Record:
    """Everything up to now; :meth:`look` takes in what is new. `committed`: by service, what its units said, in the order of commits."""

    world: World
    agents: list[Agent]
    tenants: Tenants
    committed: dict[str, list[Envelope[Any]]] = field(default_factory=dict[str, list[Envelope[Any]]])
    committed_ids: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    stored: dict[str, list[Stored]] = field(default_factory=dict[str, list[Stored]])
    placement_starts: list[datetime] = field(default_factory=list[datetime])
    """When placement was started again."""
    _epoch: int = 1
    _outbox: dict[str, int] = field(default_factory=dict[str, int])
    _sequences: dict[str, int] = field(default_factory=dict[str, int])

    def rows(self, service: str, table: str) -> dict[Any, Any]:
        """A table of a service as it is committed, by key."""
        return self.world.databases[service].tables.get(table, {})

    def journal(self, service: str, name: str) -> list[Any]:
        """The committed rows of a journal."""
        return self.world.databases[service].journals.get(name, [])

    def look(self) -> tuple[list[tuple[str, Envelope[Any]]], list[tuple[str, Stored]]]:
        """What was committed and what was published since the last look."""
        said: list[tuple[str, Envelope[Any]]] = []
        epoch = self.world.databases["placement"].epoch
        if epoch != self._epoch:
            self._epoch = epoch
            self.placement_starts.append(self.world.clock.now())
        for service, database in self.world.databases.items():
            known = self._outbox.get(service, 0)
            if database.last_outbox_id > known:
                for outbox_id in range(known + 1, database.last_outbox_id + 1):
                    said += [(service, event) for event in database.outbox.get(outbox_id, ())]
                self._outbox[service] = database.last_outbox_id
        for service, event in said:
            self.committed.setdefault(service, []).append(event)
            self.committed_ids.setdefault(service, set()).add(event.id)
        return said, self._published()

    def _published(self) -> list[tuple[str, Stored]]:
        found: list[tuple[str, Stored]] = []
        for name, stream in self.world.bus.streams.items():
            known = self._sequences.get(name, 0)
            if stream.last_sequence == known:
                continue
            for sequence in range(known + 1, stream.last_sequence + 1):
                message = stream.messages.get(sequence)
                if message is not None:
                    kept = Stored(sequence, message.headers.get("ce-id", ""), message.headers.get("ce-source", ""), message.subject)
                    self.stored.setdefault(name, []).append(kept)
                    found.append((name, kept))
            self._sequences[name] = stream.last_sequence
        return found

    def said_of(self, service: str, kind: type[Payload]) -> Iterable[Any]:
        """Every different event of a class that a service committed, each once."""
        seen: dict[str, Any] = {}
        for event in self.committed.get(service, ()):
            if isinstance(event.data, kind):
                seen.setdefault(event.id, event.data)
        return seen.values()
