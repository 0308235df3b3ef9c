"""The embedded servers start wherever the checkout lies and whoever we are, and say why when they do not."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest
from gpuyard_local import postgres
from gpuyard_local.embedded import LOOPBACK, ServerFailed, free_port
from gpuyard_local.nats import Nats
from gpuyard_local.postgres import FOR_TESTS, Postgres, binaries, is_reachable, place_of


@pytest.fixture
def open_temp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder of the test's own that every user can reach."""
    folder = Path(tempfile.mkdtemp(prefix="gpuyard-open-"))
    folder.chmod(0o755)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    shutil.rmtree(folder)


async def test_a_database_starts_from_a_folder_that_nobody_else_may_enter(
    tmp_path: Path, open_temp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setattr(postgres, "is_reachable", lambda folder: folder.is_relative_to(open_temp))
    server = Postgres(tmp_path / "data", password="it's a secret: %/@", settings=FOR_TESTS, is_tied=True)
    server.start()
    try:
        conn = await asyncpg.connect(server.dsn())
        await conn.execute("create table kept (id int)")
        await conn.close()
        server.kill()
        server.start()
        conn = await asyncpg.connect(server.dsn())
        assert await conn.fetchval("select count(*) from kept") == 0
        await conn.close()
    finally:
        data_dir = server.data_dir
        server.remove()
    assert not data_dir.exists()
    assert not list(open_temp.glob("gpuyard-half-*"))


@pytest.mark.skipif(os.getuid() != 0, reason="only root needs another place for program and data")
def test_as_root_program_and_data_lie_where_the_database_user_can_reach_them(
    tmp_path: Path, open_temp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    assert is_reachable(place_of(tmp_path / "data").parent)
    assert place_of(tmp_path / "data") == place_of(tmp_path / "data")
    monkeypatch.setattr(postgres, "is_reachable", lambda folder: folder.is_relative_to(open_temp))
    found = binaries()
    assert (found / "postgres").is_file()
    assert found.is_relative_to(open_temp)
    assert binaries() == found


@pytest.mark.skipif(os.getuid() != 0, reason="only root uses folders whose names others can guess")
def test_a_folder_that_somebody_else_put_there_is_not_used(tmp_path: Path, open_temp: Path) -> None:
    tmp_path.chmod(0o700)
    place = place_of(tmp_path / "data").parent
    place.rmdir()
    place.mkdir()
    os.chown(place, 65534, 65534)
    with pytest.raises(ServerFailed, match="not a folder of our own"):
        place_of(tmp_path / "data")


def test_a_server_that_does_not_come_up_shows_the_end_of_its_log(tmp_path: Path) -> None:
    server = Nats(tmp_path, "listen: nonsense {", free_port())
    with pytest.raises(ServerFailed, match=r"nats\.log:\n.*Parse error"):
        server.start()
    assert server.pid is None


def test_a_bus_answers_as_soon_as_it_is_started_and_its_settings_are_private(tmp_path: Path) -> None:
    port = free_port()
    server = Nats(tmp_path, f'listen: "{LOOPBACK}:{port}"', port, is_tied=True)
    server.start()
    try:
        assert server.pid is not None
        assert server.config_file.stat().st_mode & 0o077 == 0
    finally:
        server.stop()
