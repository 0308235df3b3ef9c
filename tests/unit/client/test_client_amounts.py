"""Amounts as people write them."""

import pytest
from gpuyard import amounts
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "mib"), [("16GiB", 16384), ("16 gib", 16384), ("512MiB", 512), ("1TiB", 2**20), ("16GB", 15259), ("1MB", 1), ("1.5GiB", 1536)]
)
def test_memory_is_read_with_its_unit_and_rounded_up(text: str, mib: int) -> None:
    """What was asked for is there: never a MiB less."""
    assert amounts.memory_mib(text) == mib


@pytest.mark.parametrize("text", ["16", "", "GB", "-1GB", "16 gigs", "1e3GB", "٣GB x", "16GB\n;"])
def test_memory_without_a_unit_or_with_nonsense_is_refused(text: str) -> None:
    """A bare number could be anything."""
    with pytest.raises(ValueError, match="write it with its unit"):
        amounts.memory_mib(text)


@pytest.mark.parametrize(("text", "milli"), [("1", 1000), ("1.5", 1500), ("0.001", 1), ("64", 64000), ("2.0", 2000)])
def test_processors_are_counted_in_thousandths(text: str, milli: int) -> None:
    """Decimal, so that 1.1 is 1100 and not 1099."""
    assert amounts.cpu_milli(text) == milli


@pytest.mark.parametrize("text", ["0", "-1", "0.0001", "nan", "inf", "1e30", "many", ""])
def test_processors_that_cannot_be_given_are_refused(text: str) -> None:
    """Nothing is rounded silently."""
    with pytest.raises(ValueError):
        amounts.cpu_milli(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("2h", 7200), ("90m", 5400), ("1h30m", 5400), ("45s", 45), ("45", 45), ("1d2h", 93600), ("2H", 7200)]
)
def test_durations_are_read(text: str, seconds: int) -> None:
    """Plain numbers are seconds."""
    assert amounts.seconds(text) == seconds


@pytest.mark.parametrize("text", ["0", "0s", "", "h", "2 weeks", "-5m", "1m1h", "1.5h", "9" * 40 + "s"])
def test_durations_that_mean_nothing_are_refused(text: str) -> None:
    """Also those that are zero."""
    with pytest.raises(ValueError):
        amounts.seconds(text)


@given(st.integers(min_value=1, max_value=400 * 86400))
def test_a_whole_duration_in_seconds_is_itself(seconds: int) -> None:
    """Whatever its size."""
    assert amounts.seconds(f"{seconds}s") == amounts.seconds(str(seconds)) == seconds


@pytest.mark.parametrize(
    ("micros", "shown"),
    [
        (0, "0.00"),
        (1, "0.000001"),
        (417, "0.000417"),
        (1_250_000, "1.25"),
        (-1_250_000, "-1.25"),
        (10**12, "1,000,000.00"),
        (-1, "-0.000001"),
    ],
)
def test_money_is_shown_exactly(micros: int, shown: str) -> None:
    """No amount is rounded away."""
    assert amounts.show_money(micros) == shown


@pytest.mark.parametrize(
    ("milliseconds", "shown"), [(0, "0.000s"), (24, "0.024s"), (752, "0.752s"), (3004, "3.0s"), (61_400, "1m01s"), (10_000, "10s")]
)
def test_short_times_are_not_shown_as_nothing(milliseconds: int, shown: str) -> None:
    """What is billed is seen."""
    assert amounts.show_ms(milliseconds) == shown


@pytest.mark.parametrize("asked", ["80 GiB", "40 GB", "100 GB", "1 GB", "512 MiB", "46068 MiB"])
def test_memory_is_shown_in_the_unit_in_which_it_was_asked(asked: str) -> None:
    """There and back."""
    assert amounts.show_asked(amounts.memory_mib(asked)) == asked


@given(st.integers(min_value=-(10**15), max_value=10**15))
def test_money_shown_says_the_same_amount(micros: int) -> None:
    """Reading back what is shown gives the amount."""
    sign, _, rest = amounts.show_money(micros).replace(",", "").rpartition("-")
    units, cents = rest.split(".")
    value = int(units) * 10**6 + int(cents.ljust(6, "0"))
    assert (-value if amounts.show_money(micros).startswith("-") else value) == micros and sign == ""


@pytest.mark.parametrize(
    ("milli", "shown"), [(1000, "1"), (250, "0.25"), (8000, "8"), (1500, "1.5"), (1, "0.001"), (0, "0"), (10000, "10")]
)
def test_cards_are_shown_without_needless_zeros(milli: int, shown: str) -> None:
    """Whole cards as whole numbers."""
    assert amounts.show_gpus(milli) == shown
