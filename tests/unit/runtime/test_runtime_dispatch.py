"""The delivery policy on the memory harness: undo, culprits, waiting, repeats, dead letters, crashes."""

from dataclasses import replace

import pytest
from gpuyard_contracts.envelope import Envelope
from gpuyard_runtime.faults import Refused, Unavailable
from gpuyard_runtime.service import Tx
from gpuyard_runtime.testing import Crash, Harness

from tests.unit.runtime.runtime_toy import AskAgain, AskTotal, Parcel, ParcelSeenV1, ParcelSentV1, Seen, TotalV1, ToyStore, WeatherV1, toy


def seen(parcel: str, weight: int = 1) -> ParcelSeenV1:
    return ParcelSeenV1(parcel=parcel, weight=weight)


def test_a_batch_is_one_unit_with_its_rows_history_and_messages() -> None:
    h = Harness(toy())
    said = h.feed(seen("a", 2), seen("b", 3), seen("a", 4))
    assert said == [ParcelSentV1(parcel="a", total=2), ParcelSentV1(parcel="b", total=3), ParcelSentV1(parcel="a", total=6)]
    assert h.rows("parcels") == [Parcel("a", 6), Parcel("b", 3)]
    assert h.journal("seen") == [Seen("a", 2), Seen("b", 3), Seen("a", 4)]


def test_a_second_delivery_does_nothing() -> None:
    h = Harness(toy())
    event = h.envelope(seen("a", 2))
    assert len(h.feed(event, event)) == 1
    assert h.feed(event) == []
    assert h.rows("parcels") == [Parcel("a", 2)]


def test_poison_is_dead_lettered_alone_and_what_it_did_is_undone() -> None:
    h = Harness(toy())
    said = h.feed(seen("a"), seen("cursed", 666), seen("b"))
    assert [data.parcel for data in said if isinstance(data, ParcelSentV1)] == ["a", "b"]
    assert [(letter.reason, letter.original_subject) for letter in h.dlq] == [("cursed", "gpuyard.evt.toy.parcel.seen.v1._.cursed")]
    assert {row.id for row in h.rows("parcels")} == {"a", "b"}


def test_poison_delivered_twice_leaves_one_letter() -> None:
    h = Harness(toy())
    event = h.envelope(seen("cursed", 666))
    h.feed(event)
    h.feed(event)
    assert len(h.dlq) == 1


def test_an_unexplained_failure_is_tried_three_times_and_then_dead_lettered() -> None:
    h = Harness(toy(), is_strict=False)
    h.feed(seen("a"), seen("bug", 13), seen("b"))
    tries = 1
    while h.waiting:
        assert h.dlq == []
        h.retry()
        tries += 1
    assert tries == 3
    assert [letter.reason for letter in h.dlq] == ["handler-failed"]
    assert h.dlq[0].detail == "ZeroDivisionError: a bug"
    assert {row.id for row in h.rows("parcels")} == {"a", "b"}


def test_retry_later_holds_its_lane_in_order_for_as_long_as_it_takes() -> None:
    h = Harness(toy())
    h.feed(seen("a"), seen("heavy", 1000), seen("heavy", 1))
    for _ in range(5):
        h.retry()
    assert [data.parcel for data in h.said_of(ParcelSentV1)] == ["a"]
    h.feed(WeatherV1(place="here", is_fair=True))
    h.retry()
    assert h.said_of(ParcelSentV1)[1:] == [ParcelSentV1(parcel="heavy", total=1000), ParcelSentV1(parcel="heavy", total=1001)]
    assert h.dlq == []


def test_an_ask_is_answered_and_a_failing_one_refused_without_disturbing_others() -> None:
    h = Harness(toy())
    h.feed(seen("a", 7))
    assert h.ask(AskTotal(parcel="a")).total == 7
    with pytest.raises(Refused, match="unknown-parcel"):
        h.ask(AskTotal(parcel="nobody"))
    assert h.inquire(AskAgain(parcel="a")).total == 7
    with pytest.raises(Refused, match="internal"):
        h.inquire(AskAgain(parcel="nobody"))


def test_an_act_returns_its_result_and_raises_its_own_error_after_undoing() -> None:
    h = Harness(toy())

    def broken(tx: Tx[ToyStore]) -> None:
        tx.store.parcels.put(Parcel("x", 1))
        raise KeyError("mine")

    assert h.act(lambda tx: len(tx.store.parcels)) == 0
    with pytest.raises(KeyError, match="mine"):
        h.act(broken)
    assert len(h.store.parcels) == 0


def test_a_tick_runs_only_when_due() -> None:
    h = Harness(toy())
    assert h.tick("sweep") == []
    h.feed(seen("a", 2))
    assert h.tick("sweep") == [ParcelSentV1(parcel="a", total=2)]


def test_rows_that_are_not_kept_leave_the_memory_and_stay_in_the_database() -> None:
    h = Harness(toy())
    h.feed(seen("a", 99))
    assert len(h.store.parcels) == 0
    assert h.rows("parcels") == [Parcel("a", 99, is_ended=True)]
    h.restart()
    assert len(h.store.parcels) == 0


