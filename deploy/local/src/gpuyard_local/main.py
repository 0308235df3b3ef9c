"""``gpuyard-local``: a whole gpuyard on this machine, from the command line.

Exit codes: 0 done, 1 it failed (what and why is said), 2 the command was not understood.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from gpuyard_runtime.faults import RuntimeFault

from gpuyard_local import faults, following, tenants
from gpuyard_local.embedded import ServerFailed
from gpuyard_local.facts import Unreadable
from gpuyard_local.layout import NotOurs
from gpuyard_local.ports import PortTaken
from gpuyard_local.readiness import NotReady, ask
from gpuyard_local.stack import NotRunning, Stack
from gpuyard_local.supervision import SupervisorAway

STATE = ".gpuyard"
DEMO_STATE = ".gpuyard-demo"

_EXPECTED = (
    RuntimeFault, NotOurs, NotRunning, NotReady, PortTaken, ServerFailed, SupervisorAway, Unreadable,
    faults.Refused, tenants.NoSuchTenant, TimeoutError, OSError, ValueError,
)  # fmt: skip
"""What can go wrong without being our mistake: told in one line."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says. Returns the exit code."""
    given = parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = given.run
    try:
        return run(given)
    except _EXPECTED as error:
        print(f"gpuyard-local: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        prog="gpuyard-local", description="a whole gpuyard on this machine: bus, database, services, simulated nodes"
    )
    verbs = top.add_subparsers(required=True, metavar="COMMAND")

    def verb(name: str, run: Callable[[argparse.Namespace], int], says: str) -> argparse.ArgumentParser:
        made = verbs.add_parser(name, help=says, description=says)
        made.add_argument("--state", type=Path, metavar="DIR", help=f"the state folder (default: the next {STATE} here or above)")
        made.set_defaults(run=run)
        return made

    up = verb("up", _up, "start everything, and wait until it is ready")
    up.add_argument("--foreground", action="store_true", help="stay, and stop everything at Ctrl-C")
    up.add_argument("--api-port", type=_port, metavar="PORT", help="the api's port (default: a free one, kept over restarts)")
    up.add_argument("--no-own-gpus", action="store_true", help="leave this machine's own GPUs alone")
    verb("down", _down, "stop everything").add_argument("--purge", action="store_true", help="delete all its data too")
    verb("status", _status, "who runs and is ready")
    logs = verb("logs", _logs, "what the programs print")
    logs.add_argument("service", nargs="?", help="only this one")
    logs.add_argument("-f", "--follow", action="store_true", help="go on as more comes")
    logs.add_argument("-n", "--lines", type=int, default=50, metavar="N", help="how many lines from before (default: 50)")
    verb("demo", _demo, f"run the main job on a stack of its own ({DEMO_STATE}), check it, and leave nothing running")
    for name, run, says in (
        ("provision", _provision, "write the credentials of an installation in containers (see deploy/compose)"),
        ("prepare", _prepare, "make streams, consumers, roles and schemas of an installation in containers"),
    ):
        made = verb(name, run, says)
        made.add_argument("--node", action="append", default=[], metavar="NAME", help="a node that may join; several times")
        made.add_argument("--postgres-host", default="postgres", metavar="HOST")
    made.add_argument("--nats-url", default="nats://nats:4222", metavar="URL")
    user = verb("nats-user", _nats_user, "give somebody a user on the bus")
    user.add_argument("kind", choices=["tenant"])
    user.add_argument("tenant", metavar="NAME")
    fault = verb("fault", _fault, "make a simulated card misbehave")
    fault.add_argument("node", metavar="NODE")
    fault.add_argument("gpu", metavar="GPU", help="index or UUID of the card; '-' for the node itself")
    fault.add_argument("fault", choices=faults.FAULTS)
    fault.add_argument("value", nargs="?", type=int, help="degrees, errors, the XID, or seconds")
    return top


def state_folder(given: Path | None, here: Path | None = None) -> Path:
    """The state folder that is meant: the given one, else the next one with a stack here or above, else a new one here."""
    if given is not None:
        return given
    start = here or Path.cwd()
    for folder in (start, *start.parents):
        if (folder / STATE / "stack.json").is_file():
            return folder / STATE
    return start / STATE


def _say(line: str) -> None:
    print(f"  {line}", flush=True)


def _port(text: str) -> int:
    port = int(text)
    if not 1024 <= port <= 65535:
        raise argparse.ArgumentTypeError("must be between 1024 and 65535")
    return port


