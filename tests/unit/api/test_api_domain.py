"""The pure parts: cursors, guesses, plain words, traces, lines, tokens."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from gpuyard_api.domain import cursor
from gpuyard_api.domain.loglines import LineCursor, LogLine
from gpuyard_api.domain.model import Event, name_of
from gpuyard_api.domain.plain import sentence
from gpuyard_api.domain.secret import digest_of, is_token, request_id_of, token_id_of, token_of
from gpuyard_api.domain.suggest import nearest
from gpuyard_api.domain.trace import waterfall
from gpuyard_contracts.types import RequestId
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

AT = datetime(2030, 1, 1, tzinfo=UTC)


@given(at=st.datetimes(timezones=st.just(UTC)), key=st.from_regex(r"job-[a-z2-7]{16}", fullmatch=True))
def test_a_cursor_reads_back(at: datetime, key: str) -> None:
    """To the microsecond, from characters that need no escaping in an address."""
    made = cursor.of_row(at, key)
    assert cursor.read(made) == (at, key)
    assert made.replace("-", "").replace("_", "").isalnum()
    assert len(made) <= cursor.MAX_LENGTH


@given(st.text(max_size=300))
def test_no_text_is_misread_as_a_cursor(text: str) -> None:
    """ValueError and nothing else, or a real cursor."""
    try:
        at, key = cursor.read(text)
    except ValueError:
        return
    assert at.tzinfo is not None
    assert key.isascii()


def test_a_cursor_keeps_the_instant_not_the_zone() -> None:
    """Two spellings of one instant are one place."""
    other = AT.astimezone(timezone(timedelta(hours=2)))
    assert cursor.read(cursor.of_row(other, "x"))[0] == AT


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("urgent", ("low", "normal", "high"), "high"),
        ("Hihg", ("low", "normal", "high"), "high"),
        ("urgent", ("gold", "silver"), None),
        ("retires", ("retries", "ranks"), "retries"),
        ("gpus", ("gpu", "name"), "gpu"),
        ("zzz", ("gpu", "name"), None),
        ("", (), None),
    ],
)
def test_the_nearest_word(word: str, known: tuple[str, ...], meant: str | None) -> None:
    """By meaning, by spelling, or none at all."""
    assert nearest(word, known) == meant


@given(kind=st.text(max_size=30), value=st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.text())))
def test_any_error_becomes_words(kind: str, value: Any) -> None:
    """Also kinds that nobody foresaw; values under `env` are never in them."""
    error = {"loc": ("body", "env", "KEY"), "type": kind, "msg": "no", "input": f"hunter2{value}", "ctx": {}}
    field, message, fix = sentence(error, lambda place: ())
    assert field == "env.KEY"
    assert "hunter2" not in message + fix
    sentence(error | {"loc": ("body",), "input": value}, lambda place: ("a",))


def test_a_step_lasts_from_its_cause() -> None:
    """Where the cause is known, else from the event before; clocks that disagree make no negative step."""

    def event(seq: int, ms: int, event_id: str, cause: str | None = None) -> Event:
        return Event(seq, event_id, "gpuyard.evt.x.job.did.v1", "x", AT + timedelta(milliseconds=ms), "{}", causation_id=cause)

    trace = waterfall([event(3, 30, "c", "a"), event(1, 10, "a"), event(2, 20, "b", "unknown"), event(4, 25, "d", "c")], AT)
    assert [(step.event.event_id, step.begins_ms, step.ends_ms) for step in trace.steps] == [
        ("a", 0, 10),
        ("b", 10, 20),
        ("d", 25, 25),
        ("c", 10, 30),
    ]
    assert (trace.total_ms, trace.trace_id) == (30, None)
    assert waterfall([], AT).steps == ()


def test_names_are_noun_and_verb() -> None:
    """Whatever the service and the version."""
    assert name_of("gpuyard.evt.scheduler.job.queued.v1") == "job.queued"
    assert name_of("gpuyard.req.job.submit.v1") == "job.submit"


@given(st.permutations([(attempt, number) for attempt in (1, 2) for number in range(4)]))
def test_no_line_is_shown_twice(order: list[tuple[int, int]]) -> None:
    """However the batches come, a line's number never goes back within its attempt."""
    seen = LineCursor()
    shown = [
        (line.attempt, line.number)
        for attempt, number in [*order, *order]
        for line in seen.fresh([LogLine(attempt, 0, "stdout", number, "", AT)])
    ]
    assert len(shown) == len(set(shown))
    for attempt in (1, 2):
        numbers = [number for each, number in shown if each == attempt]
        assert numbers == sorted(numbers)


@given(st.binary(min_size=32, max_size=32))
def test_tokens_have_one_form(random: bytes) -> None:
    """Made from 32 bytes, recognised, and named without giving anything away."""
    token = token_of(random)
    assert is_token(token)
    assert not is_token(token + "\n")
    assert token_id_of(digest_of(token))[4:] not in token


@given(st.from_regex(r"[ -~]{1,255}", fullmatch=True))
def test_any_key_makes_a_request_id(key: str) -> None:
    """That contracts take, the same for the same key."""
    assert TypeAdapter(RequestId).validate_python(request_id_of(key)) == request_id_of(key)
