"""Commands about tenants, their quotas and their tokens."""

from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuyard import amounts, errors
from gpuyard.cli import output
from gpuyard.cli.session import AsJson, client, command, whole

if TYPE_CHECKING:
    from gpuyard.results import Tenant

Name = Annotated[str, typer.Argument(metavar="TENANT", help="The tenant's id, such as 'acme'.")]
Sla = Annotated[str | None, typer.Option("--sla", help="gold, silver or bronze.")]
Weight = Annotated[
    int | None, typer.Option("--weight", parser=whole(0), metavar="N", help="Share of the fleet against the others' weights.")
]
Gpus = Annotated[str | None, typer.Option("--quota-gpus", help="How many cards at once, such as 8 or 0.5; 'none' is no limit.")]
Memory = Annotated[
    str | None, typer.Option("--quota-gpu-memory", help="How much of cards' memory at once, such as 160GiB; 'none' is no limit.")
]
Guarantee = Annotated[str | None, typer.Option("--guarantee-gpus", help="How many cards it can always have, such as 4; 0 is none.")]
Waiting = Annotated[int | None, typer.Option("--max-waiting", parser=whole(0), metavar="N", help="How many jobs may wait.")]
Rate = Annotated[int | None, typer.Option("--max-requests", parser=whole(0), metavar="N", help="How many requests a minute.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    tenant = typer.Typer(help="Tenants, their quotas, credit and tokens (with an operator's token).", no_args_is_help=True)
    command(tenant, "create")(create)
    command(tenant, "list")(list_)
    command(tenant, "set")(set_)
    command(tenant, "token")(token)
    command(tenant, "balance")(balance)
    command(tenant, "credit")(credit)
    app.add_typer(tenant, name="tenant")


def settings_of(
    sla: str | None,
    weight: int | None,
    gpus: str | None,
    memory: str | None,
    guarantee: str | None,
    max_waiting: int | None,
    max_requests: int | None,
) -> dict[str, Any]:
    """What was given of a tenant's settings, in the api's units. Raises GpuyardError for what cannot be read."""
    found: dict[str, Any] = {"sla": sla, "weight": weight, "max_waiting": max_waiting, "max_requests_per_minute": max_requests}
    found = {name: value for name, value in found.items() if value is not None}
    if gpus is not None:
        found["quota_gpu_milli"] = None if gpus == "none" else _read("--quota-gpus", gpus, _milli)
    if memory is not None:
        found["quota_gpu_memory_mib"] = None if memory == "none" else _read("--quota-gpu-memory", memory, amounts.memory_mib)
    if guarantee is not None:
        found["guarantee_gpu_milli"] = _read("--guarantee-gpus", guarantee, _milli)
    return found


def _milli(text: str) -> int:
    return 0 if text.strip() == "0" else amounts.cpu_milli(text)


def _read(option: str, text: str, read: Callable[[str], int]) -> int:
    try:
        return read(text)
    except ValueError as error:
        raise errors.ApiError(422, "usage", f"{option}: {str(error).replace('processors', 'cards')}") from None


def create(
    tenant: Name,
    title: Annotated[str | None, typer.Option("--name", help="What people call it.")] = None,
    sla: Sla = None,
    weight: Weight = None,
    quota_gpus: Gpus = None,
    quota_gpu_memory: Memory = None,
    guarantee_gpus: Guarantee = None,
    max_waiting: Waiting = None,
    max_requests: Rate = None,
    as_json: AsJson = False,
) -> None:
    """Make a tenant. What is not given has its default: bronze, weight 100, no quota."""
    given = settings_of(sla, weight, quota_gpus, quota_gpu_memory, guarantee_gpus, max_waiting, max_requests)
    with client() as yard:
        made = yard.create_tenant(tenant, **given, **({"name": title} if title else {}))
    _show(made, as_json=as_json)


def set_(
    tenant: Name,
    title: Annotated[str | None, typer.Option("--name", help="What people call it.")] = None,
    sla: Sla = None,
    weight: Weight = None,
    quota_gpus: Gpus = None,
    quota_gpu_memory: Memory = None,
    guarantee_gpus: Guarantee = None,
    max_waiting: Waiting = None,
    max_requests: Rate = None,
    suspended: Annotated[
        bool | None, typer.Option("--suspended/--no-suspended", help="Take no new jobs of it, or take them again.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Change a tenant's settings; what is not given stays as it is."""
    given = settings_of(sla, weight, quota_gpus, quota_gpu_memory, guarantee_gpus, max_waiting, max_requests)
    given |= {"name": title} if title else {}
    given |= {"is_suspended": suspended} if suspended is not None else {}
    if not given:
        raise errors.ApiError(422, "usage", "nothing to change was given", fix="see `gpuyard tenant set --help`")
    with client() as yard:
        changed = yard.set_tenant(tenant, **given)
    _show(changed, as_json=as_json)


def list_(as_json: AsJson = False) -> None:
    """List tenants."""
    with client() as yard:
        found = yard.tenants()
    if as_json:
        output.print_items(tenant.raw for tenant in found)
        return
    rows = [
        (
            tenant.tenant,
            tenant.name,
            tenant.sla,
            str(tenant.weight),
            "no limit" if tenant.quota_gpu_milli is None else amounts.show_gpus(tenant.quota_gpu_milli),
            "no limit" if tenant.quota_gpu_memory_mib is None else amounts.show_asked(tenant.quota_gpu_memory_mib),
            amounts.show_gpus(tenant.guarantee_gpu_milli) if tenant.guarantee_gpu_milli else "",
            "suspended" if tenant.is_suspended else "",
        )
        for tenant in found
    ]
    output.table(
        ("TENANT", "NAME", "SLA", "WEIGHT", "CARDS", "CARD MEM", "GUARANTEED", ""), rows, whole=("TENANT", "CARDS"), empty="no tenants yet"
    )


def token(
    tenant: Name,
    name: Annotated[str, typer.Option("--name", help="What the token is for.")] = "cli",
    as_json: AsJson = False,
) -> None:
    """Make a token for a tenant. It is shown this once: the installation keeps only its digest."""
    with client() as yard:
        made = yard.create_token(tenant, name)
    if as_json:
        output.print_json(made)
        return
    output.say(str(made["token"]))
    output.note(f"this is {tenant}'s token {name!r}; it is not shown again. Use it: GPUYARD_TOKEN=…, or `gpuyard login URL`")


def balance(tenant: Name, as_json: AsJson = False) -> None:
    """What a tenant was granted, has used and has left."""
    with client() as yard:
        found = yard.balance(tenant)
    if as_json:
        output.print_json(found.raw)
        return
    for label, micros in (("credit", found.credit_micros), ("used", found.used_micros), ("left", found.balance_micros)):
        output.say(f"{label:<7} {amounts.show_money(micros, found.currency)}")


def credit(
    tenant: Name,
    amount: Annotated[str, typer.Argument(help="How much, such as 100 or 12.50.")],
    reason: Annotated[str, typer.Option("--reason", help="Why, for the ledger.")] = "credit",
    as_json: AsJson = False,
) -> None:
    """Give a tenant credit."""
    try:
        micros = Decimal(amount) * 10**6
    except InvalidOperation:
        raise errors.ApiError(422, "usage", f"{amount!r} is no amount of money", fix="write it like 100 or 12.50") from None
    if not micros.is_finite() or micros <= 0 or micros != micros.to_integral_value():
        raise errors.ApiError(422, "usage", f"{amount!r} cannot be given", fix="write an amount above 0 with at most six decimals")
    with client() as yard:
        found = yard.grant_credit(tenant, int(micros), reason)
    if as_json:
        output.print_json(found.raw)
    else:
        output.say(f"{tenant} has {amounts.show_money(found.balance_micros, found.currency)} left")


def _show(tenant: "Tenant", *, as_json: bool) -> None:
    if as_json:
        output.print_json(tenant.raw)
        return
    milli, mib = tenant.quota_gpu_milli, tenant.quota_gpu_memory_mib
    limits = [f"{amounts.show_gpus(milli)} card{'s' if milli > 1000 else ''}"] if milli is not None else []
    limits += [f"{amounts.show_asked(mib)} of card memory"] if mib is not None else []
    quota = f"at most {' and '.join(limits)} at once" if limits else "no limit of cards"
    state = ", suspended" if tenant.is_suspended else ""
    output.say(f"{tenant.tenant}: {tenant.sla}, weight {tenant.weight}, {quota}{state} (version {tenant.version})")
