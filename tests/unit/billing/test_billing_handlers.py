"""From what billing hears to what stands in the ledger."""

from datetime import UTC, datetime

import pytest
from gpuyard_contracts.messages.billing import LedgerPostedV1
from gpuyard_runtime.testing import Crash

from tests.unit.billing.billing_world import (
    A100_HOUR,
    HOUR_MS,
    T4_HOUR,
    after,
    committed,
    harness,
    ids,
    ledger_sum,
    released,
    started,
    ticked,
)


def test_an_hour_on_one_card_is_owed_and_earned_to_the_unit() -> None:
    h = harness()
    said = h.feed_each(committed(), started(), released(end=HOUR_MS))
    assert ledger_sum(h, "receivable") == T4_HOUR
    assert ledger_sum(h, "revenue") == -T4_HOUR
    (posted,) = [event for event in said if isinstance(event, LedgerPostedV1)]
    assert (posted.amount_micros, posted.total_micros, posted.gpu_ms, posted.is_final) == (T4_HOUR, T4_HOUR, HOUR_MS, True)
    assert posted.until == after(HOUR_MS)
    assert ids()["allocation_id"] not in h.store.allocations


def test_a_job_alive_for_a_whole_hour_is_billed_exactly_3600_seconds_whatever_the_ticks() -> None:
    """B53: sampling never shortens or lengthens the bill."""
    h = harness(0)
    h.feed(committed(), started())
    for ms in (7_001, 100_333, 1_999_999, 3_599_000):
        h.clock.advance(900)
        h.feed(ticked(ms=ms))
        h.tick("settlement")
    h.feed(released(end=HOUR_MS))
    assert len(h.journal("transactions")) > 2
    assert sum(row.held_ms for row in h.journal("transactions")) == 3_600_000
    assert ledger_sum(h, "receivable") == T4_HOUR


def test_a_gang_pays_for_all_its_cards() -> None:
    h = harness()
    h.feed(committed(cards={"T4-a": "T4", "T4-b": "T4", "A-a": "A100-80GB"}), released())
    assert ledger_sum(h, "receivable") == 2 * T4_HOUR + A100_HOUR


def test_a_share_is_priced_by_the_larger_of_compute_and_memory() -> None:
    h = harness()
    h.feed(committed(milli=250, memory_mib=8_000, card_mib=16_000), released())
    assert ledger_sum(h, "receivable") == T4_HOUR // 2


def test_what_never_started_costs_nothing_and_nothing_is_said() -> None:
    h = harness()
    assert h.feed(committed(), released(begin=None, reason="start-failed")) == []
    assert h.journal("transactions") == []
    assert [row.is_final for row in h.rows("allocations")] == [True]


def test_what_started_and_ended_in_the_same_millisecond_is_final_and_free() -> None:
    h = harness()
    (posted,) = h.feed(committed(), started(), released(end=0))
    assert isinstance(posted, LedgerPostedV1)
    assert (posted.amount_micros, posted.is_final, posted.transaction_id) == (0, True, "")
    assert h.journal("transactions") == []


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1), (0, 2, 1), (1, 0, 2)])
def test_the_order_of_what_is_heard_does_not_change_the_bill(order: tuple[int, ...]) -> None:
    h = harness()
    events = (committed(), started(), released(end=1_234_567))
    for place in order:
        h.feed(events[place])
    assert ledger_sum(h, "receivable") == round(T4_HOUR * 1_234_567 / HOUR_MS)
    assert len(h.said_of(LedgerPostedV1)) == 1
    assert len(h.store.allocations) == 0


def test_every_event_delivered_twice_is_billed_once() -> None:
    h = harness()
    events = [h.envelope(data) for data in (committed(), started(), ticked(), released())]
    h.feed(*events, *events)
    for event in events:
        assert h.feed(event) == []
    assert ledger_sum(h, "receivable") == T4_HOUR


