"""The state folder: private, ours, and short enough."""

import json
import os
import stat
from pathlib import Path

import pytest
from gpuyard_local import facts as remembered
from gpuyard_local import layout as layouts
from gpuyard_local import private
from gpuyard_local.facts import Facts, Unreadable
from gpuyard_local.layout import Layout, NotOurs, socket_path


def mode(path: Path) -> int:
    """A file's permissions."""
    return stat.S_IMODE(path.stat().st_mode)


def test_the_state_folder_is_its_owners_alone(tmp_path: Path) -> None:
    """Also one that was there, and whatever the umask."""
    (tmp_path / "state").mkdir(mode=0o755)
    layout = Layout(tmp_path / "state")
    layout.make()
    assert {mode(layout.root), *(mode(folder) for folder in layout.root.iterdir())} == {0o700}


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path) -> None:
    """`--state ~` would be a pity."""
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(NotOurs, match="something else"):
        Layout(tmp_path).make()
    with pytest.raises(NotOurs, match="is not a folder"):
        Layout(tmp_path / "thesis.tex").make()


def test_the_supervisors_socket_lies_in_the_state_folder_where_its_path_is_short_enough(tmp_path: Path) -> None:
    """Counted in bytes, with what supervisord appends."""
    short = Layout(Path("/srv/y"))
    assert socket_path(short) == Path("/srv/y/run/supervisor.sock")


def test_a_long_path_moves_the_socket_to_a_short_private_folder_that_is_found_again() -> None:
    """Signs outside ASCII count by their bytes."""
    long = Layout(Path("/srv") / ("ü" * 45))
    found = socket_path(long)
    try:
        assert len(os.fsencode(found)) < 80 and mode(found.parent) == 0o700
        assert socket_path(long, str(found)) == found
        found.parent.chmod(0o777)
        fresh = socket_path(long, str(found))
        assert fresh != found
        fresh.parent.rmdir()
    finally:
        found.parent.rmdir()


def test_private_files_are_never_readable_for_others(tmp_path: Path) -> None:
    """Nor are they half written."""
    path = tmp_path / "secret"
    path.write_text("old")
    path.chmod(0o666)
    private.write(path, "new")
    assert path.read_text() == "new" and mode(path) == 0o600 and list(tmp_path.iterdir()) == [path]


def test_a_secret_is_made_once(tmp_path: Path) -> None:
    """An empty file is none."""
    path = tmp_path / "secret"
    path.write_text("\n")
    assert private.ensure(path, lambda: "first") == "first" and private.ensure(path, lambda: "second").strip() == "first"


def test_facts_are_kept_as_they_were(tmp_path: Path) -> None:
    """Ports, nodes, tenants, folders."""
    layout = Layout(tmp_path)
    facts = Facts(ports={"api": 1}, nodes={"n": "4xT4"}, bus_tenants=("a",), socket="/x/s.sock", postgres_data="/d")
    assert remembered.load(layout) is None
    remembered.save(layout, facts.with_tenant("b").with_tenant("a"))
    assert remembered.load(layout) == Facts(**{**json.loads(layout.facts.read_text()), "bus_tenants": ("a", "b")})


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", '{"ports": 3}', '{"ports": {"api": "x"}, "nodes": {}, "bus_tenants": [], "socket": null}']
)
def test_facts_that_cannot_be_read_say_how_to_start_over(tmp_path: Path, content: str) -> None:
    """In one line."""
    Layout(tmp_path).facts.write_text(content)
    with pytest.raises(Unreadable, match="down --purge"):
        remembered.load(Layout(tmp_path))


def test_a_sockets_address_has_room_for_its_last_byte() -> None:
    """The kernel's limit is 108 with the NUL."""
    assert layouts.SOCKET_PATH_BYTES == 107
