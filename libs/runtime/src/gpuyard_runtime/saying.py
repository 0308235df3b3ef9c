"""An envelope around what is said: ids, causes and trace context in one place, within a unit and outside of one."""

from datetime import datetime
from typing import Any

from gpuyard_contracts.envelope import Envelope, Payload

from gpuyard_runtime.ids import child_of


def enveloped(
    payload: Payload,
    *,
    source: str,
    at: datetime,
    event_id: str,
    traceparent: str | None = None,
    correlation_id: str | None = None,
    causation_id: str | None = None,
) -> Envelope[Any]:
    """The envelope of a payload. `event_id` is a uuid; `traceparent` is the parent's, None starts a new trace. A `correlation_id` of None
    is the payload's own.

    Raises ValueError where a field of the payload cannot be part of a subject.
    """
    return Envelope(
        id=event_id,
        source=source,
        time=at,
        data=payload,
        subject=payload.subject(),
        correlation_id=payload.correlation() if correlation_id is None else correlation_id or None,
        causation_id=causation_id,
        traceparent=child_of(traceparent, event_id),
    )
