"""Commands about nodes, cards and the queue."""

from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard import amounts, errors
from gpuyard.cli import output
from gpuyard.cli.session import AsJson, client, command

if TYPE_CHECKING:
    from gpuyard.results import Gpu, Node

NodeName = Annotated[str, typer.Argument(metavar="NODE", help="The node's id.")]
Card = Annotated[str | None, typer.Option("--gpu", help="Only this card of it, by UUID.")]
Why = Annotated[str, typer.Option("--reason", help="Why, for whoever sees it.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app, "nodes")(nodes)
    command(app, "gpus")(gpus)
    command(app, "incidents")(incidents)
    command(app, "queue")(queue)
    node = typer.Typer(help="Take a node or a card out of service, and put it back.", no_args_is_help=True)
    command(node, "cordon")(cordon)
    command(node, "uncordon")(uncordon)
    command(node, "drain")(drain)
    app.add_typer(node, name="node")


def nodes(as_json: AsJson = False) -> None:
    """List nodes: how they are and what is free."""
    with client() as yard:
        found = yard.nodes()
    if as_json:
        output.print_items(node.raw for node in found)
        return
    rows = [
        (
            node.node_id,
            _status(node),
            ", ".join(f"{count} x {model}" for model, count in node.models.items()) or "none",
            f"{amounts.show_gpus(node.free_gpu_milli)}/{amounts.show_gpus(node.gpu_milli)}",
            f"{amounts.show_gpus(node.free_cpu_milli)}/{amounts.show_gpus(node.cpu_milli)}",
            amounts.show_memory(node.free_memory_mib),
            str(len(node.jobs)),
        )
        for node in found
    ]
    output.table(
        ("NODE", "STATUS", "CARDS", "FREE", "FREE CPU", "FREE MEM", "JOBS"), rows, whole=("NODE", "STATUS", "FREE"), empty="no nodes yet"
    )


def _status(node: "Node") -> str:
    if node.status != "ready":
        return node.status
    return ("draining" if any(row.get("is_drain") for row in node.cordons) else "cordoned") if node.is_cordoned else "ready"


def gpus(
    node: Annotated[str | None, typer.Option("--node", help="Only this node's.")] = None,
    as_json: AsJson = False,
) -> None:
    """List cards: how they are, who has them, what they do."""
    with client() as yard:
        found = [gpu for gpu in yard.gpus() if node in (None, gpu.node_id)]
        if node is not None and not found and node not in {one.node_id for one in yard.nodes()}:
            raise errors.NotFound(404, "not-found", f"there is no node {node!r}", fix="`gpuyard nodes` lists them")
    if as_json:
        output.print_items(gpu.raw for gpu in found)
        return
    rows = [
        (
            gpu.uuid,
            gpu.node_id,
            gpu.model,
            _card_state(gpu),
            f"{gpu.used_milli / 10:g}%",
            "-" if gpu.sample is None or gpu.sample.temperature_c is None else f"{gpu.sample.temperature_c}C",
            "-" if gpu.sample is None or gpu.sample.utilization_percent is None else f"{gpu.sample.utilization_percent}%",
        )
        for gpu in found
    ]
    output.table(
        ("UUID", "NODE", "MODEL", "STATE", "HELD", "TEMP", "UTIL"), rows, whole=("STATE", "HELD", "TEMP", "UTIL"), empty="no cards yet"
    )


def _card_state(gpu: "Gpu") -> str:
    if gpu.is_lost or gpu.status == "lost":
        return "lost"
    if gpu.status != "ready":
        return gpu.status
    return "cordoned" if gpu.cordons else "used" if gpu.used_milli or gpu.used_memory_mib else "free"


def incidents(
    everything: Annotated[bool, typer.Option("--all", "-a", help="Those that are over, too.")] = False,
    as_json: AsJson = False,
) -> None:
    """List faults, the youngest first."""
    with client() as yard:
        found = yard.incidents(open_only=not everything)
    if as_json:
        output.print_items(found)
        return
    for row in found:
        output.say(f"{row['incident_id']}  {row['kind']} on {row['node_id']}: {'open' if row['is_open'] else 'over'}")
        output.say(f"  {row['evidence']}")
    if not found:
        output.say("no faults")


def queue(as_json: AsJson = False) -> None:
    """Show what waits and for what, and each tenant's place."""
    with client() as yard:
        found = yard.queue()
    if as_json:
        output.print_json(found.raw)
        return
    if found.is_blind:
        output.say("the scheduler is blind: too many nodes are silent at once; nothing is placed or moved")
    output.say(f"{found.waiting} waiting" + "".join(f"\n  {count:>6}  {reason}" for reason, count in sorted(found.reasons.items())))
    rows = [
        (
            str(row["tenant"]),
            str(row["waiting"]),
            str(row["running"]),
            amounts.show_gpus(int(row["used_gpu_milli"])),
            f"{int(row['dominant_share_ppm']) / 10_000:.1f}%",
        )
        for row in found.tenants
    ]
    output.table(("TENANT", "WAITING", "RUNNING", "CARDS", "SHARE"), rows, whole=("TENANT",), empty="no tenants")


def cordon(node: NodeName, reason: Why = "", gpu: Card = None, as_json: AsJson = False) -> None:
    """Keep new work away from a node, or from one of its cards."""
    with client() as yard:
        done = yard.cordon(node, reason, gpu_uuid=gpu)
    _say_done(done, f"{gpu or node} takes nothing new", as_json=as_json)


def uncordon(
    node: NodeName,
    gpu: Card = None,
    holder: Annotated[str | None, typer.Option("--holder", help="Whose cordon, if not your own.")] = None,
    as_json: AsJson = False,
) -> None:
    """Put a node or a card back into service: your own cordon or drain ends."""
    with client() as yard:
        done = yard.uncordon(node, gpu_uuid=gpu, holder=holder)
    _say_done(done, f"{gpu or node} may take work again, unless somebody else holds it", as_json=as_json)


def drain(node: NodeName, reason: Why = "", gpu: Card = None, as_json: AsJson = False) -> None:
    """Keep new work away and move what runs there; `gpuyard node uncordon` ends it."""
    with client() as yard:
        done = yard.drain(node, reason, gpu_uuid=gpu)
    _say_done(done, f"what runs on {gpu or node} is moved away", as_json=as_json)


def _say_done(content: object, text: str, *, as_json: bool) -> None:
    if as_json:
        output.print_json(content)
    else:
        output.say(text)
