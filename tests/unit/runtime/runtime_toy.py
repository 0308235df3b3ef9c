"""A toy service that the runtime's tests share: parcels are announced, counted and sent on."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from gpuyard_contracts.envelope import Ask, Envelope, Payload, Shape
from gpuyard_runtime.faults import RetryLater
from gpuyard_runtime.service import Service, Tick, Tx
from gpuyard_runtime.store import Store
from gpuyard_runtime.table import Column


class ParcelSeenV1(Payload):
    """A parcel came by. Its weight decides what the handler does with it."""

    SUBJECT: ClassVar[str] = "gpuyard.evt.toy.parcel.seen.v1._.{parcel}"

    parcel: str
    weight: int = 1


class ParcelSentV1(Payload):
    """A parcel was sent on."""

    SUBJECT: ClassVar[str] = "gpuyard.evt.toy.parcel.sent.v1._.{parcel}"

    parcel: str
    total: int


class WeatherV1(Payload):
    """Heard, not handled."""

    SUBJECT: ClassVar[str] = "gpuyard.evt.toy.weather.changed.v1._.{place}"

    place: str
    is_fair: bool


class TotalV1(Shape):
    """How much a parcel weighed in total."""

    total: int


class AskTotal(Ask):
    """How much did this parcel weigh?"""

    SUBJECT: ClassVar[str] = "gpuyard.ask.toy.total.{parcel}"
    REPLY: ClassVar[type[Shape]] = TotalV1

    parcel: str


class AskAgain(Ask):
    """The same without a unit."""

    SUBJECT: ClassVar[str] = "gpuyard.ask.toy.again.{parcel}"
    REPLY: ClassVar[type[Shape]] = TotalV1

    parcel: str


@dataclass(frozen=True, slots=True)
class Parcel:
    """One parcel."""

    id: str
    total: int
    is_ended: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """One line of the history."""

    parcel: str
    weight: int


class ToyStore(Store):
    """Parcels by id, and what was seen of them."""

    def __init__(self) -> None:
        super().__init__()
        self.parcels = self.table(
            "parcels",
            lambda row: row.id,
            (Column("id", "text", is_key=True), Column("total", "int8"), Column("is_ended", "bool")),
            lambda record: Parcel(**record),
            keep=lambda row: not row.is_ended,
            where="not is_ended",
        )
        self.by_total = self.parcels.index(lambda row: row.total)
        self.seen = self.journal("seen", (Column("parcel", "text"), Column("weight", "int8")))
        self.is_raining = True


def on_parcel_seen(event: Envelope[ParcelSeenV1], tx: Tx[ToyStore]) -> None:
    """Add the weight. Weight 13 is a bug, 666 is poison, 1000 must wait until it is fair, 99 ends the parcel."""
    seen = event.data
    old = tx.store.parcels.get(seen.parcel) or Parcel(seen.parcel, 0)
    new = replace(old, total=old.total + seen.weight, is_ended=seen.weight == 99)
    tx.store.parcels.put(new)
    tx.store.seen.add(Seen(seen.parcel, seen.weight))
    tx.say(ParcelSentV1(parcel=new.id, total=new.total))
    if seen.weight == 13:
        raise ZeroDivisionError("a bug")
    if seen.weight == 666:
        tx.reject("cursed", "the parcel is cursed")
    if seen.weight == 1000 and tx.store.is_raining:
        raise RetryLater("too heavy to carry in the rain")


def on_weather(event: Envelope[WeatherV1], tx: Tx[ToyStore]) -> None:
    """Remember it; not a row, so it is not undone (which does no harm here)."""
    tx.store.is_raining = not event.data.is_fair


def total(ask: AskTotal, tx: Tx[ToyStore]) -> TotalV1:
    """Answer, after writing the question down."""
    if ask.parcel not in tx.store.parcels:
        tx.reject("unknown-parcel", ask.parcel)
    tx.store.seen.add(Seen(ask.parcel, 0))
    return TotalV1(total=tx.store.parcels[ask.parcel].total)


async def total_again(ask: AskAgain, reading: Any) -> TotalV1:
    """Answer from memory."""
    return TotalV1(total=reading.store.parcels[ask.parcel].total)


def every_sweep(tx: Tx[ToyStore]) -> None:
    """Send everything on again."""
    for parcel in tx.store.parcels.values():
        tx.say(ParcelSentV1(parcel=parcel.id, total=parcel.total), key=parcel.id)


def toy(**changes: Any) -> Service[ToyStore]:
    """The toy service, with changes."""
    given: dict[str, Any] = {
        "name": "toy",
        "store": ToyStore,
        "migrations": Path(__file__).parent / "toy_migrations",
        "schema": "toy",
        "handlers": {ParcelSeenV1: on_parcel_seen},
        "hears": {WeatherV1: on_weather},
        "asks": {AskTotal: total},
        "inquiries": {AskAgain: total_again},
        "ticks": (Tick("sweep", 5.0, every_sweep, when=lambda store: len(store.parcels) > 0),),
    }
    return Service(**(given | changes))
