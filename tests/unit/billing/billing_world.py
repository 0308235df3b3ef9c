"""Messages and stores that billing's tests are made of. Card uuids start with their model, so that a test reads like a bill."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

from gpuyard_billing.app import service
from gpuyard_billing.settings import BillingSettings
from gpuyard_billing.store import BillingStore
from gpuyard_contracts.envelope import Envelope
from gpuyard_contracts.messages.node import HeldV1, UsageTickV1
from gpuyard_contracts.messages.placement import AllocationCommittedV1, AllocationReleasedV1, AllocationStartedV1
from gpuyard_contracts.messages.scheduler import RankPlanV1, SliceV1
from gpuyard_contracts.types import allocation_id_of, job_id_of
from gpuyard_runtime.service import Service
from gpuyard_runtime.testing import Harness

START = datetime(2030, 1, 1, 10, 0, tzinfo=UTC)
HOUR_MS = 3_600_000
T4_HOUR, A100_HOUR = 350_000, 2_500_000
"""Prices of the default book."""


class NoEvents:
    """An event source with nothing in it."""

    async def allocation_events(self) -> AsyncIterator[list[Envelope[Any]]]:
        """Nothing."""
        for batch in ():
            yield batch


def billing(**settings: Any) -> Service[BillingStore]:
    """The service without a bus."""
    return service(BillingSettings(**settings), NoEvents())


def harness(later_ms: int = 8 * HOUR_MS) -> Harness[BillingStore]:
    """Billing alone, its clock so long after START."""
    made = Harness(billing())
    made.clock.advance((after(later_ms) - made.clock.now()).total_seconds())
    return made


def after(ms: int) -> datetime:
    """The instant so many milliseconds after START."""
    return START + timedelta(milliseconds=ms)


def ids(name: str = "one", attempt: int = 1, tenant: str = "acme") -> dict[str, Any]:
    """The fields that tell which allocation it is."""
    job = job_id_of(tenant, name)
    return {"tenant": tenant, "job_id": job, "allocation_id": allocation_id_of(job, attempt), "attempt": attempt}


def committed(
    name: str = "one", cards: dict[str, str] | None = None, *, milli: int = 1000, memory_mib: int = 0, card_mib: int = 16_000, **who: Any
) -> AllocationCommittedV1:
    """A commitment of these cards (uuid to model), one rank each."""
    models = cards or {"T4-a": "T4"}
    return AllocationCommittedV1(
        **ids(name, **who),
        ranks=tuple(
            RankPlanV1(
                rank=rank,
                node_id="n1",
                slices=(SliceV1(gpu_uuid=uuid, milli=milli, memory_mib=memory_mib),),
                cpu_milli=1000,
                memory_mib=1024,
            )
            for rank, uuid in enumerate(models)
        ),
        models=models,
        gpu_memory_mib=dict.fromkeys(models, card_mib),
        at=START,
    )


def started(name: str = "one", ms: int = 0, **who: Any) -> AllocationStartedV1:
    """It runs since so many milliseconds after START."""
    return AllocationStartedV1(**ids(name, **who), started_at=after(ms))


def released(name: str = "one", begin: int | None = 0, end: int = HOUR_MS, reason: Any = "exited", **who: Any) -> AllocationReleasedV1:
    """It ran from `begin` to `end`, in milliseconds after START; `begin` None: it never ran."""
    return AllocationReleasedV1(**ids(name, **who), started_at=None if begin is None else after(begin), ended_at=after(end), reason=reason)


def ticked(
    name: str = "one",
    ms: int = 60_000,
    *,
    gpu_ms: int | None = None,
    rank: int = 0,
    boot: str = "b1",
    at: datetime | None = None,
    **who: Any,
) -> UsageTickV1:
    """A node's word that the rank has used its card for so long, told at that instant."""
    who_is = ids(name, **who)
    used = ms if gpu_ms is None else gpu_ms
    held = HeldV1(allocation_id=who_is["allocation_id"], tenant=who_is["tenant"], rank=rank, gpu_ms=used, held_ms=used)
    return UsageTickV1(node_id="n1", boot_id=boot, sequence=1, at=at or after(ms), held=(held,))


def ledger_sum(made: Harness[BillingStore], account: str, tenant: str = "acme") -> int:
    """What an account of a tenant comes to."""
    return sum(row.amount_micros for row in made.journal("entries") if row.account == account and row.tenant == tenant)
