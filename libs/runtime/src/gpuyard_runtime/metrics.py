"""What is counted of every service. Labels are message types and names from the program, never a concrete subject or an id."""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

Labels = tuple[tuple[str, str], ...]
Gauges = Mapping[str, float | Mapping[Labels, float]]


class Metrics:
    """One registry for the process."""

    def __init__(self, service: str) -> None:
        self.registry = CollectorRegistry()
        self.service = service

        def counter(name: str, says: str, *labels: str) -> Counter:
            return Counter(f"gpuyard_{name}", says, labels, registry=self.registry)

        self.handled = counter("handled", "Things done in units of work, by type.", "type")
        self.repeated = counter("repeated", "Deliveries whose effect was committed before.")
        self.ignored = counter("ignored", "Deliveries of a type that this service has no handler for.")
        self.said = counter("said", "Messages said, by type.", "type")
        self.failed = counter("failed", "Things given up, by type and reason.", "type", "reason")
        self.waits = counter("waits", "Times that a message had to wait in place, by type.", "type")
        self.units = counter("units", "Units of work committed.")
        self.undecided = counter("undecided", "Units committed without the service's decision, which failed.")
        self.unit_size = Histogram(
            "gpuyard_unit_size", "Things in one unit of work.", buckets=(1, 2, 5, 10, 20, 50, 100, 200, 500), registry=self.registry
        )
        self.unit_seconds = Histogram(
            "gpuyard_unit_seconds",
            "Time of one unit of work, from its begin to its commit.",
            buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
            registry=self.registry,
        )
        self.unpublished = Gauge(
            "gpuyard_unpublished_units", "Committed units whose messages the streams do not all have.", registry=self.registry
        )
        self.waiting = Gauge("gpuyard_waiting_deliveries", "Deliveries taken from the bus and not yet handled.", registry=self.registry)
        self.ready = Gauge("gpuyard_ready", "1 while the service is ready.", registry=self.registry)
        self._children: dict[tuple[int, str], Any] = {}
        self._gauges: list[Callable[[], Gauges]] = []

    def count(self, counter: Counter, types: Iterable[str]) -> None:
        """Count things of these types."""
        for kind, number in Tally(types).items():
            child = self._children.get((id(counter), kind))
            if child is None:
                child = self._children[id(counter), kind] = counter.labels(kind)
            child.inc(number)

    def add_gauges(self, read: Callable[[], Gauges]) -> None:
        """Numbers of the service itself, read when somebody asks."""
        self._gauges.append(read)

    def render(self) -> bytes:
        """Prometheus' text."""
        return generate_latest(self.registry) + "".join(line for read in self._gauges for line in lines_of(read())).encode()


_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def lines_of(gauges: Gauges) -> Iterator[str]:
    """Gauges as Prometheus' text. Written here and not by the client library, which takes seconds for the cards of a large fleet.

    A name that begins with a capital is somebody else's standard and kept as it is; others get our prefix.
    """
    known: dict[Labels, str] = {}
    for name, value in gauges.items():
        full = name if name[0].isupper() else f"gpuyard_{name}"
        yield f"# HELP {full} {name.replace('_', ' ')}.\n# TYPE {full} gauge\n"
        if not isinstance(value, Mapping):
            yield f"{full} {value}\n"
            continue
        for labels, number in value.items():
            text = known.get(labels)
            if text is None:
                text = known[labels] = ",".join(f'{label}="{found.translate(_ESCAPED)}"' for label, found in labels)
            yield f"{full}{{{text}}} {number}\n"
