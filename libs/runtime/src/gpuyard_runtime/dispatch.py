"""The delivery policy: from what is waiting to committed units, each item exactly once in effect.

All items that are waiting make one unit and one commit. If one cannot be handled, the unit is undone and taken again in parts until the
culprit stands alone: what `RetryLater` asks for waits at the head of its lane (order kept), poison goes to the dead letters, anything
else is tried three times first. The dead letter is said by the very unit that takes the inbox key, so there is exactly one.

This code never sleeps and knows neither NATS nor PostgreSQL: the loop (:mod:`gpuyard_runtime.loop`) and the simulation
(:mod:`gpuyard_runtime.testing.world`) drive the same :meth:`Dispatcher.process`, and do the waiting.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from gpuyard_contracts.envelope import Envelope

from gpuyard_runtime.clock import Clock
from gpuyard_runtime.dead_letters import DeadLetterV1
from gpuyard_runtime.faults import Fatal, Fenced, Poison, RetryLater, Unavailable
from gpuyard_runtime.service import Origin, Service, Tx
from gpuyard_runtime.store import Store
from gpuyard_runtime.units import Outlet, Units
from gpuyard_runtime.work import Asked, Handled, Work

S = TypeVar("S", bound=Store)

TRIES = 3
"""How often an item is tried that fails for no reason we know."""
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 30.0


class AfterUnitFailed(Exception):
    """The service's decision over the whole state failed; the items are not to blame."""


class Watch(Protocol):
    """Hears what happened, for logs, metrics and traces."""

    def committed(self, done: Sequence[Work], repeated: int, tx: Tx[Any]) -> None:
        """A unit has committed: what was done, how many were repeats, and what was said."""
        ...

    def gave_up(self, item: Work, error: BaseException) -> None:
        """An item failed for good."""
        ...

    def waits(self, item: Work, error: BaseException) -> None:
        """An item is to be tried again."""
        ...

    def undecided(self, error: BaseException | None) -> None:
        """`after_unit` failed (or, with None, works again)."""
        ...


@dataclass(slots=True)
class Rest:
    """What `process` could not do now: items to be put back at the head of their lanes, in order, and how long each lane should pause.

    `error` is set where not a lane but the database makes everything wait.
    """

    items: list[Work] = field(default_factory=list["Work"])
    pauses: dict[str, float] = field(default_factory=dict[str, float])
    error: BaseException | None = None


def pause_after(tries: int) -> float:
    """Seconds to wait after this many failed tries: doubling from 0.1 s, at most 30 s."""
    return min(FIRST_PAUSE_SECONDS * 2 ** min(tries - 1, 12), LONGEST_PAUSE_SECONDS)


