"""``gpuyard login``, ``whoami`` and ``doctor``: where the api is, who one is there, and what is wrong if anything is."""

import sys
from typing import Annotated

import typer

from gpuyard import errors
from gpuyard.cli import output
from gpuyard.cli.session import FAILED, UNREACHABLE, AsJson, client, command


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app, "login")(login)
    command(app, "whoami")(whoami)
    command(app, "doctor")(doctor)


def login(
    url: Annotated[str, typer.Argument(metavar="URL", help="The api's address, such as https://gpuyard.example.com.")],
    file: Annotated[
        str | None, typer.Option("--token-file", help="A file with the token; '-' is standard input. Without it, it is asked for.")
    ] = None,
) -> None:
    """Remember an api and a token for this user, once the api has taken the token."""
    from gpuyard import connection
    from gpuyard.client import Client

    token = _token(file)
    with Client(url, token) as yard:
        me = yard.whoami()
    try:
        path = connection.keep(url, token)
    except OSError as error:
        raise errors.GpuyardError(f"the login cannot be kept: {error}", fix="set GPUYARD_URL and GPUYARD_TOKEN instead") from None
    output.say(f"logged in to {url} as {me['actor']}; kept in {path}")


def _token(file: str | None) -> str:
    import getpass
    from pathlib import Path

    try:
        if file is not None:
            text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        else:
            text = getpass.getpass("token: ") if sys.stdin.isatty() else sys.stdin.readline()
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise errors.NotConfigured(f"the token cannot be read: {error}") from None
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise errors.NotConfigured("that is no token", fix="a token is one word of printable characters, such as gpy_…")
    return token


def whoami(as_json: AsJson = False) -> None:
    """Say where the api is, where that was found, and whose token is used."""
    with client() as yard:
        me = yard.whoami()
        where = yard.connection
    if as_json:
        output.print_json({**me, "url": where.url, "found_in": where.found_in})
        return
    role = "an operator, who may see and do everything" if me.get("tenant") is None else f"tenant {me['tenant']}"
    output.say(f"{me['actor']} at {where.url}: {role}\n  (found in {where.found_in})")


def doctor(as_json: AsJson = False) -> None:
    """Check what can be checked from here: api, token, services, nodes, clocks, faults. Each that is not well says how to fix it."""
    from gpuyard.checkup import examine

    checks = examine()
    if as_json:
        output.print_items({"check": check.name, "is_well": check.is_well, "detail": check.detail, "fix": check.fix} for check in checks)
    else:
        for check in checks:
            output.say(f"{'ok  ' if check.is_well else 'FAIL'}  {check.name}: {check.detail}")
            if check.fix and not check.is_well:
                output.say(f"      to fix it: {check.fix}")
    if any(check.name == "api" and not check.is_well for check in checks):
        raise typer.Exit(UNREACHABLE)
    if not all(check.is_well for check in checks):
        raise typer.Exit(FAILED)
