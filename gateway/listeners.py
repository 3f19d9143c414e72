"""Listeners: where the broker listens, and what it tells clients about itself.

A listener has a name, an address to bind and an address to advertise; Metadata
answers with the latter, of the listener that was used. Written `[NAME=]HOST:PORT`, or
as Kafka writes it, `NAME://HOST:PORT`. Port 0 is a free port; what is not advertised
on purpose is advertised as it is bound.
"""

from __future__ import annotations

from typing import NamedTuple

DEFAULT_NAME = "PLAINTEXT"
_ANY_HOSTS = ("", "0.0.0.0", "::")  # noqa: S104  compared with, not bound


class BadListener(ValueError):
    """Not an address, or two that cannot be told apart. Says which."""


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Listener(NamedTuple):
    name: str
    bind: Address
    advertised: Address | None  # None: as bound

    def bound(self, port: int) -> Listener:
        """The port is known now."""
        bind = Address(self.bind.host, port)
        advertised = self.advertised or Address(_reachable(self.bind.host), port)
        if advertised.port == 0:
            advertised = Address(advertised.host, port)
        return Listener(self.name, bind, advertised)

    @property
    def endpoint(self) -> Address:
        """What clients are told."""
        return self.advertised or self.bind

    @property
    def is_loopback(self) -> bool:
        host = self.bind.host
        return host in ("localhost", "::1") or host.startswith("127.")


def parse_listeners(listeners: str, advertised: str) -> list[Listener]:
    """The listeners with their advertised addresses; BadListener says what is wrong."""
    binds = _named(listeners, "listeners")
    if not binds:
        raise BadListener("listeners: at least one is wanted")
    told = _named(advertised, "advertised.listeners")
    if len(binds) == 1 and len(told) == 1:  # no name needed to tell them apart
        told = {next(iter(binds)): next(iter(told.values()))}
    for name in told:
        if name not in binds:
            raise BadListener(f"advertised.listeners: there is no listener {name}")
    return [Listener(name, bind, told.get(name)) for name, bind in binds.items()]


def _named(text: str, what: str) -> dict[str, Address]:
    found: dict[str, Address] = {}
    for item in (part.strip() for part in text.split(",")):
        if not item:
            continue
        name, address = _split(item)
        if not name:
            name = DEFAULT_NAME if DEFAULT_NAME not in found else f"LISTENER{len(found)}"
        if name in found:
            raise BadListener(f"{what}: the name {name} comes twice")
        found[name] = _address(address, what)
    return found


def _split(item: str) -> tuple[str, str]:
    if "://" in item:
        name, _, address = item.partition("://")
        return name, address
    name, equals, address = item.partition("=")
    return (name, address) if equals else ("", item)


def _address(text: str, what: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise BadListener(f"{what}: {text!r} is not HOST:PORT")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise BadListener(f"{what}: {text!r}: write IPv6 addresses in brackets")
    return Address(host, int(port))


def _reachable(host: str) -> str:
    """All interfaces is no address to connect to; on this machine, localhost is."""
    return "localhost" if host in _ANY_HOSTS else host
