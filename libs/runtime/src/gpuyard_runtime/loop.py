"""The loop of a service: gathers what waits into units of work, one after the other, and does the waiting that the dispatcher asks for.

Each durable and each reader is a lane. A lane that must wait is paused and keeps its order, the others go on. Deliveries that are held
longer than a third of their acknowledgement time are touched, so that the bus does not deliver them again meanwhile.

While the database is away, everything waits that would change something; asks that change nothing are still answered, so that whoever
only wants to say "all is as it was" is heard. The database is probed with growing pauses.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Generic, TypeVar

from gpuyard_runtime.dispatch import Dispatcher, Rest, pause_after
from gpuyard_runtime.faults import Unavailable
from gpuyard_runtime.health import Health
from gpuyard_runtime.metrics import Metrics
from gpuyard_runtime.service import Handler, Service, Tick
from gpuyard_runtime.store import Store
from gpuyard_runtime.work import Beat, Delivery, Garbled, Handled, Work, nothing, work_of

S = TypeVar("S", bound=Store)

LONGEST_AWAY_PAUSE_SECONDS = 2.0
READ_AT_ONCE = 20
"""Messages that are read in one go while the database has a unit: so few that its answer hardly waits."""


@dataclass
class Lane:
    """Deliveries of one durable or reader, in order: first those that were `read` and are work now, then those as they `came`.

    `refill` asks for more.
    """

    name: str
    handlers: Mapping[Any, Handler[Any]]
    is_guarded: bool
    read: deque[Work] = field(default_factory=deque[Work])
    came: deque[Delivery] = field(default_factory=deque[Delivery])
    refill: Callable[[], None] = nothing
    paused_until: float = 0.0

    def __len__(self) -> int:
        return len(self.read) + len(self.came)


class Loop(Generic[S]):
    """Feeds the dispatcher. `run` returns when stopped, and raises Fenced, Fatal or what nobody foresaw."""

    def __init__(
        self,
        service: Service[S],
        dispatcher: Dispatcher[S],
        health: Health,
        metrics: Metrics,
        new_id: Callable[[], str],
        *,
        unit_size: int,
        probe: Callable[[], Awaitable[None]],
    ) -> None:
        self._probe = probe
        self._service = service
        self._dispatcher = dispatcher
        self._health = health
        self._metrics = metrics
        self._new_id = new_id
        self.unit_size = unit_size
        self._lanes: list[Lane] = []
        self._front: deque[Work] = deque()
        self._beats: set[str] = set()
        self._current: list[Work] = []
        self._woken = asyncio.Event()
        self._is_stopping = False
        self._is_reading_ahead = False
        self._away_tries = 0
        self._away_until = 0.0
        self._away_error: BaseException | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._duties: deque[Callable[[], Any]] = deque()

    def add_lane(self, name: str, handlers: Mapping[Any, Handler[Any]], *, is_guarded: bool) -> Lane:
        """A new lane; fill it with :meth:`arrive`."""
        lane = Lane(name, handlers, is_guarded)
        self._lanes.append(lane)
        return lane

    def arrive(self, lane: Lane, delivery: Delivery) -> None:
        """A message came."""
        delivery.lane = lane.name
        lane.came.append(delivery)
        self._woken.set()

    def put(self, work: Work) -> None:
        """Something without a lane: an ask, an act, a beat."""
        self._front.append(work)
        self._woken.set()

    def do_between(self, duty: Callable[[], Any]) -> None:
        """Await `duty()` between two units; its errors count as the database's."""
        self._duties.append(duty)
        self._woken.set()

    @property
    def waiting(self) -> int:
        """Deliveries that wait here."""
        return sum(len(lane) for lane in self._lanes)

    @property
    def in_front(self) -> int:
        """Asks, acts and beats that wait here."""
        return len(self._front)

    def start_ticks(self) -> None:
        """Let the service's ticks beat, each first after its own interval."""
        for tick in self._service.ticks:
            self._schedule(tick)

    def _schedule(self, tick: Tick[S]) -> None:
        self._timers[tick.name] = asyncio.get_running_loop().call_later(tick.seconds, self._beat, tick)

    def _beat(self, tick: Tick[S]) -> None:
        self._schedule(tick)
        if tick.name not in self._beats:  # a beat that still waits stands for this one too
            self._beats.add(tick.name)
            self.put(Beat.of(tick, self._new_id()))

    def stop(self) -> None:
        """Take nothing more from the lanes; what stands before them (asks, acts) is still done, then `run` returns."""
        self._is_stopping = True
        for timer in self._timers.values():
            timer.cancel()
        self._woken.set()

    def touch(self) -> None:
        """Tell the bus that everything held here is still being worked on."""
        for lane in self._lanes:
            for delivery in lane.came:
                delivery.touch()
        for item in chain(self._current, *(lane.read for lane in self._lanes)):
            if isinstance(item, (Handled, Garbled)):
                item.delivery.touch()

    async def run(self) -> None:
        """Work until stopped."""
        while True:
            self._woken.clear()
            if self._away_error is not None and not self._is_pausing():
                await self._try_again()
                continue
            items = self._gather()
            if items and self._away_error is not None:
                self._forget_beats(items)
                self._dispatcher.without_database(items, self._away_error)
                await asyncio.sleep(0)
            elif items:
                await self._unit(items)
                await asyncio.sleep(0)  # a unit that needs no database must not starve the connection
            elif self._duties and self._away_error is None:
                await self._duty(self._duties.popleft())
            elif self._is_stopping:
                return
            else:
                await self._woken.wait()

    def _gather(self) -> list[Work]:
        """What waits, up to a unit's size: first what has no lane, then the lanes, beginning with another one each time."""
        items: list[Work] = []
        while self._front and len(items) < self.unit_size:
            items.append(self._front.popleft())
        if self._is_stopping or self._away_error is not None:
            return items
        now = asyncio.get_running_loop().time()
        if len(self._lanes) > 1:
            self._lanes.append(self._lanes.pop(0))
        for lane in self._lanes:
            if lane.paused_until <= now:
                self._take(lane, items)
        return items

    def _take(self, lane: Lane, items: list[Work]) -> None:
        read = lane.read
        while len(items) < self.unit_size:
            if read:
                items.append(read.popleft())
            elif not self._read(lane, self.unit_size - len(items)):
                break
        lane.refill()

    def _read(self, lane: Lane, limit: int) -> int:
        """Make work of the next deliveries, `limit` at most; what the service has no handler for is done. Returns how many it saw."""
        came = lane.came
        for number in range(limit):
            if not came:
                return number
            delivery = came.popleft()
            work = work_of(self._service, delivery, lane.handlers, is_guarded=lane.is_guarded)
            if work is None:
                delivery.ack()
                self._metrics.ignored.inc()
            else:
                lane.read.append(work)
        return limit

    def _read_ahead(self) -> None:
        """While the database has the open unit, read what the next one will take."""
        lane = next((lane for lane in self._lanes if lane.came and len(lane.read) < self.unit_size), None)
        self._is_reading_ahead = lane is not None and bool(self._current)
        if lane is not None and self._is_reading_ahead:
            self._read(lane, READ_AT_ONCE)
            asyncio.get_running_loop().call_soon(self._read_ahead)

    async def _unit(self, items: list[Work]) -> None:
        self._current = items
        self._forget_beats(items)
        began = asyncio.get_running_loop().time()
        if not self._is_reading_ahead:
            self._is_reading_ahead = True
            asyncio.get_running_loop().call_soon(self._read_ahead)
        rest = await self._dispatcher.process(items)
        self._current = []
        self._metrics.unit_seconds.observe(asyncio.get_running_loop().time() - began)
        if rest.items or rest.pauses or self._is_anything_paused():
            self._put_back(rest)
        if rest.error is None:
            self._well()
        else:
            self._away(rest.error)

    def _forget_beats(self, items: list[Work]) -> None:
        self._beats.difference_update(item.name.removeprefix("tick.") for item in items if isinstance(item, Beat))

    def _is_anything_paused(self) -> bool:
        return any(lane.paused_until for lane in self._lanes)

    def _put_back(self, rest: Rest) -> None:
        now = asyncio.get_running_loop().time()
        by_name = {lane.name: lane for lane in self._lanes}
        for item in reversed(rest.items):
            by_name[item.lane].read.appendleft(item)
        for lane in self._lanes:
            pause = rest.pauses.get(lane.name)
            if pause is not None:
                lane.paused_until = now + pause
                asyncio.get_running_loop().call_later(pause, self._woken.set)
            elif lane.paused_until and lane.paused_until <= now:
                lane.paused_until = 0.0
                self._health.tell(lane.name, None)

    def _well(self) -> None:
        if self._away_tries:
            self._away_tries = 0
            self._health.tell("database", None)

    def _is_pausing(self) -> bool:
        return asyncio.get_running_loop().time() < self._away_until

    def _away(self, error: BaseException) -> None:
        """Nothing that needs the database is tried until the pause is over."""
        self._away_tries += 1
        self._away_error = error
        pause = min(pause_after(self._away_tries), LONGEST_AWAY_PAUSE_SECONDS)
        self._away_until = asyncio.get_running_loop().time() + pause
        asyncio.get_running_loop().call_later(pause, self._woken.set)
        self._health.tell("database", str(error))

    async def _try_again(self) -> None:
        """See whether the database is back; only what then succeeds says that all is well."""
        try:
            await self._probe()
            self._away_error = None
        except Unavailable as error:
            self._away(error)

    async def _duty(self, duty: Callable[[], Any]) -> None:
        try:
            await duty()
            self._well()
        except Unavailable as error:
            self._away(error)
