"""Traces as bars of text."""

from gpuyard.cli.waterfall import draw, show_ms
from gpuyard.results import Step, Trace
from hypothesis import given
from hypothesis import strategies as st


def test_bars_begin_and_end_where_their_steps_do() -> None:
    """To the scale of the whole."""
    steps = (Step(name="a", service="api", offset_ms=0, duration_ms=50), Step(name="b", service="api", offset_ms=50, duration_ms=50))
    _, first, second = draw(Trace(trace_id="t", total_ms=100, steps=steps, is_complete=True), width=79, is_utf8=False)
    begin, end = first.index("#"), first.rindex("#")
    assert second.index("#") == end + 1 and second.rindex("#") == begin + 2 * (end - begin + 1) - 1


def test_a_step_without_length_still_has_its_mark() -> None:
    """It happened."""
    lines = draw(Trace(total_ms=0.0, steps=(Step(name="a", service="api"),)), width=80, is_utf8=False)
    assert "|" in lines[1] and "not over yet" in lines[0]


def test_a_trace_of_nothing_says_so() -> None:
    """Not an empty page."""
    assert draw(Trace(), width=80) == ["nothing is known of this job's way yet"]


@given(
    st.lists(st.tuples(st.text(max_size=60), st.floats(0, 1e7), st.floats(0, 1e7)), min_size=1, max_size=20),
    st.integers(0, 300),
)
def test_no_line_is_wider_than_the_page(steps: list[tuple[str, float, float]], width: int) -> None:
    """Whatever the steps are called and however long they took."""
    total = max(offset + duration for _, offset, duration in steps)
    made = tuple(Step(name=name, service="s", offset_ms=offset, duration_ms=duration) for name, offset, duration in steps)
    assert all(len(line) <= max(width, 60) for line in draw(Trace(trace_id="t", total_ms=total, steps=made), width=width))


def test_durations_are_shown_as_finely_as_they_matter() -> None:
    """Three significant places or so."""
    assert [show_ms(ms) for ms in (0.04, 0.8, 12.3, 999, 1000, 61234)] == ["0.0 ms", "0.8 ms", "12 ms", "999 ms", "1.00 s", "61.23 s"]
