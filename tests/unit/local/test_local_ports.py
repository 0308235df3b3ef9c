"""Ports of a stack: chosen free, kept, replaced, asked for."""

import socket
from pathlib import Path

import pytest
from gpuyard_local import ports

PLACE = Path("/srv/yard/.gpuyard")


def test_every_name_gets_a_port_of_its_own_below_those_that_the_kernel_and_gangs_use() -> None:
    """20000 and up are for rendezvous, 32768 and up for outgoing connections."""
    chosen = ports.choose(["api", "nats", "postgres"], place=PLACE, free=lambda port: True)
    assert len(set(chosen.values())) == 3 and all(ports.FIRST <= port <= ports.LAST < 20_000 for port in chosen.values())


def test_the_same_place_chooses_the_same_ports_and_another_place_others() -> None:
    """So that two stacks rarely want the same."""
    first = ports.choose(["api", "nats"], place=PLACE, free=lambda port: True)
    assert ports.choose(["api", "nats"], place=PLACE, free=lambda port: True) == first
    assert ports.choose(["api", "nats"], place=PLACE / "other", free=lambda port: True) != first


def test_kept_ports_stay() -> None:
    """Whoever wrote an address down finds it again."""
    assert ports.choose(["api", "nats"], place=PLACE, kept={"api": 12000, "nats": 12001}, free=lambda port: True) == {
        "api": 12000,
        "nats": 12001,
    }


def test_a_kept_port_that_somebody_took_is_replaced_and_told() -> None:
    """The others stay."""
    said: list[str] = []
    chosen = ports.choose(
        ["api", "nats"], place=PLACE, kept={"api": 12000, "nats": 12001}, free=lambda port: port != 12000, say=said.append
    )
    assert chosen["nats"] == 12001 and chosen["api"] != 12000
    assert said == [f"port 12000 of api was taken by another program; api moves to {chosen['api']}"]


def test_an_asked_port_is_taken_or_refused_but_never_replaced() -> None:
    """Whoever names a port means it."""
    assert ports.choose(["api"], place=PLACE, kept={"api": 12000}, asked={"api": 8080}, free=lambda port: True) == {"api": 8080}
    with pytest.raises(ports.PortTaken, match="port 8080 for api is in use"):
        ports.choose(["api"], place=PLACE, asked={"api": 8080}, free=lambda port: False)


def test_no_other_name_gets_the_asked_port() -> None:
    """Whichever comes first."""
    chosen = ports.choose(["nats", "api"], place=PLACE, kept={"nats": 8080}, asked={"api": 8080}, free=lambda port: True)
    assert chosen["api"] == 8080 and chosen["nats"] != 8080


def test_with_no_port_left_it_says_so() -> None:
    """And does not search for ever."""
    with pytest.raises(RuntimeError, match="no port between"):
        ports.choose(["api"], place=PLACE, free=lambda port: False)


def test_a_port_that_is_listened_on_is_not_free() -> None:
    """Asked of the kernel, on loopback."""
    with socket.socket() as server:
        server.bind((ports.LOOPBACK, 0))
        server.listen()
        assert not ports.is_free(server.getsockname()[1])