def test_a_start_that_is_late_for_a_settled_allocation_opens_nothing() -> None:
    h = harness()
    h.feed(committed(), released())
    h.feed(started())
    assert len(h.store.allocations) == 0
    assert [row.is_final for row in h.rows("allocations")] == [True]
    h.clock.advance(2 * 3600)
    h.tick("clearing")
    assert len(h.store.early) == 0


def test_a_release_waits_for_its_commitment_as_long_as_a_stream_keeps_that() -> None:
    h = harness()
    h.feed(released())
    h.clock.advance(35 * 86_400)
    h.tick("clearing")
    assert len(h.store.early) == 1
    h.clock.advance(2 * 86_400)
    h.tick("clearing")
    assert len(h.store.early) == 0


def test_two_attempts_of_a_job_are_billed_apart() -> None:
    h = harness()
    h.feed(committed(), released(end=1000), committed(attempt=2), released(attempt=2, begin=5000, end=7000))
    assert {(row.allocation_id[-1], row.held_ms) for row in h.journal("transactions")} == {("1", 1000), ("2", 2000)}


def test_a_long_job_is_billed_meanwhile_up_to_the_last_confirmed_instant() -> None:
    h = harness(0)
    h.feed(committed(), started())
    h.clock.advance(61)
    assert h.tick("settlement") == []  # nobody has confirmed anything
    h.feed(ticked(ms=55_000))
    (posted,) = h.tick("settlement")
    assert isinstance(posted, LedgerPostedV1)
    assert (posted.until, posted.is_final, posted.gpu_ms) == (after(55_000), False, 55_000)
    assert h.tick("settlement") == []  # nothing new is confirmed


def test_a_process_that_is_gone_stays_billed_up_to_its_last_proof_of_life() -> None:
    """B53: hours of silence cost nothing."""
    h = harness(30_000)
    h.feed(committed(), started(), ticked(ms=30_000))
    for _ in range(10):
        h.clock.advance(90)
        h.tick("settlement")
    h.feed(released(end=31_000, reason="process-vanished"))
    assert sum(row.held_ms for row in h.journal("transactions")) == 31_000


def test_a_bill_that_ran_ahead_of_the_end_is_corrected_by_a_transaction() -> None:
    h = harness(0)
    h.clock.advance(60)
    h.feed(committed(), started(), ticked(ms=59_000))
    h.tick("settlement")
    h.feed(released(end=40_000, reason="node-lost"))
    assert [(row.kind, row.held_ms) for row in h.journal("transactions")] == [("usage", 59_000), ("correction", -19_000)]
    assert ledger_sum(h, "receivable") == round(T4_HOUR * 40_000 / HOUR_MS)
    assert h.store.balance_of("acme").used_micros == ledger_sum(h, "receivable")


def test_what_turns_out_never_to_have_run_is_given_back() -> None:
    h = harness(0)
    h.clock.advance(60)
    h.feed(committed(), started(), ticked(ms=59_000))
    h.tick("settlement")
    h.feed(released(begin=None, end=60_000))
    assert ledger_sum(h, "receivable") == 0


def test_evidence_keeps_the_highest_of_each_rank_and_boot() -> None:
    h = harness(0)
    h.clock.advance(100)
    h.feed(committed(), ticked(ms=5_000), ticked(ms=9_000), ticked(ms=7_000), ticked(ms=4_000, rank=1), ticked(ms=2_000, boot="b2"))
    found = {(row.rank, row.boot_id): row.gpu_ms for row in h.rows("evidence")}
    assert found == {(0, "b1"): 9_000, (1, "b1"): 4_000, (0, "b2"): 2_000}


def test_evidence_from_a_clock_far_ahead_or_from_long_ago_is_counted_and_not_taken() -> None:
    """B54: a stamp of the year 2099 confirms nothing."""
    h = harness(0)
    h.feed(committed(), started(), ticked(at=datetime(2099, 1, 1, tzinfo=UTC)), ticked(at=datetime(2000, 1, 1, tzinfo=UTC)))
    assert h.rows("evidence") == []
    assert h.store.ignored == {"future": 1, "too-old": 1}


