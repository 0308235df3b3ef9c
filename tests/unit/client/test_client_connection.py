"""Where the api is found, and with which token."""

import json
import stat
from pathlib import Path

import pytest
from gpuyard import connection
from gpuyard.errors import NotConfigured


def stack(folder: Path, url: str = "http://127.0.0.1:10999", token: str = "local-token") -> None:
    """A local stack's client file below a folder."""
    state = folder / ".gpuyard"
    (state / "secrets").mkdir(parents=True)
    (state / "secrets" / "admin.token").write_text(token + "\n")
    content = {"url": url, "token_file": "secrets/admin.token", "services": {"api": "http://127.0.0.1:1/readyz"}}
    (state / "client.json").write_text(json.dumps(content))


def test_the_environment_goes_before_a_local_stack(tmp_path: Path) -> None:
    """Whoever sets it means it."""
    stack(tmp_path)
    found = connection.find(start=tmp_path, env={"GPUYARD_URL": "https://yard.example/", "GPUYARD_TOKEN": "t\n"})
    assert (found.url, found.token) == ("https://yard.example", "t")


def test_whose_jobs_an_operator_asks_for_comes_from_the_environment(tmp_path: Path) -> None:
    """For the command and for the SDK; and another token than the stack's own is named."""
    stack(tmp_path)
    found = connection.find(start=tmp_path, env={"GPUYARD_TENANT": "acme", "GPUYARD_TOKEN": "t"})
    assert (found.tenant, found.token, found.found_in.endswith("with another token")) == ("acme", "t", True)
    assert connection.find("http://127.0.0.1:1", start=tmp_path, env={}).tenant is None


def test_a_local_stack_is_found_from_folders_below(tmp_path: Path) -> None:
    """Upwards from where one stands, like git."""
    stack(tmp_path)
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    found = connection.find(start=deep, env={})
    assert (found.url, found.token, found.services["api"]) == ("http://127.0.0.1:10999", "local-token", "http://127.0.0.1:1/readyz")


def test_a_kept_token_is_not_sent_to_another_address(tmp_path: Path) -> None:
    """An address in the environment gets the token that was kept for it, and no other."""
    stack(tmp_path, url="http://127.0.0.1:10999")
    assert connection.find(start=tmp_path, env={"GPUYARD_URL": "http://elsewhere.example"}).token == ""
    assert connection.find(start=tmp_path, env={"GPUYARD_URL": "http://127.0.0.1:10999/"}).token == "local-token"


def test_a_login_is_kept_for_its_owner_only_and_found_again(tmp_path: Path) -> None:
    """Files of 0600; the token does not stand beside the address."""
    env = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    path = connection.keep("https://yard.example/", "top-secret", env)
    assert "top-secret" not in path.read_text()
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o600}
    found = connection.find(start=tmp_path, env=env)
    assert (found.url, found.token) == ("https://yard.example", "top-secret")


def test_a_token_is_not_shown_when_a_connection_is_printed(tmp_path: Path) -> None:
    """Not in logs, not in tracebacks."""
    assert "local-secret" not in repr(connection.Connection("http://a", "local-secret", "here"))


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"url": 3}', '{"token_file": "x"}', '{"url": "ftp://x"}', '{"url": "http://x", "token_file": "absent"}']
)
def test_a_broken_client_file_says_so_and_what_to_do(tmp_path: Path, content: str) -> None:
    """Never a traceback."""
    (tmp_path / ".gpuyard").mkdir()
    (tmp_path / ".gpuyard" / "client.json").write_text(content)
    with pytest.raises(NotConfigured) as caught:
        connection.find(start=tmp_path, env={})
    assert caught.value.fix


def test_with_nothing_known_all_ways_in_are_named(tmp_path: Path) -> None:
    """And how to make one."""
    with pytest.raises(NotConfigured, match="GPUYARD_URL is not set") as caught:
        connection.find(start=tmp_path, env={"HOME": str(tmp_path)})
    assert "gpuyard login" in caught.value.fix


def test_an_odd_home_is_no_reason_to_fail(tmp_path: Path) -> None:
    """Empty or missing: there is simply no login."""
    for env in ({}, {"HOME": ""}, {"HOME": "/dev/null"}, {"XDG_CONFIG_HOME": "relative"}):
        with pytest.raises(NotConfigured):
            connection.find(start=tmp_path, env=env)
