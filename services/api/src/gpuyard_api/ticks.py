"""api's periodic duties, and its first one after start."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from gpuyard_runtime.service import Tick, Tx

from gpuyard_api import acts, mapping
from gpuyard_api.store import ApiStore

EVENTS_KEPT = timedelta(days=30)
"""As long as the streams keep them."""

Prune = Callable[[datetime], Awaitable[None]]
"""Deletes events from before an instant."""


class Ticks:
    """The duties, with what they need from outside: `prune`."""

    def __init__(self, prune: Prune) -> None:
        self._prune = prune

    def every_prune(self, tx: Tx[ApiStore]) -> None:
        """Delete old events, and incidents that are as long over."""
        before = tx.now - EVENTS_KEPT
        for incident in tx.store.incidents.values():
            if incident.closed_at is not None and incident.closed_at < before:
                tx.store.incidents.drop(incident.incident_id)
        tx.after_commit(lambda: self._prune(before))

    def all(self) -> tuple[Tick[ApiStore], ...]:
        """What the runtime beats."""
        return (Tick("forget", 30.0, every_forget, when=lambda store: len(store.jobs) > 0), Tick("prune", 3600.0, self.every_prune))


def every_forget(tx: Tx[ApiStore]) -> None:
    """Let go the jobs that ended a while ago: they stay in the database."""
    tx.store.forget_ended(tx.now)


def on_load(tx: Tx[ApiStore]) -> None:
    """Tell every tenant's state again: a bus that lost it is whole afterwards, any other takes it for what it has."""
    for row in tx.store.tenants.values():
        tx.say(mapping.tenant_state(row), once=acts.tenant_said(row))
