"""The part of the client for what things cost: usage, balances, prices and the ledger."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpuyard.results import Balance, Cost, Entry, Verification, build
from gpuyard.transport import Transport, segment

VERIFY_SECONDS = 120.0
"""A whole ledger is rebuilt from its events: that takes its time."""


class Money:
    """Usage and the ledger."""

    transport: Transport

    def cost(self, job_id: str) -> Cost:
        """What one job used and costs so far."""
        return build(Cost, self.transport.get(f"/v1/jobs/{segment(job_id)}/cost"))

    def usage(self, **query: Any) -> Cost:
        """What was used; `query`: `tenant`, `since`, `until` (instants in ISO form), `cursor`, `limit`."""
        return build(Cost, self.transport.get("/v1/usage", **query))

    def balance(self, tenant: str) -> Balance:
        """What a tenant has left."""
        return build(Balance, self.transport.get(f"/v1/tenants/{segment(tenant)}/balance"))

    def grant_credit(self, tenant: str, amount_micros: int, reason: str, *, key: str | None = None) -> Balance:
        """Give a tenant credit, once for each `key`."""
        body = {"amount_micros": amount_micros, "reason": reason}
        return build(Balance, self.transport.post(f"/v1/tenants/{segment(tenant)}/credit", body, key=key))

    def prices(self) -> Mapping[str, Any]:
        """All versions of the price book."""
        content: Mapping[str, Any] = self.transport.get("/v1/prices")
        return content

    def entries(self, **query: Any) -> Iterator[Entry]:
        """The ledger's entries in the order in which they were booked; `query`: `tenant`, `job_id`."""
        cursor: str | None = None
        while True:
            content = self.transport.get("/v1/ledger/entries", cursor=cursor, **query)
            yield from (build(Entry, row) for row in content["entries"])
            cursor = content.get("next_cursor")
            if cursor is None:
                return

    def verify_ledger(self) -> Verification:
        """Rebuild the money from the events and compare it with the ledger, to the unit."""
        return build(Verification, self.transport.post("/v1/ledger/verify", timeout_seconds=VERIFY_SECONDS))
