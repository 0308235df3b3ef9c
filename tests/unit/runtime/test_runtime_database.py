"""What an error of the database means."""

import pytest
from gpuyard_runtime.database import meaning
from gpuyard_runtime.faults import Unavailable


def _raised(module: str) -> Exception:
    """The AttributeError of a function that lives in `module`."""
    there: dict[str, object] = {"__name__": module}
    exec("def close(protocol): protocol.close_statement()", there)  # code of another module is what is wanted
    with pytest.raises(AttributeError) as caught:
        there["close"](None)  # type: ignore[operator]
    return caught.value


def test_a_connection_closed_under_the_driver_is_a_database_that_is_away() -> None:
    """asyncpg then trips over what it has let go; no message is to blame, and it is no fault of ours."""
    assert isinstance(meaning(_raised("asyncpg.connection")), Unavailable)


def test_our_own_mistakes_are_not_taken_for_a_database_that_is_away() -> None:
    """Waiting would not help."""
    error = _raised("gpuyard_scheduler.handlers")
    assert meaning(error) is error