@pytest.mark.parametrize("point", ["before_commit", "after_commit", "after_publish", "before_ack"])
def test_a_crash_anywhere_loses_and_doubles_nothing(point: str) -> None:
    h = Harness(toy())
    event = h.envelope(seen("a", 2))
    h.crash_at(point)
    with pytest.raises(Crash):
        h.feed(event)
    h.restart()
    h.feed(event)
    assert h.rows("parcels") == [Parcel("a", 2)]
    assert {envelope.data for envelope in h.envelopes} == {ParcelSentV1(parcel="a", total=2)}
    assert len({envelope.id for envelope in h.envelopes}) == 1
    assert h.database.outbox == {}


def test_a_failing_decision_does_not_cost_the_events() -> None:
    decided: list[int] = []

    def decide(tx: Tx[ToyStore]) -> None:
        decided.append(len(tx.store.parcels))
        if len(decided) == 1:
            raise ArithmeticError("no decision")

    class Patient(Harness[ToyStore]):
        undecidable: list[BaseException | None] = []

        def undecided(self, error: BaseException | None) -> None:
            self.undecidable.append(error)

    h = Patient(toy(after_unit=decide))
    h.feed(seen("a"), seen("b"))
    assert len(h.rows("parcels")) == 2
    assert [type(error) for error in h.undecidable] == [ArithmeticError]
    h.feed(seen("c"))
    assert h.undecidable[1:] == [None]
    assert h.dlq == []


def test_what_cannot_be_read_is_dead_lettered_once() -> None:
    h = Harness(toy())
    h.feed_raw("gpuyard.evt.nobody.knows.this.v1", b"\xff\xfe")
    assert [(letter.reason, letter.body_base64) for letter in h.dlq] == [("unknown-type", "//4=")]


def test_ids_are_computed_from_the_cause_and_carry_its_trace() -> None:
    first, second = Harness(toy()), Harness(toy())
    trace = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    for h in (first, second):
        h.feed(h.envelope(seen("a"), id="11111111-1111-4111-8111-111111111111", traceparent=trace))
    one, other = first.envelopes[0], second.envelopes[0]
    assert one.id == other.id
    assert one.causation_id == "11111111-1111-4111-8111-111111111111"
    assert one.traceparent is not None
    assert one.traceparent.startswith("00-" + "a" * 32)
    assert one.traceparent != trace


def test_an_ask_that_changes_nothing_is_answered_while_the_database_is_away() -> None:
    """Also in one unit with deliveries that must wait; what would change something is refused at once."""
    h = Harness(replace(toy(), asks={AskTotal: lambda ask, tx: TotalV1(total=tx.store.parcels[ask.parcel].total)}))
    h.feed(seen("a", 2))
    h.database.is_away = True
    assert h.feed(seen("a", 3)) == []
    assert len(h.waiting) == 1
    assert h.ask(AskTotal(parcel="a")).total == 2
    with pytest.raises(Unavailable):
        h.act(lambda tx: tx.store.parcels.put(Parcel("b", 1)))
    h.database.is_away = False
    h.retry()
    assert h.ask(AskTotal(parcel="a")).total == 5


def test_while_the_database_is_away_an_ask_is_answered_as_the_service_does_meanwhile() -> None:
    """The ordinary answer would change something: the other one must not, and is taken back where it does."""
    answers = {"kind": lambda ask, tx: hundred(tx)}
    h = Harness(replace(toy(), asks={AskTotal: change_and_answer}, meanwhile={AskTotal: lambda ask, tx: answers["kind"](ask, tx)}))
    assert h.ask(AskTotal(parcel="a")).total == 1
    h.database.is_away = True
    assert h.ask(AskTotal(parcel="a")).total == 100
    answers["kind"] = change_and_answer
    with pytest.raises(Refused):
        h.ask(AskTotal(parcel="a"))
    assert h.store.parcels["a"].total == 1


def change_and_answer(ask: AskTotal, tx: Tx[ToyStore]) -> TotalV1:
    old = tx.store.parcels.get(ask.parcel) or Parcel(ask.parcel, 0)
    tx.store.parcels.put(replace(old, total=old.total + 1))
    return TotalV1(total=old.total + 1)


def hundred(tx: Tx[ToyStore]) -> TotalV1:
    return TotalV1(total=100)


def test_a_message_that_is_given_up_can_be_answered_in_the_unit_of_its_letter() -> None:
    """An answer that fails too leaves the letter alone."""

    def answer(event: Envelope[ParcelSeenV1], tx: Tx[ToyStore]) -> None:
        tx.say(ParcelSentV1(parcel=event.data.parcel, total=1 // (event.data.weight - 666 + len(answered))))

    answered = [1]
    h = Harness(replace(toy(), on_given_up=answer))
    assert h.feed(seen("cursed", 666)) == [ParcelSentV1(parcel="cursed", total=1)]
    answered.clear()
    assert h.feed(seen("cursed", 666)) == []
    assert len(h.dlq) == 2