def test_a_clock_a_little_ahead_confirms_no_more_than_now() -> None:
    h = harness(0)
    h.clock.advance(60)
    h.feed(committed(), started(), ticked(ms=120_000))
    (posted,) = h.tick("settlement")
    assert isinstance(posted, LedgerPostedV1)
    assert posted.until == after(60_000)


@pytest.mark.parametrize("body", [b'{"gpu_ms": -1}', b'{"gpu_ms": 1e400}', b'{"gpu_ms": NaN}', b'{"gpu_ms": 1.5}', b'{"gpu_ms": "many"}'])
def test_a_tick_with_an_impossible_number_is_dead_lettered_and_blocks_nobody(body: bytes) -> None:
    h = harness()
    held = body[:-1] + b', "allocation_id": "%b", "tenant": "acme", "rank": 0, "held_ms": 1}' % ids()["allocation_id"].encode()
    raw = b'{"node_id": "n1", "boot_id": "b", "sequence": 1, "at": "2030-01-01T10:00:01Z", "held": [%b]}' % held
    assert h.feed_raw("gpuyard.usage.v1.n1", raw) == []
    assert len(h.dlq) == 1
    h.feed(committed(), released())
    assert ledger_sum(h, "receivable") == T4_HOUR


@pytest.mark.parametrize(
    "event",
    [released(begin=5_000, end=4_000), released(end=10**12), started(ms=10**12), released(begin=-(10**9), end=0)],
    ids=["negative", "ends-in-the-future", "starts-in-the-future", "starts-before-it-was-committed"],
)
def test_an_impossible_interval_never_becomes_money(event: object) -> None:
    h = harness(0)
    h.feed(committed())
    h.feed(event)  # pyright: ignore[reportArgumentType]  # one of two kinds
    assert [letter.reason for letter in h.dlq] == ["bad-interval"]
    assert h.journal("transactions") == []


def test_evidence_leaves_the_memory_when_its_allocation_is_over_and_stays_on_record() -> None:
    h = harness(0)
    h.feed(committed(), started(), ticked(ms=0), committed("two"), started("two"), ticked("two", ms=0), released(end=10))
    h.clock.advance(3600)
    h.tick("clearing")
    assert [row.allocation_id for row in h.store.evidence.values()] == [ids("two")["allocation_id"]]
    assert len(h.rows("evidence")) == 2


def test_a_restart_in_the_middle_goes_on_without_loss_or_repetition() -> None:
    h = harness(0)
    h.clock.advance(90)
    h.feed(committed(), started(), ticked(ms=30_000))
    h.tick("settlement")
    h.restart()
    h.clock.advance(1_800)
    h.feed(released(end=1_800_000))
    assert ledger_sum(h, "receivable") == T4_HOUR // 2
    assert [row.segment for row in h.journal("transactions")] == [0, 1]


@pytest.mark.parametrize("point", ["before_commit", "after_commit", "after_publish", "before_ack"])
def test_a_crash_at_any_point_bills_once_and_says_it_under_one_id(point: str) -> None:
    h = harness()
    h.feed(committed(), started())
    event = h.envelope(released())
    h.crash_at(point)
    with pytest.raises(Crash):
        h.feed(event)
    h.restart()
    h.feed(event)
    assert ledger_sum(h, "receivable") == T4_HOUR
    assert len({envelope.id for envelope in h.envelopes}) == 1


def test_the_interim_bill_carries_on_the_job_s_trace() -> None:
    h = harness(0)
    trace = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    h.clock.advance(60)
    h.feed(h.envelope(committed(), traceparent=trace), started(), ticked(ms=59_000))
    h.tick("settlement")
    assert (h.envelopes[-1].traceparent or "").split("-")[1] == "a" * 32
    assert h.envelopes[-1].correlation_id == ids()["job_id"]
