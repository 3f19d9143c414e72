"""Checks of this machine: ports that are taken, and the number of files that may be open."""

from __future__ import annotations

import resource
from collections.abc import Iterator

from ister.gateway.cli.port_owner import port_owner
from ister.gateway.doctor.findings import Finding, fine, problem, warning
from ister.gateway.doctor.network import speaks_kafka
from ister.gateway.listeners import Address
from ister.gateway.settings import BrokerSettings

# Journal, bucket, metadata and lanes together need about so many.
FILES_OWN = 256
FILES_MIN = 1024


def check_files(settings: BrokerSettings) -> Iterator[Finding]:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield judge_files(soft, settings.max_connections)


def judge_files(soft: int, connections_max: int) -> Finding:
    if soft == resource.RLIM_INFINITY or soft >= connections_max + FILES_OWN:
        return fine("files", f"{soft} files may be open")
    words = (
        f"{soft} files may be open, so about {max(0, soft - FILES_OWN)} clients can connect at a "
        f"time (max.connections={connections_max}): raise it with `ulimit -n`, or LimitNOFILE "
        "in a systemd unit"
    )
    return problem("files", words) if soft < FILES_MIN else warning("files", words)


def check_ports(settings: BrokerSettings) -> Iterator[Finding]:
    """Of the addresses that a broker with these settings would take."""
    wanted: list[tuple[str, Address]] = [
        ("listen", each.bind) for each in settings.parsed_listeners()
    ]
    http = settings.parsed_http()
    if http is not None:
        wanted.append(("http", http))
    brokers: set[str] = set()  # who serves Kafka here; the HTTP port is theirs too as a rule
    for what, address in wanted:
        owner = port_owner(address.port) if address.port else None
        if owner is None:
            yield fine("port", f"--{what} {address}: the port is free")
        elif what == "listen" and speaks_kafka(_reachable(address)):
            brokers.add(owner)
            yield fine("port", f"--{what} {address}: a broker is there, {owner}")
        elif what == "http" and owner in brokers:
            yield fine("port", f"--{what} {address}: the same broker is there")
        elif what == "http":
            yield warning("port", f"--{what} {address}: {owner} has the port")
        else:
            words = f"--{what} {address}: {owner} has the port, and it is no Kafka broker"
            yield problem("port", words)


def _reachable(address: Address) -> Address:
    unspecified = address.host in ("", "0.0.0.0", "::")  # noqa: S104 - compared with
    return Address("127.0.0.1", address.port) if unspecified else address
