"""When a card is of a model: one rule for what is asked for, what is priced and what is watched.

Case, the maker's words and separators do not count. A name means every card whose name begins with the same word and has all of its
words: ``a100`` and ``A100-80GB`` both mean NVML's ``NVIDIA A100-SXM4-80GB``; ``A10`` does not.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

ANY_MODEL = "*"
"""Stands for every model that has no entry of its own."""

_MAKERS = frozenset({"nvidia", "tesla", "amd", "instinct", "geforce", "quadro"})


@lru_cache(maxsize=4096)
def _words(name: str) -> tuple[str, ...]:
    words = tuple(word for word in re.split(r"[\s_-]+", name.casefold()) if word)
    return tuple(word for word in words if word not in _MAKERS) or words


@lru_cache(maxsize=4096)
def plain_model(name: str) -> str:
    """The name without the maker's words, as it is shown: ``NVIDIA A100-SXM4-80GB`` → ``A100-SXM4-80GB``."""
    kept = name.strip()
    while (first := re.match(r"\S+\s+", kept)) and first[0].strip().casefold() in _MAKERS:
        kept = kept[first.end() :]
    return kept


@lru_cache(maxsize=4096)
def is_of_model(model: str, name: str) -> bool:
    """Whether a card of `model` is meant by `name`."""
    has, wanted = _words(model), _words(name)
    return has[:1] == wanted[:1] and set(wanted) <= set(has)


def nearest_name(model: str, names: Iterable[str]) -> str | None:
    """The name that means this model most closely (the most words), ``*`` if only that is left, else None."""
    known = list(names)
    meant = [name for name in known if name != ANY_MODEL and is_of_model(model, name)]
    if meant:
        return max(meant, key=lambda name: (len(_words(name)), name))
    return ANY_MODEL if ANY_MODEL in known else None
