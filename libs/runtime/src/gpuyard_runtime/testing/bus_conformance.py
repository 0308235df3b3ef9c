"""What every bus must do, run against memory and nats-server: a fake is worth what it has in common with the real.

Each behaviour is one coroutine over a *rig*, which a test module makes for its bus with :data:`STREAMS`; :data:`BUS` lists them all.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, ClassVar, Protocol

from gpuyard_contracts.envelope import Ask, Envelope, Payload, Shape
from gpuyard_contracts.messages.asks import ProblemV1
from gpuyard_contracts.topology import Durable, Stream

from gpuyard_runtime.faults import Refused, Unavailable
from gpuyard_runtime.ids import derive
from gpuyard_runtime.saying import enveloped
from gpuyard_runtime.work import Delivery

AT = datetime(2030, 1, 1, tzinfo=UTC)

STREAMS = (
    Stream("SUITE", ("suite.evt.>",), "suite"),
    Stream("SUITE_QUEUE", ("suite.cmd.>",), "suite", retention="workqueue"),
    Stream("SUITE_STATE", ("suite.state.>",), "suite", max_age_seconds=0, is_state=True),
)
DURABLE = Durable("suite", "SUITE", "suite-wanted", ("suite.evt.wanted.>",), ack_wait_seconds=1.0)
QUEUE = Durable("suite", "SUITE_QUEUE", "suite-queue", ("suite.cmd.>",))


class WantedV1(Payload):
    """An event that the durable takes."""

    SUBJECT: ClassVar[str] = "suite.evt.wanted.v1.{name}"

    name: str


class OtherV1(Payload):
    """An event of the same stream that it does not."""

    SUBJECT: ClassVar[str] = "suite.evt.other.v1.{name}"

    name: str


class OrderV1(Payload):
    """An order in a work queue."""

    SUBJECT: ClassVar[str] = "suite.cmd.order.v1.{name}"

    name: str


class StateV1(Payload):
    """A state: only the last of each name is kept."""

    SUBJECT: ClassVar[str] = "suite.state.v1.{name}"

    name: str
    version: int


class Echo(Ask):
    """The suite's question."""

    SUBJECT: ClassVar[str] = "suite.ask.echo.{name}"
    REPLY: ClassVar[type[Shape]] = ProblemV1

    name: str


def said(payload: Payload, number: int = 0) -> Envelope[Any]:
    """The envelope of a payload; the same payload and number have the same id."""
    trace = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    return enveloped(
        payload, source="suite", at=AT, event_id=derive("suite", payload.subject(), str(number)), correlation_id="ä – 1", traceparent=trace
    )


def wanted(number: int) -> Envelope[Any]:
    """An event for the durable."""
    return said(WantedV1(name=f"w{number}"))


class BusRig(Protocol):
    """One bus with the topology's streams and the durables that a behaviour names."""

    async def publish(self, envelope: Envelope[Any]) -> int:
        """Publish on a stream; returns the sequence. Raises Unavailable."""
        ...

    async def pull(self, durable: Durable, count: int) -> list[Delivery]:
        """Take exactly `count` messages from a durable, which is made if it is missing."""
        ...

    async def left(self, durable: Durable) -> tuple[int, int]:
        """How many messages are not delivered yet, and how many are delivered and not acknowledged."""
        ...

    async def pass_ack_wait(self, durable: Durable) -> None:
        """Let a durable's acknowledgement time pass."""
        ...

    async def take_over(self, durable: Durable) -> None:
        """A new process takes the durable over."""
        ...

    async def read(
        self, stream: str, filters: Sequence[str], count: int, *, after: int | None = None, is_state: bool = False
    ) -> list[Delivery]:
        """The first `count` messages that a new reader gets."""
        ...

    async def answer(self, kind: type[Ask], answer: Callable[[Any], Shape | Refused]) -> None:
        """Answer asks of a class."""
        ...

    async def ask(self, ask: Ask) -> Any:
        """Ask. Raises Refused or Unavailable."""
        ...


