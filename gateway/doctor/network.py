"""Checks of a broker's addresses: as a client meets them, one after another.

The three first problems that everybody has: nobody listens there, the name means two
addresses and only one answers, and the broker tells an address that clients cannot use.
"""

from __future__ import annotations

import http.client
import ipaddress
import socket
from collections.abc import Generator, Iterator
from email.utils import parsedate_to_datetime

from ister.gateway.cli.port_owner import port_owner
from ister.gateway.doctor.findings import Finding, fine, problem, warning
from ister.gateway.kafka_client.cluster import Cluster, parse_bootstrap
from ister.gateway.kafka_client.connection import Connection
from ister.gateway.kafka_client.errors import ClientError
from ister.gateway.listeners import Address
from ister.wal.clock import Clock

TIMEOUT_S = 5.0
SKEW_MS_MAX = 2_000
_UNSPECIFIED = ("0.0.0.0", "::")  # noqa: S104 - compared with, not bound
_NAMES = {socket.AF_INET: "IPv4", socket.AF_INET6: "IPv6"}


def check_broker(bootstrap: str) -> Iterator[Finding]:
    """Everything from the name to the advertised addresses."""
    try:
        addresses = parse_bootstrap(bootstrap)
    except ClientError as error:
        yield problem("address", str(error))
        return
    for address in addresses:
        answered = yield from _check_address(address)
        if answered:
            yield from _check_advertised(address)


def _check_address(address: Address) -> Generator[Finding, None, bool]:
    """Returns whether anything answered."""
    try:
        found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)
    except OSError as error:
        words = f"the name {address.host!r} is not known on this machine: {error.strerror}"
        yield problem("name", words)
        return False
    answers: dict[str, bool] = {}
    for family, _, _, _, place in dict.fromkeys(found):
        host = str(place[0])
        if family in _NAMES and host not in answers:
            answers[host] = _connects(host, address.port)
    good = [host for host, answered in answers.items() if answered]
    bad = [host for host, answered in answers.items() if not answered]
    if not good:
        yield _nobody(address, bad)
        return False
    if bad:
        yield warning(
            "two_addresses",
            f"{address.host} means {' and '.join(answers)} here, and only {', '.join(good)} "
            f"answers: clients that try {', '.join(bad)} first fail or are slow. Use "
            f"{good[0]}:{address.port}, or listen on `localhost`, which is both",
        )
    else:
        yield fine("connect", f"{address} answers")
    return True


def _nobody(address: Address, tried: list[str]) -> Finding:
    where = f" (tried {', '.join(tried)})" if tried != [address.host] else ""
    if not _is_local(tried):
        words = f"nothing answers at {address}{where}: a firewall, the wrong port, or it is down"
        return problem("connect", words)
    other = port_owner(address.port)
    if other:
        words = f"{other} has port {address.port}, but not at {address.host}{where}"
    else:
        words = f"nothing listens at {address}{where}: start it with `ister serve`"
    return problem("connect", words)


def _check_advertised(address: Address) -> Iterator[Finding]:
    try:
        with Cluster(str(address), TIMEOUT_S) as cluster:
            answer = cluster.metadata([])
    except ClientError as error:
        owner = port_owner(address.port) if _is_local([address.host]) else None
        whose = f" ({owner} has the port)" if owner else ""
        yield problem("protocol", f"{error}{whose}")
        return
    yield fine("protocol", f"{address} speaks Kafka's protocol, cluster {answer.cluster_id}")
    for broker in answer.brokers:
        told = Address(broker.host, broker.port)
        yield _check_told(address, told, broker.node_id, answer.cluster_id)


def _check_told(asked: Address, told: Address, node_id: int, cluster_id: str | None) -> Finding:
    says = f"broker {node_id} tells clients to come to {told}"
    fix = "set --advertise (advertised.listeners) to the address that clients use"
    if told.host in _UNSPECIFIED:
        return problem("advertised", f"{says}, which is no address to connect to: {fix}")
    if _is_loopback(told.host) and not _is_loopback(asked.host):
        return problem(
            "advertised", f"{says}, which to a client on another machine is itself: {fix}"
        )
    try:
        with Cluster(str(told), TIMEOUT_S) as cluster:
            other = cluster.metadata([])
    except ClientError as error:
        return problem("advertised", f"{says}, and that does not work from here: {error}; {fix}")
    if other.cluster_id != cluster_id or node_id not in {each.node_id for each in other.brokers}:
        return problem("advertised", f"{says}, but there is another broker there: {fix}")
    return fine("advertised", f"{says}, and that works from here")


def check_clock(web: Address | None, clock: Clock) -> Iterator[Finding]:
    """The broker's clock against this machine's, by the date that its HTTP server tells."""
    if web is None:
        return
    connection = http.client.HTTPConnection(web.host, web.port, timeout=TIMEOUT_S)
    try:
        connection.request("HEAD", "/healthz")
        date = connection.getresponse().getheader("Date")
        told_ms = round(parsedate_to_datetime(date or "").timestamp() * 1000)
    except (OSError, http.client.HTTPException, ValueError):
        return  # no HTTP there: nothing to compare
    finally:
        connection.close()
    skew_ms = told_ms - clock.wall_ms()
    if abs(skew_ms) > SKEW_MS_MAX:
        ahead = "ahead of" if skew_ms > 0 else "behind"
        yield problem(
            "clock",
            f"the broker's clock is {abs(skew_ms) / 1000:.0f} s {ahead} this machine's: "
            "timestamps and retention go by it; use NTP on both",
        )
    else:
        yield fine("clock", "the broker's clock agrees with this machine's")


def speaks_kafka(address: Address) -> bool:
    try:
        Connection(address, TIMEOUT_S, TIMEOUT_S).close()
    except ClientError:
        return False
    return True


def _connects(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), TIMEOUT_S).close()
    except OSError:
        return False
    return True


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _is_local(hosts: list[str]) -> bool:
    return any(_is_loopback(host) for host in hosts)
