"""The first operator's token: in a file that only its owner reads, whole or not at all."""

import stat
from pathlib import Path

import pytest
from gpuyard_api import acts
from gpuyard_api.admin_file import Exposed, first_token
from gpuyard_api.app import make_service
from gpuyard_api.domain.secret import digest_of, is_token, token_of
from gpuyard_api.hub import Hub
from gpuyard_api.store import ApiStore
from gpuyard_runtime.testing import Harness


def test_the_file_is_the_owners_alone(tmp_path: Path) -> None:
    """Mode 0600 whatever the umask, in a folder that is made, and nothing else is left there."""
    path = tmp_path / "new" / "admin.token"
    token = first_token(path)
    assert is_token(token)
    assert path.read_text() == f"{token}\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["admin.token"]


def test_a_file_from_a_start_that_died_is_taken(tmp_path: Path) -> None:
    """The token that somebody may have read already is the one that works."""
    path = tmp_path / "admin.token"
    assert first_token(path) == first_token(path)


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    """Its token may be known; the message does not repeat it."""
    path = tmp_path / "admin.token"
    token = first_token(path)
    path.chmod(0o640)
    with pytest.raises(Exposed) as told:
        first_token(path)
    assert token not in str(told.value)


def test_rubbish_is_replaced(tmp_path: Path) -> None:
    """Half a token, from a full disk say, opens nothing."""
    path = tmp_path / "admin.token"
    path.touch(mode=0o600)
    path.write_text("gpy_half")
    assert is_token(first_token(path))


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """The file could be anybody's."""
    path = tmp_path / "admin.token"
    path.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").touch()
    with pytest.raises(OSError, match="link"):
        first_token(path)


def test_there_is_one_first_operator() -> None:
    """A second start that draws another token changes nothing."""

    async def prune(before: object) -> None: ...

    harness: Harness[ApiStore] = Harness(make_service(Hub(), prune))
    harness.act(acts.first_operator(token_of(b"1" * 32)))
    harness.act(acts.first_operator(token_of(b"2" * 32)))
    assert [row.digest for row in harness.rows("tokens")] == [digest_of(token_of(b"1" * 32))]
