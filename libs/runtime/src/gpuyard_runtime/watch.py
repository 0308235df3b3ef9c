"""What the dispatcher tells, turned into logs, metrics, spans and reasons on /readyz."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gpuyard_runtime.clock import Clock
from gpuyard_runtime.faults import Poison
from gpuyard_runtime.health import Health
from gpuyard_runtime.logs import log_of, trace_id_of
from gpuyard_runtime.metrics import Metrics
from gpuyard_runtime.service import Tx
from gpuyard_runtime.work import Work, reason_of

if TYPE_CHECKING:
    from gpuyard_runtime.traces import Spans


class ServiceWatch:
    """Hears of every unit. Counting is done once for a unit, by type."""

    def __init__(self, metrics: Metrics, health: Health, clock: Clock, spans: "Spans | None") -> None:
        self._metrics = metrics
        self._health = health
        self._clock = clock
        self._spans = spans
        self._log = log_of("unit")

    def committed(self, done: Sequence[Work], repeated: int, tx: Tx[Any]) -> None:
        """Count, and export the spans of what was said."""
        found = self._metrics
        found.units.inc()
        found.unit_size.observe(len(done))
        found.count(found.handled, [item.kind for item in done])
        if repeated:
            found.repeated.inc(repeated)
        if tx.said:
            found.count(found.said, [event.type for event in tx.said])
            if self._spans is not None:
                self._spans.committed(tx.parents, tx.said, tx.now, self._clock.now())

    def gave_up(self, item: Work, error: BaseException) -> None:
        """An item failed for good. A refusal that the program foresaw is no error of ours."""
        reason, detail = reason_of(error)
        self._metrics.failed.labels(item.kind, reason).inc()
        if isinstance(error, Poison):
            self._log.info("refused", **_about(item), reason=reason, detail=detail)
        else:
            self._log.error("gave_up", **_about(item), reason=reason, detail=detail, exc_info=error)

    def waits(self, item: Work, error: BaseException) -> None:
        """An item is tried again in place; its lane waits with it."""
        self._metrics.waits.labels(item.kind).inc()
        self._health.tell(item.lane, f"waits for {item.kind}: {error}"[:300])
        self._log.warning("waits", **_about(item), tries=item.tries, detail=f"{type(error).__name__}: {error}")

    def undecided(self, error: BaseException | None) -> None:
        """The decision over the whole state fails, or works again."""
        if error is None:
            self._health.tell("decision", None)
            return
        self._metrics.undecided.inc()
        self._health.tell("decision", f"fails: {type(error).__name__}: {error}"[:300])
        self._log.error("undecided", exc_info=error)


def _about(item: Work) -> dict[str, Any]:
    origin = item.origin
    return {
        "type": item.kind,
        "event_id": origin.cause.id if origin.cause is not None else origin.id,
        "correlation_id": origin.correlation_id,
        "trace_id": trace_id_of(origin.traceparent),
    }
