"""Old bodies, lifted to the form that today's classes read.

An addition needs nothing here (new fields are optional). A change that is not an addition gets a new version of the class and, until no
reader of the old one is left, both are published; an upcaster is for old bodies that still lie in a stream.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuyard_contracts.envelope import Message

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]

UPCASTERS: dict[str, tuple[Upcaster, ...]] = {}
"""By type: what is done to a body, in order, before it is validated. Each must leave a body that is already lifted as it is."""


def up(kind: "type[Message]", content: dict[str, Any], upcasters: Mapping[str, tuple[Upcaster, ...]] = UPCASTERS) -> dict[str, Any]:
    """The body as today's class reads it."""
    for lift in upcasters.get(kind.TYPE, ()):
        content = lift(content)
    return content
