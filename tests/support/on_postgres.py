"""One service on a real database without a bus: fed by hand through the real dispatcher and the real units."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar

import asyncpg
from gpuyard_contracts.envelope import Ask, Envelope, Payload
from gpuyard_runtime.clock import ManualClock
from gpuyard_runtime.dispatch import Dispatcher
from gpuyard_runtime.faults import Refused
from gpuyard_runtime.ids import derive
from gpuyard_runtime.migrate import migrate
from gpuyard_runtime.postgres import PostgresUnits
from gpuyard_runtime.saying import enveloped
from gpuyard_runtime.service import Reading, Service
from gpuyard_runtime.store import Store
from gpuyard_runtime.units import Committed
from gpuyard_runtime.work import Asked, Beat, Delivery, Handled, Work

S = TypeVar("S", bound=Store)


class Nobody:
    """Outlet, relay and watch where nobody listens; keeps what went wrong."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []

    def take(self, unit: Committed) -> None:
        """Nobody hears it."""

    async def room(self) -> None:
        """There is always room."""

    def take_done(self) -> list[int]:
        """Nothing is ever published."""
        return []

    def put_back_done(self, done: list[int]) -> None:
        """There is nothing to put back."""

    def holds(self, outbox_id: int) -> bool:
        """Every row is known."""
        return True

    def take_row(self, outbox_id: int, messages: Sequence[Any]) -> None:
        """Nobody hears it."""

    def committed(self, *told: Any) -> None:
        """Nothing to note."""

    def gave_up(self, item: Work, error: BaseException) -> None:
        """Keep the error."""
        self.errors.append(error)

    def waits(self, item: Work, error: BaseException) -> None:
        """Keep the error."""
        self.errors.append(error)

    def undecided(self, error: BaseException | None) -> None:
        """Keep the error."""
        if error is not None:
            self.errors.append(error)


class OnPostgres(Generic[S]):
    """A service on its schema. `events` is all that was said to it, `errors` what its handlers and the database refused."""

    def __init__(self, made: Service[S], dsn: str, pool: asyncpg.Pool, now: datetime) -> None:
        self.service = made
        self.db = pool
        self.clock = ManualClock(now)
        self.events: list[Envelope[Any]] = []
        self._dsn = dsn
        self._nobody = Nobody()
        self._ids = 0
        self._open()

    def _open(self) -> None:
        made = self.service
        self.units = PostgresUnits(made.store, self._dsn, made.schema, made.name, self.clock, self._nobody, epoch=None)
        self._dispatcher = Dispatcher(made, self.units, self._nobody, self.clock, self._new_id, self._nobody, lambda effect: None)

    @property
    def store(self) -> S:
        """The service's store."""
        return self.units.store

    @property
    def errors(self) -> list[BaseException]:
        """What went wrong so far."""
        return self._nobody.errors

    async def start(self) -> None:
        """Load, and the first unit."""
        await self.units.open()
        if self.service.on_load is not None:
            await self._dispatcher.process([Beat("on_load", self.service.on_load, self._new_id())])

    async def restart(self) -> None:
        """Start anew on what was committed."""
        await self.units.close()
        self._open()
        await self.start()

    async def feed(self, *payloads: Payload, is_handled: bool = True) -> None:
        """Said to the service, and (unless it is still on its way) handled, in one unit."""
        made = [enveloped(data, source="test", at=self.clock.now(), event_id=self._new_id()) for data in payloads]
        self.events += made
        if is_handled:
            await self.deliver(*made)

    async def deliver(self, *events: Envelope[Any]) -> None:
        """Deliver envelopes, maybe again; what waits is put back by nobody."""
        rest = await self._dispatcher.process([self._work(event) for event in events])
        assert rest.error is None

    async def tick(self, name: str) -> None:
        """One beat of a tick."""
        await self._dispatcher.process([Beat.of(self.service.tick(name), self._new_id())])

    async def ask(self, ask: Ask) -> Any:
        """The answer to an ask or an inquiry. Raises Refused."""
        kind = type(ask)
        if kind in self.service.inquiries:
            return await self.service.inquiries[kind](ask, Reading(self.store, self.db, self.clock.now()))
        got: list[Any] = []
        await self._dispatcher.process([Asked(ask, self.service.asks[kind], got.append, self._new_id(), None)])
        if isinstance(got[0], Refused):
            raise got[0]
        return got[0]

    def _work(self, event: Envelope[Any]) -> Work:
        delivery = Delivery(event.subject, event.headers(), event.body(), "S", 1, self.clock.now(), lane="lane")
        return Handled(self.service, delivery, event, self.service.handlers[type(event.data)], is_guarded=True)

    def _new_id(self) -> str:
        self._ids += 1
        return derive("on-postgres", self.service.name, str(self._ids))


def on_postgres(made: Service[S], dsn: str, now: datetime, story: Callable[[OnPostgres[S]], Awaitable[None]]) -> None:
    """Run a story on a service with a fresh schema."""

    async def run() -> None:
        await migrate(dsn, made.schema, made.name, made.migrations)
        async with asyncpg.create_pool(dsn, min_size=0, max_size=4, server_settings={"search_path": made.schema}) as pool:
            running = OnPostgres(made, dsn, pool, now)
            try:
                await running.start()
                await story(running)
            finally:
                await running.units.close()

    asyncio.run(run())
