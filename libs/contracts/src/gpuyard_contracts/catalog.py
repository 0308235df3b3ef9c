"""Every message there is, found by class, by type or by subject."""

from gpuyard_contracts.envelope import Ask, Message, Payload
from gpuyard_contracts.messages import api, asks, billing, monitor, node, placement, requests, scheduler
from gpuyard_contracts.subjects import fields_of

_MODULES = (requests, scheduler, placement, node, monitor, billing, api, asks)


def _classes(of: type[Message]) -> tuple[type[Message], ...]:
    found = {
        value.TYPE: value
        for module in _MODULES
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, of) and value.SUBJECT and value.__module__ == module.__name__
    }
    return tuple(found[name] for name in sorted(found))


PAYLOADS: tuple[type[Payload], ...] = tuple(kind for kind in _classes(Payload) if issubclass(kind, Payload))
"""Messages of streams, by type."""

ASKS: tuple[type[Ask], ...] = tuple(kind for kind in _classes(Ask) if issubclass(kind, Ask))
"""Questions on core NATS, by type."""

BY_TYPE: dict[str, type[Payload]] = {kind.TYPE: kind for kind in PAYLOADS}

_Shape = tuple[int, tuple[int, ...]]


def _index() -> tuple[dict[int, list[_Shape]], dict[tuple[_Shape, tuple[str, ...]], type[Payload]]]:
    shapes: dict[int, list[_Shape]] = {}
    found: dict[tuple[_Shape, tuple[str, ...]], type[Payload]] = {}
    for kind in PAYLOADS:
        tokens = kind.SUBJECT.split(".")
        fixed = tuple(place for place, token in enumerate(tokens) if not token.startswith("{"))
        shape = (len(tokens), fixed)
        if shape not in shapes.setdefault(len(tokens), []):
            shapes[len(tokens)].append(shape)
        found[shape, tuple(tokens[place] for place in fixed)] = kind
    return shapes, found


_SHAPES, _FOUND = _index()


def find(subject: str) -> tuple[type[Payload] | None, dict[str, str]]:
    """The class of a stream's message by its subject, and the fields that the subject carries; (None, {}) for an unknown one."""
    tokens = subject.split(".")
    for shape in _SHAPES.get(len(tokens), ()):
        kind = _FOUND.get((shape, tuple(tokens[place] for place in shape[1])))
        if kind is not None:
            carried = (token for place, token in enumerate(tokens) if place not in shape[1])
            return kind, dict(zip(fields_of(kind.SUBJECT), carried, strict=True))
    return None, {}
