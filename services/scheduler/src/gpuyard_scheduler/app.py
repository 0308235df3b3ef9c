"""The scheduler, put together."""

from functools import partial
from importlib.resources import files

from gpuyard_contracts.messages.asks import QueueAskV1
from gpuyard_contracts.messages.explaining import ExplainAskV1, PlanAskV1
from gpuyard_runtime.service import Service

from gpuyard_scheduler.deciding import decide_and_carry_out
from gpuyard_scheduler.domain.policy import Policy
from gpuyard_scheduler.handlers import HANDLERS, HEARS
from gpuyard_scheduler.handlers.requests import on_given_up, on_malformed
from gpuyard_scheduler.inquiries import on_explain, on_plan, on_queue
from gpuyard_scheduler.metrics import gauges
from gpuyard_scheduler.store import FORGETS, SchedulerStore
from gpuyard_scheduler.ticks import TICKS, on_load


def service(policy: Policy | None = None) -> Service[SchedulerStore]:
    """The service under this policy (default: the product's)."""
    return Service(
        name="scheduler",
        store=partial(SchedulerStore, policy or Policy()),
        migrations=files("gpuyard_scheduler") / "migrations",
        schema="scheduler",
        handlers=HANDLERS,
        hears=HEARS,
        inquiries={ExplainAskV1: on_explain, PlanAskV1: on_plan, QueueAskV1: on_queue},
        inquiries_at_once=1,
        ticks=TICKS,
        on_malformed=on_malformed,
        on_given_up=on_given_up,
        after_unit=decide_and_carry_out,
        forgets=FORGETS,
        on_load=on_load,
        gauges=gauges,
    )


SERVICE = service()
"""The scheduler as the product ships it."""
