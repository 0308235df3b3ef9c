"""How many histories are run, and from which seed on: ``pytest tests/simulation --seeds 500 --seed 1000``."""

import pytest

SEEDS = 60
"""Histories of an ordinary run."""
CHUNK = 5


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("simulation")
    group.addoption("--seeds", type=int, default=None, help="how many histories are simulated (default: 60, or 1 with --seed)")
    group.addoption("--seed", type=int, default=None, help="the first seed (default: 0)")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Chunks of seeds, so that a run is neither one test nor hundreds; a failure names its seed."""
    if "seeds" not in metafunc.fixturenames:
        return
    first: int | None = metafunc.config.getoption("--seed", default=None)
    wanted: int | None = metafunc.config.getoption("--seeds", default=None)
    count = wanted if wanted is not None else SEEDS if first is None else 1
    seeds = range(first or 0, (first or 0) + count)
    chunks = [seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)]
    metafunc.parametrize("seeds", chunks, ids=[f"{chunk[0]}-{chunk[-1]}" for chunk in chunks])