def _stack(given: argparse.Namespace) -> Stack:
    return Stack(state_folder(given.state), say=_say)


def _up(given: argparse.Namespace) -> int:
    stack = Stack(state_folder(given.state), api_port=given.api_port, own_gpus=not given.no_own_gpus, say=_say)
    begun = time.monotonic()
    print(f"gpuyard: starting in {stack.layout.root}", flush=True)
    try:
        is_fresh = stack.start()
    except NotReady as error:
        print(f"gpuyard-local: {error}", file=sys.stderr)
        for name in error.waiting:
            print(f"  see `gpuyard-local logs {name}`", file=sys.stderr)
        return 1
    print(f"gpuyard is up ({time.monotonic() - begun:.1f} s)" if is_fresh else "gpuyard was up already; nothing was changed")
    if not is_fresh and given.api_port not in (None, stack.facts.ports["api"]):
        print(f"  the api stays on port {stack.facts.ports['api']}: stop the stack first to move it")
    print(f"  api:    {stack.api_url}")
    print(f"  token:  the administrator's is in {stack.layout.admin_token}")
    print("  try:    gpuyard nodes      (finds this stack from this folder and below)")
    print("  first:  gpuyard tenant create acme && export GPUYARD_TENANT=acme      (a tenant to ask for)")
    print("  stop:   gpuyard-local down")
    return _stay(stack) if given.foreground else 0


def _stay(stack: Stack) -> int:
    """Wait for Ctrl-C or SIGTERM, then stop everything."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        while stack.is_up():
            time.sleep(1.0)
        print("gpuyard-local: the supervisor has ended", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ngpuyard: stopping", flush=True)
        stack.stop()
        return 0


def _down(given: argparse.Namespace) -> int:
    stack = _stack(given)
    root = stack.layout.root
    if stack.layout.facts.exists():
        print("gpuyard is stopped" if stack.stop() else "gpuyard was not running")
    else:
        print(f"there is no gpuyard in {root}")
        return 0
    if given.purge:
        stack.purge()
        print(f"and its data in {root} is deleted")
    return 0


def _status(given: argparse.Namespace) -> int:
    stack = _stack(given)
    states, health = stack.states(), stack.health_ports()
    is_well = True
    for name, (state, pid) in states.items():
        why = ask(health[name]) if name in health and state == "RUNNING" else None
        is_well = is_well and state == "RUNNING" and why is None
        said = "ready" if state == "RUNNING" and why is None else f"not ready: {why}" if state == "RUNNING" else state.lower()
        print(f"  {name:<16} {said:<10} {f'pid {pid}' if pid else ''}".rstrip())
    print(f"  api at {stack.api_url}, state in {stack.layout.root}")
    return 0 if is_well else 1


def _logs(given: argparse.Namespace) -> int:
    stack = _stack(given)
    files = {file.stem: file for file in sorted(stack.layout.logs.glob("*.log"))}
    if given.service is not None and given.service not in files:
        raise ValueError(f"there is no log of {given.service!r}; there are {', '.join(files) or 'none'}")
    chosen = files if given.service is None else {given.service: files[given.service]}
    try:
        following.show(chosen, lines=max(0, given.lines), follow=given.follow)
    except BrokenPipeError:  # whoever read has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _demo(given: argparse.Namespace) -> int:
    from gpuyard_local.demo.run import run  # it brings the SDK and more, which no other command needs

    return run(given.state or Path.cwd() / DEMO_STATE)


def _provision(given: argparse.Namespace) -> int:
    from gpuyard_local.provision import provision

    layout = provision(state_folder(given.state), nodes=given.node, postgres_host=given.postgres_host, store=Path("/data"))
    print(f"credentials and the bus's configuration are in {layout.root}")
    return 0


def _prepare(given: argparse.Namespace) -> int:
    from gpuyard_local.provision import prepare

    prepare(state_folder(given.state), nats_url=given.nats_url, postgres_host=given.postgres_host, nodes=given.node, say=_say)
    return 0


def _nats_user(given: argparse.Namespace) -> int:
    path = tenants.add_bus_user(_stack(given), given.tenant)
    print(f"the bus knows tenant-{given.tenant} now; its credentials are in {path}")
    return 0


def _fault(given: argparse.Namespace) -> int:
    gpu = None if given.gpu == "-" else given.gpu
    print(faults.inject(_stack(given), given.node, given.fault, gpu=gpu, value=given.value) or "done")
    return 0
