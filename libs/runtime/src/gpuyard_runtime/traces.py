"""Spans, as far as a collector is configured; the trace context itself always travels in the headers.

Each said event is one span: its id comes from the event's id and is the very one in the event's ``traceparent``, its parent is the cause's.
So the path of a message through all services is one trace, and a thing done twice shows once. Spans are built by hand, after the commit:
a context manager around each handler would cost more than the handler.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from gpuyard_contracts.envelope import Envelope
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags


class Spans:
    """Where spans go."""

    def __init__(self, service: str, endpoint: str) -> None:
        self._resource = Resource.create({"service.name": f"gpuyard-{service}", "service.namespace": "gpuyard"})
        self._scope = InstrumentationScope("gpuyard_runtime")
        self._processor = BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces"))

    def committed(self, parents: Sequence[str | None], said: Sequence[Envelope[Any]], began: datetime, ended: datetime) -> None:
        """Export a span for each said event; `parents` are the trace contexts they are children of."""
        start, end = int(began.timestamp() * 1e9), int(ended.timestamp() * 1e9)
        for event, parent_context in zip(said, parents, strict=True):
            context = context_of(event.traceparent)
            if context is None:
                continue
            parent = context_of(parent_context)
            self._processor.on_end(
                ReadableSpan(
                    name=event.type,
                    context=context,
                    parent=parent,
                    resource=self._resource,
                    attributes={
                        "messaging.system": "nats",
                        "messaging.message.id": event.id,
                        "messaging.destination.template": event.type,
                        "gpuyard.correlation_id": event.correlation_id or "",
                    },
                    kind=SpanKind.PRODUCER,
                    instrumentation_scope=self._scope,
                    start_time=start,
                    end_time=end,
                )
            )

    def close(self) -> None:
        """Send what is left, for a second at most."""
        self._processor.force_flush(1000)
        self._processor.shutdown()


def context_of(traceparent: str | None) -> SpanContext | None:
    """The span that a trace context names."""
    if not traceparent:
        return None
    _, trace_id, span_id, flags = traceparent.split("-")
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16)))
