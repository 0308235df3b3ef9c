"""The conformance suites against the adapters in memory."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from gpuyard_contracts.envelope import Ask, Envelope, Shape
from gpuyard_contracts.topology import Durable
from gpuyard_runtime.clock import ManualClock
from gpuyard_runtime.faults import Refused
from gpuyard_runtime.testing.bus_conformance import BUS, STREAMS
from gpuyard_runtime.testing.memory_bus import MemoryBus
from gpuyard_runtime.testing.memory_units import ConstraintViolated, MemoryDatabase, MemoryUnits
from gpuyard_runtime.testing.units_conformance import UNITS, Note, ThingStore
from gpuyard_runtime.units import Units
from gpuyard_runtime.work import Delivery


class MemoryUnitsRig:
    """Units in memory, with the constraints of the suite's migration."""

    def __init__(self) -> None:
        self.database = MemoryDatabase(checks=[no_debt])
        self.units: Units[ThingStore] = self._life()

    def _life(self) -> MemoryUnits[ThingStore]:
        return MemoryUnits(ThingStore, self.database, lambda point: None)

    async def reopen(self) -> Units[ThingStore]:
        old, self.units = self.units, self._life()
        return old

    async def committed(self) -> tuple[set[str], list[Note], int]:
        things = {str(key) for key in self.database.tables.get("things", {})}
        return things, self.database.journals.get("notes", []), len(self.database.outbox)

    async def go_away(self) -> None:
        self.database.is_away = True

    async def come_back(self) -> None:
        self.database.is_away = False


def no_debt(database: MemoryDatabase) -> None:
    if any(thing.amount < 0 for thing in database.tables.get("things", {}).values()):
        raise ConstraintViolated("things_have_no_debt")


class MemoryBusRig:
    """The bus in memory."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.bus = MemoryBus(self.clock, streams=STREAMS)

    async def publish(self, envelope: Envelope[Any]) -> int:
        return self.bus.publish(envelope)

    async def pull(self, durable: Durable, count: int) -> list[Delivery]:
        got = self.bus.pull(durable, count)
        assert len(got) == count
        return got

    async def left(self, durable: Durable) -> tuple[int, int]:
        found = self.bus.durables[durable.name]
        return int(found.can_deliver), len(found.unacked)

    async def pass_ack_wait(self, durable: Durable) -> None:
        self.clock.advance(durable.ack_wait_seconds)
        self.bus.expire()

    async def take_over(self, durable: Durable) -> None:
        self.bus.durables[durable.name].reset()

    async def read(
        self, stream: str, filters: Sequence[str], count: int, *, after: int | None = None, is_state: bool = False
    ) -> list[Delivery]:
        return self.bus.read(self.bus.open_reader(stream, filters, after=after, is_state=is_state), count)

    async def answer(self, kind: type[Ask], answer: Callable[[Any], Shape | Refused]) -> None:
        self.bus.answer(kind, lambda ask, reply: reply(answer(ask)))

    async def ask(self, ask: Ask) -> Any:
        got: list[Any] = []
        self.bus.ask(ask, got.append)
        if isinstance(got[0], Refused):
            raise got[0]
        return got[0]


def _name(behaviour: Callable[..., Any]) -> str:
    return behaviour.__name__


@pytest.mark.parametrize("behaviour", UNITS, ids=_name)
async def test_units_in_memory(behaviour: Callable[[Any], Awaitable[None]]) -> None:
    await behaviour(MemoryUnitsRig())


@pytest.mark.parametrize("behaviour", BUS, ids=_name)
async def test_bus_in_memory(behaviour: Callable[[Any], Awaitable[None]]) -> None:
    await behaviour(MemoryBusRig())