class Dispatcher(Generic[S]):
    """Runs items through units of work. One call of `process` at a time."""

    def __init__(
        self,
        service: Service[S],
        units: Units[S],
        outlet: Outlet,
        clock: Clock,
        new_id: Callable[[], str],
        watch: Watch,
        spawn: Callable[[Callable[[], Awaitable[None]]], None],
    ) -> None:
        self._service = service
        self._units = units
        self._outlet = outlet
        self._clock = clock
        self._new_id = new_id
        self._watch = watch
        self._spawn = spawn
        self._at: Work | None = None
        self._is_undecided = False

    async def process(self, items: Sequence[Work]) -> Rest:
        """Do all of it that can be done now. Raises Fenced and Fatal only."""
        rest = Rest()
        parts: list[list[Work]] = [list(items)]
        while parts:
            part = [item for item in parts.pop() if not self._waits(item, rest)]
            if not part:
                continue
            try:
                await self._attempt(part)
            except Exception as error:
                await self._failed(part, parts, error, rest)
        return rest

    def _waits(self, item: Work, rest: Rest) -> bool:
        """Whether the item's lane waits; then it is put back behind what it waits for."""
        if item.lane in rest.pauses or (rest.error is not None and item.lane):
            rest.items.append(item)
            return True
        return False

    def _interrupt(self, part: list[Work], parts: list[list[Work]], error: BaseException, rest: Rest) -> None:
        """The database is away: whoever waits for an answer gets one, deliveries are kept for later."""
        rest.error = error
        remaining = [*part, *(item for later in reversed(parts) for item in later)]
        parts.clear()
        rest.items.extend(item for item in remaining if item.lane)
        self.without_database([item for item in remaining if not item.lane], error)

    def without_database(self, items: Sequence[Work], error: BaseException) -> None:
        """Do what changes and says nothing (a heartbeat that all is as it was); tell the others that it cannot be done now."""
        for item in items:
            opened: list[Tx[S]] = []
            if not any(self._units.idle(partial(self._apply_alone, apply, item.origin, opened)) for apply in self._ways(item)):
                item.give_up(error)
                continue
            item.settle()
            for effect in opened[-1].effects:
                self._spawn(effect)

    def _ways(self, item: Work) -> list[Callable[[Tx[S]], None]]:
        """How to do it: as always; else, for an ask, as the service answers it meanwhile."""
        ways: list[Callable[[Tx[S]], None]] = [item.apply]
        if isinstance(item, Asked):
            meanwhile = self._service.meanwhile.get(type(item.ask))
            if meanwhile is not None:
                ways.append(partial(item.apply_as, meanwhile))
        return ways

    def _apply_alone(
        self, apply: Callable[[Tx[S]], None], origin: Origin, opened: list[Tx[S]], fresh: Collection[str]
    ) -> Sequence[Envelope[Any]]:
        tx = Tx(self._units.store, self._clock.now(), self._service.name, self._new_id())
        opened.append(tx)
        tx.turn_to(origin)
        apply(tx)
        return tx.said

    async def _failed(self, part: list[Work], parts: list[list[Work]], error: Exception, rest: Rest) -> None:
        """Take a failed unit apart, or decide about the one item in it."""
        if isinstance(error, (Fenced, Fatal)):
            raise error
        if isinstance(error, Unavailable):
            self._interrupt(part, parts, error, rest)
        elif len(part) > 1:
            parts.extend(reversed(_split(part, self._at)))
        else:
            try:
                await self._alone(part[0], error, rest)
            except Unavailable as away:
                self._interrupt(part, parts, away, rest)

    async def _attempt(self, part: list[Work]) -> None:
        """One unit; without the service's decision where that is what fails."""
        try:
            await self._unit(part, is_deciding=True)
        except AfterUnitFailed as failed:
            self._undecided(failed.__cause__ or failed)
            await self._unit(part, is_deciding=False)

    async def _unit(self, part: list[Work], *, is_deciding: bool) -> None:
        await self._outlet.room()
        unit_id = self._new_id()
        done: list[Work] = []
        opened: list[Tx[S]] = []
        after_unit = self._service.after_unit if is_deciding else None

        def work(fresh: Collection[str]) -> Sequence[Envelope[Any]]:
            tx = Tx(self._units.store, self._clock.now(), self._service.name, unit_id)
            opened.append(tx)
            done.clear()  # the database may call this twice: what the first call did is undone
            unseen = set(fresh)
            for item in part:
                key = item.key
                if key is not None:
                    if key not in unseen:
                        continue
                    unseen.discard(key)
                self._at = item
                tx.turn_to(item.origin)
                item.apply(tx)
                done.append(item)
            self._at = None
            if after_unit is not None:
                tx.turn_to(Origin(unit_id))
                _decide(after_unit, tx)
            return tx.said

        self._at = None
        committed = await self._units.run(list({item.key: None for item in part if item.key is not None}), work)
        self._outlet.take(committed)
        for item in part:
            item.settle()
        self._watch.committed(done, len(part) - len(done), opened[-1])
        if after_unit is not None and self._is_undecided:
            self._undecided(None)
        for effect in opened[-1].effects:
            self._spawn(effect)

    async def _alone(self, item: Work, error: Exception, rest: Rest) -> None:
        """What to do with an item that failed alone."""
        if self._at is None and self._service.after_unit is not None and await self._is_decision_to_blame(item, error):
            return
        item.tries += 1
        is_waiting = isinstance(error, RetryLater) or (item.tries < TRIES and not isinstance(error, Poison))
        if item.lane and is_waiting:
            self._watch.waits(item, error)
            rest.pauses[item.lane] = pause_after(item.tries)
            rest.items.append(item)
            return
        await self._bury(item, error)

    async def _is_decision_to_blame(self, item: Work, error: Exception) -> bool:
        """The handler went well and the database refused: see whether it takes the item without the service's decision."""
        try:
            await self._unit([item], is_deciding=False)
        except (Fenced, Fatal, Unavailable):
            raise
        except Exception:  # the item itself is to blame; `error` says why
            return False
        self._undecided(error)
        return True

    async def _bury(self, item: Work, error: Exception) -> None:
        """Give the item up: its inbox key and its dead letter commit together."""
        dead = item.give_up(error)
        self._watch.gave_up(item, error)
        if dead is None:
            return
        keys = [] if item.key is None else [item.key]
        try:
            committed = await self._units.run(keys, partial(self._write_off, item, dead, self._service.on_given_up))
        except (Fenced, Fatal, Unavailable):
            raise
        except Exception:  # the service's answer fails too: then only the letter is written
            committed = await self._units.run(keys, partial(self._write_off, item, dead, None))
        self._outlet.take(committed)
        item.settle()

    def _write_off(
        self, item: Work, dead: DeadLetterV1, answer: Callable[[Envelope[Any], Tx[S]], None] | None, fresh: Collection[str]
    ) -> Sequence[Envelope[Any]]:
        if item.key is not None and item.key not in fresh:
            return []
        tx = Tx(self._units.store, self._clock.now(), self._service.name, self._new_id())
        tx.turn_to(item.origin)
        tx.say(dead, key="dead-letter")
        if answer is not None and isinstance(item, Handled):
            answer(item.event, tx)
        return tx.said

    def _undecided(self, error: BaseException | None) -> None:
        self._is_undecided = error is not None
        self._watch.undecided(error)


def _decide(after_unit: Callable[[Tx[S]], None], tx: Tx[S]) -> None:
    try:
        after_unit(tx)
    except Exception as error:
        raise AfterUnitFailed from error


def _split(part: list[Work], culprit: Work | None) -> list[list[Work]]:
    """Around the culprit where it is known (its handler raised), else in halves (the database refused the unit as a whole)."""
    if culprit is None:
        middle = len(part) // 2
        return [part[:middle], part[middle:]]
    at = next(number for number, item in enumerate(part) if item is culprit)
    return [found for found in (part[:at], [culprit], part[at + 1 :]) if found]
