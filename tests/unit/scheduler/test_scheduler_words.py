"""Amounts in the scheduler's words."""

import pytest
from gpuyard_scheduler.domain import words


@pytest.mark.parametrize(
    ("mib", "text"),
    [(512, "512 MiB"), (1024, "1 GiB"), (81_920, "80 GiB"), (38_147, "40 GB"), (95_368, "100 GB"), (46_068, "46068 MiB"), (0, "0 MiB")],
)
def test_memory_is_told_in_the_unit_in_which_it_was_asked(mib: int, text: str) -> None:
    """'40GB' is 38147 MiB on its way, and '40 GB' again in the answer."""
    assert words.memory(mib) == text


def test_cards_and_processors_are_told_in_wholes() -> None:
    """Never in thousandths."""
    assert [words.gpus(milli) for milli in (250, 1000, 8000, 1500)] == ["0.25 GPU", "1 GPU", "8 GPUs", "1.5 GPUs"]
    assert [words.cpus(milli) for milli in (500, 2000)] == ["0.5 CPU", "2 CPUs"]
    assert [words.cards(number) for number in (1, 2)] == ["1 card", "2 cards"]