async def what_is_published_arrives_as_it_was(rig: BusRig) -> None:
    """Envelope out, the same envelope in, only for the filter that wants it."""
    await rig.publish(said(OtherV1(name="x")))
    sequence = await rig.publish(wanted(1))
    [got] = await rig.pull(DURABLE, 1)
    assert (got.stream, got.sequence, got.lane) == ("SUITE", sequence, DURABLE.name)
    assert (got.subject, got.headers, got.body) == (wanted(1).subject, wanted(1).headers(), wanted(1).body())
    assert got.arrived.tzinfo is not None
    got.ack()


async def the_same_id_twice_is_one_message(rig: BusRig) -> None:
    """A repeated publish gets the first one's sequence."""
    assert await rig.publish(wanted(1)) == await rig.publish(wanted(1))
    await rig.publish(wanted(2))
    got = await rig.pull(DURABLE, 2)
    assert got[1].sequence == got[0].sequence + 1


async def what_is_not_acknowledged_comes_again_and_what_is_does_not(rig: BusRig) -> None:
    """Exactly the unacknowledged ones, after the acknowledgement time."""
    for number in range(3):
        await rig.publish(wanted(number))
    first, second, third = await rig.pull(DURABLE, 3)
    first.ack()
    third.ack()
    await rig.pass_ack_wait(DURABLE)
    [again] = await rig.pull(DURABLE, 1)
    assert again.sequence == second.sequence
    again.ack()


async def a_new_process_gets_what_the_dead_one_had_taken(rig: BusRig) -> None:
    """At once and in order, without waiting for the acknowledgement time."""
    durable = replace(DURABLE, ack_wait_seconds=600.0)
    for number in range(4):
        await rig.publish(wanted(number))
    taken = await rig.pull(durable, 4)
    taken[0].ack()
    await rig.take_over(durable)
    again = await rig.pull(durable, 3)
    assert [got.sequence for got in again] == [got.sequence for got in taken[1:]]


async def a_work_queue_hands_each_message_over_once(rig: BusRig) -> None:
    """An acknowledged order is gone from its stream."""
    for name in ("a", "b"):
        await rig.publish(said(OrderV1(name=name)))
    for got in await rig.pull(QUEUE, 2):
        got.ack()
    assert await rig.left(QUEUE) == (0, 0)


async def a_reader_gets_everything_behind_a_sequence_in_order(rig: BusRig) -> None:
    """As a page of history, and what comes after."""
    sequences = [await rig.publish(wanted(number)) for number in range(5)]
    got = await rig.read("SUITE", ["suite.evt.>"], 3, after=sequences[1])
    assert [found.sequence for found in got] == sequences[2:]


async def a_state_reader_gets_the_last_of_each_subject(rig: BusRig) -> None:
    """Old versions are not to be seen."""
    for name, version in (("a", 1), ("b", 1), ("a", 2)):
        await rig.publish(said(StateV1(name=name, version=version), version))
    got = await rig.read("SUITE_STATE", ["suite.state.>"], 2, is_state=True)
    assert [(found.subject[-1], b'"version":2' in found.body) for found in got] == [("b", False), ("a", True)]


async def an_ask_is_answered_refused_or_unanswered(rig: BusRig) -> None:
    """The three ways it can end."""
    try:
        await rig.ask(Echo(name="early"))
    except Unavailable:
        pass
    else:
        raise AssertionError("nobody could have answered")

    def answer(ask: Echo) -> Shape | Refused:
        return Refused("unwelcome", ask.name) if ask.name == "stranger" else ProblemV1(problem=ask.name)

    await rig.answer(Echo, answer)
    assert (await rig.ask(Echo(name="friend"))).problem == "friend"
    try:
        await rig.ask(Echo(name="stranger"))
    except Refused as refused:
        assert (refused.reason, refused.detail) == ("unwelcome", "stranger")
    else:
        raise AssertionError("the refusal was lost")


BUS: tuple[Callable[[Any], Awaitable[None]], ...] = (
    what_is_published_arrives_as_it_was,
    the_same_id_twice_is_one_message,
    what_is_not_acknowledged_comes_again_and_what_is_does_not,
    a_new_process_gets_what_the_dead_one_had_taken,
    a_work_queue_hands_each_message_over_once,
    a_reader_gets_everything_behind_a_sequence_in_order,
    a_state_reader_gets_the_last_of_each_subject,
    an_ask_is_answered_refused_or_unanswered,
)
