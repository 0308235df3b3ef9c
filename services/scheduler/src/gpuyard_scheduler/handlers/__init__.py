"""One function for each message that the scheduler handles or hears: :mod:`.requests`, :mod:`.allocations`, :mod:`.fleet`."""

from typing import Any

from gpuyard_contracts.envelope import Payload
from gpuyard_contracts.messages.api import TenantStateV1
from gpuyard_contracts.messages.placement import (
    AllocationCommittedV1,
    AllocationRefusedV1,
    AllocationReleasedV1,
    AllocationStartedV1,
    FleetSightChangedV1,
    NodeStateV1,
    NodeStatusChangedV1,
)
from gpuyard_contracts.messages.requests import JobCancelV1, JobSubmitV1

from gpuyard_scheduler.handlers import allocations, fleet, requests

HANDLERS: dict[type[Payload], Any] = {
    JobSubmitV1: requests.on_job_submitted,
    JobCancelV1: requests.on_job_cancelled,
    AllocationCommittedV1: allocations.on_allocation_committed,
    AllocationRefusedV1: allocations.on_allocation_refused,
    AllocationStartedV1: allocations.on_allocation_started,
    AllocationReleasedV1: allocations.on_allocation_released,
    NodeStatusChangedV1: fleet.on_node_status_changed,
    FleetSightChangedV1: fleet.on_fleet_sight_changed,
}
"""Delivered by durables, each once in effect."""

HEARS: dict[type[Payload], Any] = {NodeStateV1: fleet.on_node_state, TenantStateV1: fleet.on_tenant_state}
"""Heard anew from the beginning at each start."""
