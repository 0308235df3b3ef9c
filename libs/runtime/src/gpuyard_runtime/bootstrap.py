"""Making the bus's streams and durables what the topology says: one step before the services, never done by a service.

Doing it again changes nothing. What exists with another configuration is *drift*: it is named field by field and only changed when
`repair` is asked for, since two versions of the program would otherwise flip it at each start. Nothing is ever deleted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gpuyard_contracts.topology import DURABLES, STREAMS, Durable, Stream

from gpuyard_runtime.bus import ApiError
from gpuyard_runtime.faults import RuntimeFault

STREAM_NOT_FOUND = 10059
CONSUMER_NOT_FOUND = 10014
NANOS = 1_000_000_000


class Api(Protocol):
    """What bootstrap needs of the bus."""

    async def api(self, subject: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """One request to JetStream's API. Raises ApiError."""
        ...


class Drifted(RuntimeFault):
    """A stream or durable exists with another configuration than the topology's; see `drift`."""

    def __init__(self, drift: Sequence["Drift"]) -> None:
        super().__init__("; ".join(str(found) for found in drift))
        self.drift = tuple(drift)


@dataclass(frozen=True, slots=True)
class Drift:
    """One field of one stream or durable that is not as it must be."""

    name: str
    field: str
    wanted: Any
    found: Any

    def __str__(self) -> str:
        return f"{self.name}: {self.field} is {self.found!r}, wanted {self.wanted!r}"


@dataclass
class Report:
    """What was done: names of what was created and of what was repaired, and the drift that was found."""

    created: list[str] = field(default_factory=list[str])
    repaired: list[str] = field(default_factory=list[str])
    drift: list[Drift] = field(default_factory=list[Drift])


async def bootstrap(
    bus: Api,
    *,
    streams: Sequence[Stream] = STREAMS,
    durables: Sequence[Durable] = DURABLES,
    repair: bool = False,
    replicas: int = 1,
) -> Report:
    """Create what is missing; see the module. Raises Drifted where drift was found and is not to be, or cannot be, repaired."""
    report = Report()
    left: list[Drift] = []
    for stream in streams:
        left += await _ensure(bus, f"stream {stream.name}", _StreamAt(stream, replicas), report, repair=repair)
    for durable in durables:
        left += await _ensure(bus, f"durable {durable.name}", _DurableAt(durable), report, repair=repair)
    if left:
        raise Drifted(left)
    return report


async def ensure_durable(bus: Api, durable: Durable, *, repair: bool = True) -> Report:
    """Make one durable, such as a newly admitted node's. Raises Drifted."""
    return await bootstrap(bus, streams=(), durables=(durable,), repair=repair)


def stream_config(stream: Stream, replicas: int) -> dict[str, Any]:
    """A stream's configuration as JetStream's API names it."""
    return {
        "name": stream.name,
        "subjects": list(stream.subjects),
        "retention": stream.retention,
        "storage": "file",
        "discard": stream.discard,
        "max_age": int(stream.max_age_seconds * NANOS),
        "max_bytes": stream.max_bytes,
        "max_msgs_per_subject": stream.max_messages_per_subject,
        "max_msg_size": stream.max_message_bytes,
        "duplicate_window": int(stream.duplicate_window_seconds * NANOS),
        "num_replicas": replicas,
    }


def durable_config(durable: Durable) -> dict[str, Any]:
    """A durable's configuration as JetStream's API names it."""
    return {
        "durable_name": durable.name,
        "name": durable.name,
        "filter_subjects": list(durable.filters),
        "ack_policy": "explicit",
        "deliver_policy": "all",
        "replay_policy": "instant",
        "ack_wait": int(durable.ack_wait_seconds * NANOS),
        "max_ack_pending": durable.max_ack_pending,
        "max_deliver": -1,
    }


class _Part(Protocol):
    """A stream or a durable: its place in JetStream's API."""

    wanted: dict[str, Any]
    missing_code: int
    info: str
    create: str
    update: str

    def body(self, config: Mapping[str, Any]) -> Mapping[str, Any]: ...


class _StreamAt:
    def __init__(self, stream: Stream, replicas: int) -> None:
        self.wanted = stream_config(stream, replicas)
        self.missing_code = STREAM_NOT_FOUND
        self.info = f"STREAM.INFO.{stream.name}"
        self.create = f"STREAM.CREATE.{stream.name}"
        self.update = f"STREAM.UPDATE.{stream.name}"

    def body(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        return config


class _DurableAt:
    def __init__(self, durable: Durable) -> None:
        self.wanted = durable_config(durable)
        self.missing_code = CONSUMER_NOT_FOUND
        self.info = f"CONSUMER.INFO.{durable.stream}.{durable.name}"
        self.create = self.update = f"CONSUMER.CREATE.{durable.stream}.{durable.name}"
        self._stream = durable.stream

    def body(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"stream_name": self._stream, "config": config}


async def _ensure(bus: Api, name: str, part: _Part, report: Report, *, repair: bool) -> list[Drift]:
    """Create or compare one part; returns the drift that is left."""
    try:
        found = (await bus.api(part.info))["config"]
    except ApiError as error:
        if error.code != part.missing_code:
            raise
        await bus.api(part.create, part.body(part.wanted))
        report.created.append(name)
        return []
    drift = [Drift(name, key, wanted, _value(found, key)) for key, wanted in part.wanted.items() if _value(found, key) != _normal(wanted)]
    report.drift += drift
    if not drift or not repair:
        return drift
    changed = {key: value for key, value in found.items() if key not in ("filter_subject", "metadata")} | part.wanted
    try:
        await bus.api(part.update, part.body(changed))
    except ApiError as error:
        return [Drift(name, "configuration", f"a change that the server takes ({error})", [one.field for one in drift])]
    report.repaired.append(name)
    return []


def _value(config: Mapping[str, Any], key: str) -> Any:
    """A field as the server tells it: a single filter has a field of its own, and defaults are left out."""
    if key == "filter_subjects" and "filter_subject" in config:
        return [config["filter_subject"]]
    defaults: dict[str, Any] = {"max_age": 0, "max_bytes": -1, "max_msgs_per_subject": -1, "max_msg_size": -1, "max_deliver": -1}
    return _normal(config.get(key, defaults.get(key)))


def _normal(value: Any) -> Any:
    return sorted(value) if isinstance(value, list) else value
