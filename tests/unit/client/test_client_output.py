"""Tables: what gives way where the page is narrow."""

from gpuyard.cli import output
from hypothesis import given
from hypothesis import strategies as st

CELLS = st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=60)


@given(st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=8), st.integers(40, 200))
def test_a_table_is_never_wider_than_its_page(rows: list[tuple[str, str, str]], width: int) -> None:
    """As long as no column is to stay whole."""
    widths = output.fit(("A", "B", "C"), rows, width, set())
    assert sum(widths) + 2 * output.GAP <= width


def test_the_widest_column_gives_way_first_and_whole_ones_never_do() -> None:
    """Short cells stay readable."""
    assert output.fit(("ID", "NAME", "WHY"), [("j" * 20, "n" * 100, "short")], 60, {0}) == [20, 31, 5]


def test_what_fits_is_left_as_it_is() -> None:
    """No column is wider than it must be."""
    assert output.fit(("ID", "NAME"), [("ab", "c")], 80, set()) == [2, 4]


@given(CELLS, st.integers(1, 40))
def test_a_cut_text_takes_no_more_than_its_columns(text: str, width: int) -> None:
    """Wide signs count as two."""
    assert output.cells_of(output.cut(text, width)) <= width


def test_what_was_asked_for_is_shown_in_the_shorthand() -> None:
    """As one would write it."""
    shown = [
        output.ask_of(gpu, ranks)
        for gpu, ranks in [
            ({"count": 2, "milli": 1000, "models": ["A100-80GB"]}, 1), ({"count": 1, "milli": 250, "models": ["T4"]}, 1),
            ({"count": 1, "models": ["T4", "L4"]}, 4), ({"count": 3, "memory_mib": 22889}, 1), ({"count": 1, "mig_profile": "3g.40gb"}, 1),
            ({"count": 1, "models": ["T4"], "share_memory_mib": 4096}, 1), ({}, 1), ({"count": 2, "milli": 250}, 1),
        ]
    ]  # fmt: skip
    assert shown == ["A100-80GB:2", "T4:0.25", "4 x T4|L4:1", "24GB..:3", "mig-3g.40gb:1", "T4:4GiB", "any:1", "any:2x0.25"]
