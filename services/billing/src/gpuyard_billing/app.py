"""Billing, put together."""

from functools import partial
from importlib.resources import files

from gpuyard_contracts.messages import asks
from gpuyard_contracts.messages.node import UsageTickV1
from gpuyard_contracts.messages.placement import AllocationCommittedV1, AllocationReleasedV1, AllocationStartedV1
from gpuyard_runtime.service import Service, Tick, Tx

from gpuyard_billing import answers, handlers, ticks
from gpuyard_billing.domain.prices import DEFAULT_BOOK
from gpuyard_billing.metrics import gauges
from gpuyard_billing.ports import EventSource
from gpuyard_billing.settings import BillingSettings
from gpuyard_billing.store import BillingStore

SETTLEMENT_BEAT_SECONDS = 5.0
CLEARING_BEAT_SECONDS = 300.0


def seed_prices(tx: Tx[BillingStore]) -> None:
    """A fresh installation starts with the default price book."""
    if len(tx.store.prices) == 0:
        tx.store.prices.put(DEFAULT_BOOK)


def service(settings: BillingSettings, source: EventSource) -> Service[BillingStore]:
    """The service; `source` gives `verify` the events again."""
    settlement = partial(ticks.every_settlement, after_ms=int(settings.billing_settle_seconds * 1000))
    return Service(
        name="billing",
        store=BillingStore,
        migrations=files("gpuyard_billing") / "migrations",
        schema="billing",
        handlers={
            AllocationCommittedV1: handlers.on_allocation_committed,
            AllocationStartedV1: handlers.on_allocation_started,
            AllocationReleasedV1: handlers.on_allocation_released,
            UsageTickV1: handlers.on_usage_ticked,
        },
        asks={asks.SetPricesAskV1: answers.set_prices, asks.GrantCreditAskV1: answers.grant_credit},
        inquiries={
            asks.PriceBookAskV1: answers.read_prices,
            asks.BalanceAskV1: answers.read_balance,
            asks.UsageAskV1: answers.read_usage,
            asks.EntriesAskV1: answers.read_entries,
            asks.VerifyAskV1: answers.verifier(source),
        },
        ticks=(
            Tick("settlement", SETTLEMENT_BEAT_SECONDS, settlement),
            Tick("clearing", CLEARING_BEAT_SECONDS, ticks.every_clearing),
        ),
        on_load=seed_prices,
        gauges=gauges,
    )
