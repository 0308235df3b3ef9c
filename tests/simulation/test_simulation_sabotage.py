"""The checkers can fail: each guard is broken by hand, and the simulation must find out in a few histories, by the invariant it keeps."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import gpuyard_billing.domain.ledger
import gpuyard_billing.domain.settle
import gpuyard_billing.posting
import gpuyard_placement.domain.states
import gpuyard_placement.handlers
import gpuyard_placement.heartbeats
import gpuyard_placement.ticks
import gpuyard_scheduler.domain.decide
import gpuyard_scheduler.handlers
import pytest
from gpuyard_contracts.envelope import Envelope
from gpuyard_contracts.messages.placement import AllocationReleasedV1
from gpuyard_placement.domain.commit import Committed
from gpuyard_placement.domain.states import Moved
from gpuyard_placement.store import PlacementStore
from gpuyard_runtime.ids import derive
from gpuyard_runtime.testing import MemoryBus, MemoryUnits
from gpuyard_runtime.work import Garbled

from tests.simulation import history
from tests.simulation.agent import Agent
from tests.simulation.machine import Machine
from tests.simulation.record import Violation

HISTORIES = 60
"""Within so many a broken guard must show."""

Patch = pytest.MonkeyPatch

PLACING: Any = gpuyard_placement.handlers
BEATING: Any = gpuyard_placement.heartbeats
TICKING: Any = gpuyard_placement.ticks
STATES: Any = gpuyard_placement.domain.states
LEDGER: Any = gpuyard_billing.domain.ledger


def placement_sees(patch: Patch, **lies: Callable[..., Any]) -> None:
    """Placement re-checks plans against a truth in which these answers are lies."""
    real = PLACING.commit

    class Lying:
        def __init__(self, truth: Any) -> None:
            self._truth = truth

        def __getattr__(self, name: str) -> Any:
            found = getattr(self._truth, name)
            return found if name not in lies else lambda *args: lies[name](found(*args))

    patch.setattr(PLACING, "commit", lambda plan, truth, ports: real(plan, Lying(truth), ports))


def the_inbox_is_ignored(patch: Patch) -> None:
    real = MemoryUnits.run

    async def run(self: Any, keys: Sequence[str], work: Any) -> Any:
        return await real(self, keys, lambda fresh: work(set(keys)))

    patch.setattr(MemoryUnits, "run", run)


def plans_are_not_checked_against_what_is_held(patch: Patch) -> None:
    placement_sees(patch, held_of=lambda held: ())


def a_gang_is_committed_in_part(patch: Patch) -> None:
    real = PLACING.commit

    def commit(plan: Any, truth: Any, ports: range) -> Any:
        found = real(plan, truth, ports)
        return replace(found, held=found.held[:-1]) if isinstance(found, Committed) and len(found.held) > 1 else found

    patch.setattr(PLACING, "commit", commit)


def released_slices_stay_in_the_published_state(patch: Patch) -> None:
    def touched(self: Any) -> list[str]:
        return sorted({row.node_id for table in (self.nodes, self.held, self.cordons) for row in table.changes().upserts})

    patch.setattr(PlacementStore, "touched", touched)


def cordons_are_ignored(patch: Patch) -> None:
    placement_sees(patch, cordons_on=lambda cordons: ())


def silent_nodes_are_taken_for_ready(patch: Patch) -> None:
    placement_sees(patch, node=lambda node: None if node is None else replace(node, status="ready"))


def quotas_are_not_checked(patch: Patch) -> None:
    patch.setattr(gpuyard_scheduler.domain.decide, "above_quota", lambda *args: None)


def the_scheduler_forgets_what_was_released(patch: Patch) -> None:
    patch.setitem(gpuyard_scheduler.handlers.HANDLERS, AllocationReleasedV1, lambda event, tx: None)


def the_ledger_books_twice(patch: Patch) -> None:
    real = gpuyard_billing.posting.book

    def book(tx: Any, booking: Any) -> None:
        transaction, entries = booking
        real(tx, booking)
        twin = replace(transaction, transaction_id=f"{transaction.transaction_id}-again")
        real(tx, (twin, tuple(replace(entry, transaction_id=twin.transaction_id) for entry in entries)))

    patch.setattr(gpuyard_billing.posting, "book", book)


def money_is_rounded_down(patch: Patch) -> None:
    patch.setattr(gpuyard_billing.domain.settle, "half_even", lambda numerator, denominator: numerator // denominator)


def transactions_do_not_sum_to_zero(patch: Patch) -> None:
    real = LEDGER._entries

    def entries(made: Any, debit: Any, credit: Any, micros: int) -> Any:
        one, other = real(made, debit, credit, micros)
        return one, replace(other, amount_micros=other.amount_micros - 1)

    patch.setattr(LEDGER, "_entries", entries)


def everything_is_published_again_under_new_ids(patch: Patch) -> None:
    real = MemoryBus.publish

    def publish(self: Any, envelope: Envelope[Any]) -> int:
        sequence = real(self, envelope)
        if envelope.type.startswith("gpuyard.evt.placement."):
            real(self, replace(envelope, id=derive(envelope.id, "again", "")))
        return sequence

    patch.setattr(MemoryBus, "publish", publish)


def messages_are_acknowledged_before_they_are_handled(patch: Patch) -> None:
    real = MemoryBus.pull

    def pull(self: Any, durable: Any, limit: int) -> Any:
        batch = real(self, durable, limit)
        for delivery in batch:
            delivery.ack()
        return batch

    patch.setattr(MemoryBus, "pull", pull)


def what_cannot_be_read_is_dropped(patch: Patch) -> None:
    patch.setattr(Garbled, "apply", lambda self, tx: None)


def agents_take_any_order(patch: Patch) -> None:
    patch.setattr(Agent, "keeps_order", False)


def nodes_do_not_fence(patch: Patch) -> None:
    patch.setattr(Machine, "fences", False)


def slices_are_freed_before_the_ranks_are_gone(patch: Patch) -> None:
    real = STATES._follow

    def follow(was: Any, changed: Any, stop: Any, at: Any, **more: Any) -> Moved:
        found = real(was, changed, stop, at, **more)
        if found.now.stop is None or found.is_released:
            return found
        return Moved(was, STATES._released(was, found.now.ranks, found.now.stop, found.now.started_at, at), found.tell)

    patch.setattr(STATES, "_follow", follow)


def who_is_not_listed_is_given_up_at_once(patch: Patch) -> None:
    real = BEATING.judge

    def judge(now: Any, before: Any, running: Any, unreported: Any, expected: Any, *more: Any) -> Any:
        verdict = real(now, before, running, unreported, expected, *more)
        missing = tuple(key for key, found in expected.items() if found.state.status in ("ordered", "started") and key not in now.running)
        return replace(verdict, vanished=missing)

    patch.setattr(BEATING, "judge", judge)


def nodes_are_given_up_before_their_lease_is_over(patch: Patch) -> None:
    real = TICKING.watch

    def watch(nodes: Any, heard_at: Any, since: Any, sight: Any, at: Any, policy: Any) -> Any:
        return real(nodes, heard_at, since, sight, at, replace(policy, lease=timedelta(seconds=5)))

    patch.setattr(TICKING, "watch", watch)


@dataclass(frozen=True)
class Sabotage:
    """A guard that is broken, and the invariants of which one must be seen to fail."""

    breaks: Callable[[Patch], None]
    rules: tuple[str, ...]


SABOTAGES = (
    Sabotage(the_inbox_is_ignored, ("INV-10",)),
    Sabotage(plans_are_not_checked_against_what_is_held, ("INV-1",)),
    Sabotage(a_gang_is_committed_in_part, ("INV-2",)),
    Sabotage(released_slices_stay_in_the_published_state, ("INV-4",)),
    Sabotage(cordons_are_ignored, ("INV-9",)),
    Sabotage(silent_nodes_are_taken_for_ready, ("INV-9",)),
    Sabotage(quotas_are_not_checked, ("INV-8",)),
    Sabotage(the_scheduler_forgets_what_was_released, ("INV-3",)),
    Sabotage(the_ledger_books_twice, ("INV-7",)),
    Sabotage(money_is_rounded_down, ("INV-7",)),
    Sabotage(transactions_do_not_sum_to_zero, ("INV-7",)),
    Sabotage(everything_is_published_again_under_new_ids, ("INV-10",)),
    Sabotage(messages_are_acknowledged_before_they_are_handled, ("INV-10", "INV-3")),
    Sabotage(what_cannot_be_read_is_dropped, ("INV-10", "INV-3")),
    Sabotage(agents_take_any_order, ("INV-6", "INV-1", "INV-5")),
    Sabotage(nodes_do_not_fence, ("INV-6", "INV-1", "INV-5")),
    Sabotage(slices_are_freed_before_the_ranks_are_gone, ("INV-6", "INV-1", "INV-5")),
    Sabotage(who_is_not_listed_is_given_up_at_once, ("INV-6", "INV-1", "INV-5")),
    Sabotage(nodes_are_given_up_before_their_lease_is_over, ("INV-6", "INV-1", "INV-5")),
)


@pytest.mark.parametrize("sabotage", SABOTAGES, ids=lambda sabotage: sabotage.breaks.__name__)
def test_a_broken_guard_is_found(sabotage: Sabotage, monkeypatch: pytest.MonkeyPatch) -> None:
    sabotage.breaks(monkeypatch)
    monkeypatch.setattr(history, "REST_SECONDS", 200.0)
    monkeypatch.setattr(history, "REST_STEPS", 3000)
    for seed in range(HISTORIES):
        try:
            history.run(seed)
        except Violation as found:
            assert found.rule in sabotage.rules, str(found)
            return
    raise AssertionError(f"{sabotage.breaks.__name__}: {HISTORIES} histories found nothing")
