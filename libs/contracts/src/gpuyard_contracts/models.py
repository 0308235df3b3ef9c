"""When a card is of a model: one rule for what is asked for, what is priced and what is watched.

Case does not count, and a name stands for every longer one that goes on after a hyphen: ``a100`` means ``A100-80GB`` too, ``A10`` does not.
"""

from collections.abc import Iterable

ANY_MODEL = "*"
"""Stands for every model that has no entry of its own."""


def is_of_model(model: str, name: str) -> bool:
    """Whether a card of `model` is meant by `name`."""
    found, wanted = model.casefold(), name.casefold()
    return found == wanted or found.startswith(f"{wanted}-")


def nearest_name(model: str, names: Iterable[str]) -> str | None:
    """The longest of the names that means this model, ``*`` if only that is left, else None."""
    known = list(names)
    meant = [name for name in known if is_of_model(model, name)]
    if meant:
        return max(meant, key=len)
    return ANY_MODEL if ANY_MODEL in known else None
