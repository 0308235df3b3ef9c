"""What is counted of api beside what the runtime counts: requests by route template, and what is in memory by state."""

from collections import Counter as Tally
from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram

from gpuyard_api.hub import Hub
from gpuyard_api.store import ApiStore

METHODS = frozenset({"GET", "HEAD", "POST", "PATCH", "PUT", "DELETE", "OPTIONS"})


class HttpMetrics:
    """Requests, by method, route template and status; a stream counts when it begins."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter("gpuyard_http_requests", "Requests answered.", ("method", "route", "status"), registry=registry)
        self._seconds = Histogram(
            "gpuyard_http_seconds",
            "Time from the request to the begin of its answer.",
            ("method", "route"),
            buckets=(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60),
            registry=registry,
        )

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answer."""
        known = method if method in METHODS else "other"
        self._requests.labels(known, route, str(status)).inc()
        self._seconds.labels(known, route).observe(seconds)


class StoreGauges:
    """What is in memory, counted when somebody asks."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def read(self, store: ApiStore) -> Mapping[str, float | Mapping[tuple[tuple[str, str], ...], float]]:
        """Live jobs by state, nodes by status, tenants, open incidents, streams."""
        jobs = Tally(job.state for job in store.jobs.values() if job.ended_at is None)
        nodes = Tally(node.status for node in store.nodes.values())
        return {
            "jobs_alive": {(("state", state),): float(count) for state, count in sorted(jobs.items())},
            "nodes_known": {(("status", status),): float(count) for status, count in sorted(nodes.items())},
            "tenants": float(len(store.tenants)),
            "incidents_open": float(sum(row.closed_at is None for row in store.incidents.values())),
            "watchers": float(self._hub.watchers),
        }
