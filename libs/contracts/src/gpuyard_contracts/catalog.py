"""Every message there is, found by class, by type or by subject."""

from collections.abc import Callable, Sequence
from operator import itemgetter

from gpuyard_contracts.envelope import Ask, Message, Payload
from gpuyard_contracts.messages import api, asks, billing, explaining, monitor, node, placement, requests, scheduler
from gpuyard_contracts.subjects import fields_of

_MODULES = (requests, scheduler, placement, node, monitor, billing, api, asks, explaining)


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

_Fixed = Callable[[Sequence[str]], tuple[str, ...]]
"""From the tokens of a subject to its fixed ones."""
_Known = dict[tuple[str, ...], tuple[type[Payload], tuple[tuple[str, int], ...]]]
"""By the fixed tokens of a shape: the class, and for each field of its subject the token's place."""


def _index() -> dict[int, list[tuple[_Fixed, _Known]]]:
    """By the number of tokens: the shapes (which places are fixed) with what is known of each. `find` is called for every message."""
    shapes: dict[tuple[int, ...], _Known] = {}
    lengths: dict[int, list[tuple[_Fixed, _Known]]] = {}
    for kind in PAYLOADS:
        tokens = kind.SUBJECT.split(".")
        fixed = tuple(place for place, token in enumerate(tokens) if not token.startswith("{"))
        free = (place for place in range(len(tokens)) if place not in fixed)
        shape = (len(tokens), *fixed)
        if shape not in shapes:
            shapes[shape] = {}
            lengths.setdefault(len(tokens), []).append((itemgetter(*fixed), shapes[shape]))
        shapes[shape][itemgetter(*fixed)(tokens)] = (kind, tuple(zip(fields_of(kind.SUBJECT), free, strict=True)))
    return lengths


_BY_LENGTH = _index()


def find(subject: str) -> tuple[type[Payload] | None, dict[str, str]]:
    """The class of a stream's message by its subject, and the fields that the subject carries; (None, {}) for an unknown one."""
    tokens = subject.split(".")
    for fixed, known in _BY_LENGTH.get(len(tokens), ()):
        found = known.get(fixed(tokens))
        if found is not None:
            return found[0], {field: tokens[place] for field, place in found[1]}
    return None, {}
