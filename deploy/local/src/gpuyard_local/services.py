"""The programs of a stack and what each is told: the one place where a service's settings meet this machine."""

import json
import sys
from collections.abc import Mapping

from gpuyard_contracts.topology import SERVICES

from gpuyard_local import nats
from gpuyard_local.facts import Facts
from gpuyard_local.layout import Layout
from gpuyard_local.ports import LOOPBACK
from gpuyard_local.postgres import Postgres
from gpuyard_local.private import write
from gpuyard_local.programs import Program

SIMULATED: Mapping[str, str] = {"sim-a100": "8xA100-80GB", "sim-t4": "4xT4"}
"""The simulated nodes of every stack, with the machine profile that each plays."""

OWN_NODE, OWN_PROFILE = "gpu-local", "nvml"
"""The node of this machine's own cards, where a driver answers."""


def port_names(nodes: Mapping[str, str]) -> list[str]:
    """Every port that a stack needs, by the name it is kept under."""
    return ["api", "nats", "postgres", *(f"{service}-health" for service in SERVICES), *(f"{agent_of(node)}-health" for node in nodes)]


def agent_of(node: str) -> str:
    """The program that is a node's agent."""
    return f"agent-{node}"


def nats_url(facts: Facts) -> str:
    """Where the bus is."""
    return f"nats://{LOOPBACK}:{facts.ports['nats']}"


def api_url(facts: Facts) -> str:
    """Where the api is."""
    return f"http://{LOOPBACK}:{facts.ports['api']}"


def programs(layout: Layout, facts: Facts, postgres: Postgres) -> list[Program]:
    """All programs, in the order in which they start."""
    return [
        _bus(layout),
        _database(postgres),
        *(_service(layout, facts, service) for service in SERVICES),
        *(_agent(layout, facts, node, profile) for node, profile in facts.nodes.items()),
    ]


def _bus(layout: Layout) -> Program:
    return Program("nats", (str(nats.binary()), "-c", str(layout.config / "nats.conf")), stop_seconds=15)


def _database(postgres: Postgres) -> Program:
    command = tuple(postgres.command())
    if postgres.uid is not None:
        command = (sys.executable, "-m", "gpuyard_local.become", str(postgres.uid), *command)
    return Program("postgres", command, {"LC_ALL": "C", "TZ": "UTC"}, stop_signal="INT", stop_seconds=20)


def _bus_settings(layout: Layout, facts: Facts, user: str, health: int) -> dict[str, str]:
    return {
        "GPUYARD_NATS_URL": nats_url(facts),
        "GPUYARD_NATS_USER": user,
        "GPUYARD_NATS_PASSWORD_FILE": str(layout.password(f"nats-{user}")),
        "GPUYARD_HTTP_HOST": LOOPBACK,
        "GPUYARD_HTTP_PORT": str(health),
    }


def _service(layout: Layout, facts: Facts, service: str) -> Program:
    health = facts.ports[f"{service}-health"]
    environment = _bus_settings(layout, facts, service, health)
    environment["GPUYARD_POSTGRES_DSN_FILE"] = str(layout.secrets / f"postgres-{service}.dsn")
    if service == "api":
        environment |= {
            "GPUYARD_API_HOST": LOOPBACK,
            "GPUYARD_API_PORT": str(facts.ports["api"]),
            "GPUYARD_ADMIN_TOKEN_FILE": str(layout.admin_token),
        }
    return Program(service, (sys.executable, "-m", f"gpuyard_{service}"), environment, health_port=health)


def _agent(layout: Layout, facts: Facts, node: str, profile: str) -> Program:
    name = agent_of(node)
    health = facts.ports[f"{name}-health"]
    environment = _bus_settings(layout, facts, f"node-{node}", health)
    environment |= {
        "GPUYARD_NODE_ID": node,
        "GPUYARD_ADDRESS": LOOPBACK,
        "GPUYARD_STATE_DIR": str(layout.node(node)),
        "GPUYARD_CHECKPOINT_ROOT": str(layout.root / "checkpoints"),  # one for all nodes: work that moves finds its own
    }
    if profile == OWN_PROFILE:
        environment["GPUYARD_BACKEND"] = "nvml"
    else:
        environment |= {"GPUYARD_BACKEND": "simulated", "GPUYARD_PROFILE": profile}
    return Program(name, (sys.executable, "-m", "gpuyard_node_agent"), environment, health_port=health)


def write_client(layout: Layout, facts: Facts) -> None:
    """What the `gpuyard` command needs to find this stack: addresses, and where the token is (never the token)."""
    health = {
        name.removesuffix("-health"): f"http://{LOOPBACK}:{port}/readyz" for name, port in facts.ports.items() if name.endswith("-health")
    }
    token = str(layout.admin_token.relative_to(layout.root))
    write(layout.client, json.dumps({"url": api_url(facts), "token_file": token, "services": health}, indent=1) + "\n")
