"""Generated configuration: bus, supervisor, settings of services, and the compose file beside them."""

import configparser
import json
import re
from pathlib import Path
from typing import Any

import bcrypt
import pytest
import yaml
from gpuyard_api.settings import ApiSettings
from gpuyard_billing.settings import BillingSettings
from gpuyard_contracts.topology import SERVICES
from gpuyard_local import bus_config, database, services
from gpuyard_local.facts import Facts
from gpuyard_local.layout import Layout
from gpuyard_local.postgres import Postgres
from gpuyard_local.programs import Program
from gpuyard_local.provision import provision
from gpuyard_local.supervision import config_text, environment
from gpuyard_monitor.settings import MonitorSettings
from gpuyard_node_agent.settings import AgentSettings
from gpuyard_placement.settings import PlacementSettings
from gpuyard_runtime.settings import BusSettings, ServiceSettings
from gpuyard_scheduler.settings import SchedulerSettings

COMPOSE = Path(__file__).parents[3] / "deploy" / "compose"

SETTINGS: dict[str, type[BusSettings]] = {
    "api": ApiSettings, "scheduler": SchedulerSettings, "placement": PlacementSettings, "monitor": MonitorSettings,
    "billing": BillingSettings, "node-agent": AgentSettings,
}  # fmt: skip


def names_of(settings: type[BusSettings]) -> set[str]:
    """The environment variables that a settings class reads."""
    return {f"GPUYARD_{name.upper()}" for name in settings.model_fields}


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """A state folder."""
    found = Layout(tmp_path / "state")
    found.make()
    return found


def programs(layout: Layout) -> dict[str, Program]:
    """All programs of a stack with one simulated node and the machine's own."""
    nodes = {"sim-t4": "4xT4", services.OWN_NODE: services.OWN_PROFILE}
    ports = {name: 11_000 + number for number, name in enumerate(services.port_names(nodes))}
    postgres = Postgres(layout.data / "postgres", password="x", port=ports["postgres"])
    return {program.name: program for program in services.programs(layout, Facts(ports=ports, nodes=nodes), postgres)}


def test_every_setting_of_a_local_program_is_one_that_the_program_reads(layout: Layout) -> None:
    """A misspelt name would be ignored in silence."""
    for name, program in programs(layout).items():
        settings = SETTINGS.get("node-agent" if name.startswith("agent-") else name)
        given = {key for key in program.environment if key.startswith("GPUYARD_")}
        assert given <= (names_of(settings) if settings else set()), name


def test_programs_start_with_what_the_others_stand_on_and_listen_on_loopback_only(layout: Layout) -> None:
    """Bus and database first; node agents last."""
    found = programs(layout)
    assert list(found) == ["nats", "postgres", *SERVICES, "agent-sim-t4", "agent-gpu-local"]
    assert all(program.environment.get("GPUYARD_HTTP_HOST", "127.0.0.1") == "127.0.0.1" for program in found.values())
    assert (
        found["agent-gpu-local"].environment["GPUYARD_BACKEND"] == "nvml" and found["agent-sim-t4"].environment["GPUYARD_PROFILE"] == "4xT4"
    )


def test_simulated_nodes_play_machines_that_the_agent_knows() -> None:
    """By the agent's own list."""
    from gpuyard_node_agent.backends.profiles import PROFILES

    assert set(services.SIMULATED.values()) <= set(PROFILES)


def test_the_clients_file_says_where_the_token_is_and_not_what_it_is(layout: Layout) -> None:
    """With an address for each program's health."""
    nodes = {"sim-t4": "4xT4"}
    facts = Facts(ports={name: 11_000 + number for number, name in enumerate(services.port_names(nodes))}, nodes=nodes)
    layout.admin_token.write_text("top-secret")
    services.write_client(layout, facts)
    content = json.loads(layout.client.read_text())
    assert (layout.root / content["token_file"]).read_text() == "top-secret" and "top-secret" not in layout.client.read_text()
    assert set(content["services"]) == {*SERVICES, "agent-sim-t4"}


def bus(layout: Layout, *tenants: str) -> dict[str, Any]:
    """The bus's configuration as the server reads it."""
    path = bus_config.write_config(layout, listen="127.0.0.1:4222", store=layout.data / "nats", nodes=["n1"], tenants=tenants)
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_the_bus_knows_everybody_by_a_hash_of_their_password(layout: Layout) -> None:
    """No password stands in the configuration."""
    users = {user["user"]: user for user in bus(layout, "acme")["authorization"]["users"]}
    assert set(users) == {"operator", *SERVICES, "node-n1", "tenant-acme"}
    text = (layout.config / "nats.conf").read_text()
    for name, user in users.items():
        password = layout.password(f"nats-{name}").read_text().strip()
        assert password not in text and bcrypt.checkpw(password.encode(), user["password"].encode())


def test_a_tenant_may_ask_for_its_jobs_and_hear_its_events_and_nothing_else(layout: Layout) -> None:
    """The subject is the isolation."""
    rights = next(user for user in bus(layout, "acme")["authorization"]["users"] if user["user"] == "tenant-acme")["permissions"]
    assert rights["publish"] == {"allow": ["gpuyard.req.acme.>"]}
    assert rights["subscribe"] == {"allow": ["_INBOX_tenant_acme.>", "gpuyard.evt.*.*.*.*.acme.>"]} and "allow_responses" not in rights


def test_hashes_stay_so_that_a_reload_throws_nobody_out(layout: Layout) -> None:
    """Until the password itself is replaced."""
    first = {user["user"]: user["password"] for user in bus(layout)["authorization"]["users"]}
    second = {user["user"]: user["password"] for user in bus(layout, "acme")["authorization"]["users"]}
    assert first == {name: hashed for name, hashed in second.items() if name != "tenant-acme"}
    layout.password("nats-api").write_text("another password\n")
    assert bus_config.hash_of(layout, "api") != first["api"]


