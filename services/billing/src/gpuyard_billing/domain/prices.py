"""Which prices hold when, and what a shape costs by them.

A version holds from its `valid_from_ms` until a younger version (a higher number) does. So a new version that begins before one that was
planned for later replaces that one, and each version's time is one piece.
"""

from math import lcm

from gpuyard_contracts.models import ANY_MODEL, nearest_name

from gpuyard_billing.domain.model import CURRENCY, PriceVersion, Shape

DEFAULT_PRICES: tuple[tuple[str, int], ...] = (
    ("A10", 750_000),
    ("A100-40GB", 1_900_000),
    ("A100-80GB", 2_500_000),
    ("H100", 4_000_000),
    ("H200", 5_000_000),
    ("L4", 600_000),
    ("L40S", 1_400_000),
    ("T4", 350_000),
    ("V100", 1_200_000),
    (ANY_MODEL, 1_000_000),
)
"""What a fresh installation charges, in micro-units per card and hour, until an operator says otherwise."""

DEFAULT_BOOK = PriceVersion(1, CURRENCY, 0, DEFAULT_PRICES, "default")


class PriceBook:
    """All versions, ready to be asked. Immutable but for what it remembers of its own answers."""

    def __init__(self, versions: tuple[PriceVersion, ...]) -> None:
        self.versions = tuple(sorted(versions, key=lambda version: version.version))
        self._starts = _starts(self.versions)
        self._prices = {version.version: dict(version.prices) for version in self.versions}
        self._known: dict[tuple[int, str], int] = {}

    def pieces(self, begin_ms: int, end_ms: int) -> list[tuple[int, int, int, int]]:
        """The interval cut where prices change: (begin, end, version, instant from which that version holds), in order."""
        found: list[tuple[int, int, int, int]] = []
        for place, (start, version) in enumerate(self._starts):
            stop = self._starts[place + 1][0] if place + 1 < len(self._starts) else end_ms
            begin, end = max(begin_ms, start), min(end_ms, stop)
            if begin < end:
                found.append((begin, end, version, start))
        return found

    def version_at(self, instant_ms: int) -> int:
        """The version in force at an instant; before all versions it is the first that comes."""
        in_force = [version for start, version in self._starts if start <= instant_ms]
        return in_force[-1] if in_force else self._starts[0][1]

    def price_of(self, version: int, model: str) -> int:
        """Micro-units per card and hour; 0 for a model that the version does not name, not even by ``*``."""
        key = (version, model)
        found = self._known.get(key)
        if found is None:
            prices = self._prices[version]
            found = prices.get(nearest_name(model, prices) or "", 0)
            self._known[key] = found
        return found

    def rate(self, shape: Shape, version: int) -> tuple[int, int]:
        """Micro-units per hour for a whole shape, as numerator and denominator."""
        denominator = lcm(*(part.denominator for part in shape))
        numerator = sum(self.price_of(version, part.model) * part.numerator * (denominator // part.denominator) for part in shape)
        return numerator, denominator


def _starts(versions: tuple[PriceVersion, ...]) -> list[tuple[int, int]]:
    """(from when, version) in the order of time, without versions that a younger one replaced before they began."""
    found: list[tuple[int, int]] = []
    for version in versions:
        while found and found[-1][0] >= version.valid_from_ms:
            found.pop()
        found.append((version.valid_from_ms, version.version))
    return found


def problem_of_prices(prices: tuple[tuple[str, int], ...]) -> str | None:
    """Why these prices make no book, for people; None if they do."""
    names = [name.casefold() for name, _ in prices]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        return f"{', '.join(doubled[:5])} is priced twice"
    if ANY_MODEL not in names:
        return "a price for '*' (any other model) is missing; without it an unknown card would be free"
    return None
