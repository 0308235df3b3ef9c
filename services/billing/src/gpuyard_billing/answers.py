"""What billing answers: two asks that change something, in a unit, and questions that only read.

`verify` holds the ledger against the events themselves, read again from their stream. A difference is looked at twice: events and ledger
are not read at the same instant, and only what is still different then is told.
"""

from collections.abc import Awaitable, Callable

from gpuyard_contracts.messages.asks import (
    BalanceAskV1,
    BalanceReplyV1,
    EntriesAskV1,
    EntriesReplyV1,
    GrantCreditAskV1,
    PriceBookAskV1,
    PriceBookReplyV1,
    SetPricesAskV1,
    UsageAskV1,
    UsageReplyV1,
    VerifyAskV1,
    VerifyReplyV1,
)
from gpuyard_contracts.types import RequestId
from gpuyard_runtime.faults import Refused
from gpuyard_runtime.service import Reading, Tx
from pydantic import TypeAdapter, ValidationError

from gpuyard_billing import mapping
from gpuyard_billing.audit import audit
from gpuyard_billing.domain import ledger, prices
from gpuyard_billing.domain.model import CURRENCY, Grant, PriceVersion
from gpuyard_billing.ports import EventSource
from gpuyard_billing.posting import book
from gpuyard_billing.reads import LedgerReads
from gpuyard_billing.store import BillingStore

_REQUEST_ID: TypeAdapter[str] = TypeAdapter(RequestId)


def set_prices(ask: SetPricesAskV1, tx: Tx[BillingStore]) -> PriceBookReplyV1:
    """Add a version of the price book. The same request again adds nothing; what cannot be taken is answered with the reason."""
    store = tx.store
    request_id = _request_id(ask.request_id, tx)
    versions = store.prices.values()
    if any(version.request_id == request_id for version in versions):
        return mapping.book_reply(versions)
    asked = tuple(sorted((price.model, price.micros_per_gpu_hour) for price in ask.prices))
    billed_until_ms = max((balance.billed_until_ms for balance in store.balances.values()), default=0)
    valid_from_ms = max(mapping.ms_of(tx.now), billed_until_ms) if ask.valid_from is None else mapping.ms_of(ask.valid_from)
    problem = prices.problem_of_prices(asked)
    if problem is None and valid_from_ms < billed_until_ms:
        until = mapping.instant_of(billed_until_ms).isoformat()
        problem = f"time until {until} is billed already and keeps its prices; let the new ones begin then or later"
    if problem is not None:
        return mapping.book_reply(versions, problem)
    store.prices.put(PriceVersion(max(version.version for version in versions) + 1, CURRENCY, valid_from_ms, asked, request_id))
    return mapping.book_reply(store.prices.values())


def grant_credit(ask: GrantCreditAskV1, tx: Tx[BillingStore]) -> BalanceReplyV1:
    """Book credit once for each tenant and request id. The same id with another amount is refused."""
    store = tx.store
    grant = Grant(ask.tenant, _request_id(ask.request_id, tx), ask.amount_micros)
    known = store.grants.get((grant.tenant, grant.request_id))
    if known is not None and known != grant:
        tx.reject("request-id-taken", f"this request id has already granted {known.amount_micros} micro-units; use a new one")
    if known is None:
        store.grants.put(grant)
        book(tx, ledger.booking_of_grant(grant, ask.reason, mapping.ms_of(tx.now)))
        store.balances.put(ledger.credited(store.balance_of(grant.tenant), grant.amount_micros))
    return mapping.balance_reply(store.balance_of(grant.tenant))


def _request_id(text: str, tx: Tx[BillingStore]) -> str:
    try:
        return _REQUEST_ID.validate_python(text)
    except ValidationError:
        tx.reject("invalid", "request_id is not 1 to 128 printable ASCII characters without spaces")


async def read_prices(ask: PriceBookAskV1, reading: Reading[BillingStore]) -> PriceBookReplyV1:
    """All versions of the price book."""
    return mapping.book_reply(reading.store.prices.values())


async def read_balance(ask: BalanceAskV1, reading: Reading[BillingStore]) -> BalanceReplyV1:
    """A tenant's balance; zeros for one that was never heard of."""
    return mapping.balance_reply(reading.store.balance_of(ask.tenant))


async def read_usage(ask: UsageAskV1, reading: Reading[BillingStore]) -> UsageReplyV1:
    """What was used. With `since` or `until`: by the segments that begin in that window, so that windows in a row add up to the whole."""
    return await LedgerReads(_database(reading)).usage(ask)


async def read_entries(ask: EntriesAskV1, reading: Reading[BillingStore]) -> EntriesReplyV1:
    """The ledger's entries in the order they were booked."""
    return await LedgerReads(_database(reading)).entries(ask)


def verifier(source: EventSource) -> Callable[[VerifyAskV1, Reading[BillingStore]], Awaitable[VerifyReplyV1]]:
    """The inquiry that holds the ledger against the events of this source."""

    async def verify(ask: VerifyAskV1, reading: Reading[BillingStore]) -> VerifyReplyV1:
        return await audit(source, LedgerReads(_database(reading)), tuple(reading.store.prices.values()))

    return verify


def _database(reading: Reading[BillingStore]) -> object:
    if reading.db is None:
        raise Refused("unavailable", "the ledger is not at hand: there is no database")
    return reading.db