def test_credentials_hold_all_that_a_program_needs(layout: Layout) -> None:
    """And are its owner's alone."""
    path = bus_config.write_credentials(layout, "tenant-acme", url="nats://127.0.0.1:1")
    content = json.loads(path.read_text())
    assert set(content) == {"url", "user", "password", "inbox_prefix"} and path.stat().st_mode & 0o077 == 0


def test_supervisor_restarts_for_ever_and_starts_nothing_by_itself(layout: Layout) -> None:
    """The order of the start is the stack's."""
    text = config_text([Program("api", ("x",)), Program("postgres", ("y",), stop_signal="INT")], layout, layout.run / "s.sock")
    config = configparser.RawConfigParser()
    config.read_string(text)
    section = config["program:api"]
    assert (section["autostart"], section["autorestart"]) == ("false", "true") and int(section["startretries"]) >= 1_000_000
    assert section["stdout_logfile_maxbytes"] == "10MB" and config["program:postgres"]["stopsignal"] == "INT"


def test_percent_signs_in_paths_are_not_expanded(tmp_path: Path) -> None:
    """And a path that cannot be written down is refused."""
    odd = Layout(tmp_path / "100%(here)s")
    assert "100%%(here)s" in config_text([Program("api", ("x",))], odd, odd.run / "s")
    with pytest.raises(ValueError, match="another folder"):
        config_text([], Layout(tmp_path / 'a"b'), tmp_path / "s")


def test_programs_inherit_nothing_that_a_person_has_set_for_the_client() -> None:
    """GPUYARD_URL and proxies are the shell's business."""
    found = environment({"PATH": "/p", "GPUYARD_NATS_URL": "x", "HTTP_PROXY": "y", "HOME": "/root", "LANG": "de_DE"})
    assert found["PATH"] == "/p" and not {"GPUYARD_NATS_URL", "HTTP_PROXY"} & set(found) and found["LANG"] == "C.UTF-8"


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """The compose file."""
    found: dict[str, Any] = yaml.safe_load((COMPOSE / "compose.yaml").read_text())
    return found


def test_compose_has_bus_database_and_every_service(compose: dict[str, Any]) -> None:
    """Each with the command that its package installs."""
    assert {"nats", "postgres", "prepare", "node-agent", *SERVICES} <= set(compose["services"])
    for name in SETTINGS:
        assert compose["services"][name]["command"] == [f"gpuyard-{name}"]


def test_every_setting_in_compose_is_one_that_its_service_reads(compose: dict[str, Any]) -> None:
    """And all of them name the bus, the user and the secret files."""
    for name, settings in SETTINGS.items():
        given = set(compose["services"][name]["environment"])
        assert given <= names_of(settings), name
        needed = names_of(ServiceSettings) if issubclass(settings, ServiceSettings) else names_of(BusSettings)
        files = {"GPUYARD_NATS_PASSWORD_FILE", "GPUYARD_POSTGRES_DSN_FILE"} & needed
        assert files | {"GPUYARD_NATS_URL", "GPUYARD_NATS_USER", "GPUYARD_HTTP_HOST", "GPUYARD_HTTP_PORT"} <= given, name


def test_compose_hands_out_the_secrets_that_provision_writes(compose: dict[str, Any], tmp_path: Path) -> None:
    """Each service its own, and no file that is not there."""
    layout = provision(tmp_path / "prov", nodes=["sim-a100"], postgres_host="postgres", store=Path("/data"))
    files = {name: re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", secret["file"]) for name, secret in compose["secrets"].items()}
    assert all((layout.root / Path(path).relative_to(".gpuyard")).is_file() for path in files.values())
    used = [name for service in compose["services"].values() for name in service.get("secrets", [])]
    assert sorted(used) == sorted(files)
    for name in SERVICES:
        assert compose["services"][name]["secrets"] == [f"nats-{name}.password", f"postgres-{name}.dsn"]
        for variable in ("GPUYARD_NATS_PASSWORD_FILE", "GPUYARD_POSTGRES_DSN_FILE"):
            assert compose["services"][name]["environment"][variable].removeprefix("/run/secrets/") in compose["services"][name]["secrets"]


def test_the_example_of_the_environment_has_what_compose_asks_for(compose: dict[str, Any]) -> None:
    """Not more, not less, and with the same defaults."""
    asked = dict(re.findall(r"\$\{(GPUYARD_\w+):-([^}]*)\}", (COMPOSE / "compose.yaml").read_text()))
    lines = (COMPOSE / "env.example").read_text().splitlines()
    given = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    assert given == asked


def test_the_image_is_built_from_what_is_there() -> None:
    """Every path that is copied exists."""
    root = COMPOSE.parents[1]
    copied = re.findall(r"^COPY (?!--from)(\S+) ", (COMPOSE / "Dockerfile").read_text(), re.MULTILINE)
    assert copied and all((root / path).exists() for path in copied)


def test_each_database_role_has_a_password_and_a_dsn_of_its_own(layout: Layout) -> None:
    """Signs of a password that mean something in a URL are quoted."""
    layout.password("postgres-api").write_text("a/b@c:d%\n")
    database.write_dsns(layout, 5432)
    assert (layout.secrets / "postgres-api.dsn").read_text() == "postgresql://api:a%2Fb%40c%3Ad%25@127.0.0.1:5432/gpuyard\n"
    passwords = {layout.password(f"postgres-{role}").read_text() for role in SERVICES}
    assert len(passwords) == len(SERVICES)
