"""Listeners: how they are written, what is advertised, and that each tells its own address."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from ister.gateway.app import Options
from ister.gateway.broker import Broker
from ister.gateway.listeners import Address, BadListener, Listener, parse_listeners
from ister.gateway.settings import BrokerSettings
from ister.gateway.tests.wire_kit import Wire


@pytest.mark.parametrize(
    ("written", "name", "host", "port"),
    [
        ("127.0.0.1:9092", "PLAINTEXT", "127.0.0.1", 9092),
        ("inside=10.0.0.1:0", "inside", "10.0.0.1", 0),
        ("PLAINTEXT://localhost:9092", "PLAINTEXT", "localhost", 9092),
        ("OUT://[::1]:65535", "OUT", "::1", 65535),
        (":9092", "PLAINTEXT", "", 9092),
    ],
)
def test_one_listener(written: str, name: str, host: str, port: int) -> None:
    """Our way and Kafka's."""
    assert parse_listeners(written, "") == [Listener(name, Address(host, port), None)]


def test_several_with_addresses_of_their_own() -> None:
    """Told apart by name; who has none is advertised as bound."""
    inside, outside = parse_listeners(
        "IN://0.0.0.0:9092, OUT://0.0.0.0:9093", "OUT://broker.example:443"
    )
    assert outside.advertised == Address("broker.example", 443)
    assert inside.bound(9092).endpoint == Address("localhost", 9092)  # all interfaces is no address


def test_a_single_one_needs_no_name() -> None:
    """`--listen 0.0.0.0:9092 --advertise host:1` means one thing only."""
    (only,) = parse_listeners("X=0.0.0.0:9092", "host:1")
    assert only.bound(9092).endpoint == Address("host", 1)


def test_an_advertised_port_0_is_the_bound_one() -> None:
    """For tests and containers that choose the port."""
    (only,) = parse_listeners("127.0.0.1:0", "host:0")
    assert only.bound(4711).endpoint == Address("host", 4711)


@pytest.mark.parametrize(
    ("listeners", "advertised"),
    [
        ("", ""),
        ("nowhere", ""),
        ("h:port", ""),
        ("h:65536", ""),
        ("::1:9092", ""),
        ("A=h:1,A=h:2", ""),
        ("A=h:1,B=h:2", "C=h:3"),
    ],
)
def test_what_cannot_be_meant(listeners: str, advertised: str) -> None:
    """Refused with words."""
    with pytest.raises(BadListener, match="listeners"):
        parse_listeners(listeners, advertised)


def test_loopback_is_known() -> None:
    """Everything else warns, as there is no authentication."""
    assert Listener("L", Address("127.0.0.1", 1), None).is_loopback
    assert Listener("L", Address("::1", 1), None).is_loopback
    assert not Listener("L", Address("", 1), None).is_loopback
    assert str(Address("::1", 9092)) == "[::1]:9092"


def test_each_listener_tells_its_own_address(tmp_path: Path) -> None:
    """Pitfall 27: a client is sent to where it came from, not to where others are."""

    async def main() -> None:
        settings = BrokerSettings(
            listeners="IN=127.0.0.1:0,OUT=127.0.0.1:0", advertised_listeners="OUT=outside.example:1"
        )
        broker = Broker(Options(data=str(tmp_path / "d"), seed=1), settings, lambda error: None)
        await broker.start()
        inside, outside = (listener.bind.port for listener in broker.listeners)

        def ask(port: int) -> tuple[str, int]:
            with Wire(port) as wire:
                (node,) = wire.metadata().brokers
                return node.host, node.port

        loop = asyncio.get_running_loop()
        try:
            assert await loop.run_in_executor(None, ask, inside) == ("127.0.0.1", inside)
            assert await loop.run_in_executor(None, ask, outside) == ("outside.example", 1)
        finally:
            await broker.close()

    asyncio.run(main())


def test_localhost_is_both_families(tmp_path: Path) -> None:
    """Pitfall 27: IPv4 and IPv6 under one port, where the machine has both."""

    async def main() -> None:
        broker = Broker(
            Options(data=str(tmp_path / "d"), seed=1),
            BrokerSettings(listeners="localhost:0"),
            lambda error: None,
        )
        await broker.start()
        port = broker.listeners[0].bind.port
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo("localhost", port, type=socket.SOCK_STREAM)
        try:
            for family, _, _, _, address in found:
                with socket.socket(family) as client:
                    client.setblocking(False)
                    await loop.sock_connect(client, address)
        finally:
            await broker.close()

    asyncio.run(main())
