"""What billing shows on /metrics."""

from collections.abc import Mapping

from gpuyard_billing.store import BillingStore

Numbers = Mapping[tuple[tuple[str, str], ...], float]


def gauges(store: BillingStore) -> Mapping[str, float | Numbers]:
    """Read when somebody asks. Evidence that was not believed is counted by reason since the start of the process."""
    return {
        "billing_allocations_live": len(store.allocations),
        "billing_evidence_rows": len(store.evidence),
        "billing_facts_without_commitment": len(store.early),
        "billing_price_versions": len(store.prices),
        "billing_ignored": {(("reason", reason),): float(count) for reason, count in store.ignored.items()},
    }
