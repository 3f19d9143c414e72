"""`ister doctor [BOOTSTRAP]`: what is wrong, in words, and what to do about it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from ister.gateway.cli.common import print_json
from ister.gateway.cli.exits import BAD_SETTINGS, CLEAN, FAILED, say

if TYPE_CHECKING:
    from ister.gateway.doctor.findings import Finding
    from ister.gateway.listeners import Address
    from ister.gateway.settings import BrokerSettings


def doctor(
    bootstrap: Annotated[
        str | None,
        typer.Argument(
            metavar="[BOOTSTRAP]",
            help="HOST:PORT of a broker; only that is looked at then. Without it: this machine.",
        ),
    ] = None,
    data: Annotated[str, typer.Option(help="Data directory.")] = "./ister-data",
    bucket: Annotated[
        str | None, typer.Option(help="The bucket; the directory under DATA if not set.")
    ] = None,
    http: Annotated[
        str | None, typer.Option(metavar="HOST:PORT|off", help="The broker's HTTP address.")
    ] = None,
    config: Annotated[str | None, typer.Option(metavar="FILE.toml", help="Settings.")] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="One setting; may be repeated."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of words.")] = False,
) -> None:
    """Look for what is wrong. Exit 0: nothing; 1: a problem."""
    from ister.gateway.doctor.findings import PROBLEM
    from ister.gateway.settings import BadSettings, Given, build, gather

    try:
        given = gather(config, os.environ, assignments or [])
        if http is not None:
            given["ister.http"] = Given(http, "--http")
        settings = build(given)
    except BadSettings as error:
        for wrong in error.problems:
            say(wrong)
        raise typer.Exit(BAD_SETTINGS) from None
    if bootstrap is not None:
        found = list(_check_one(bootstrap, settings, http))
    else:
        found = list(_check_here(settings, data, bucket))
    if as_json:
        print_json([each._asdict() for each in found])
    else:
        for each in found:
            typer.echo(f"{each.level:8} {each.words}")
    raise typer.Exit(FAILED if any(each.level == PROBLEM for each in found) else CLEAN)


def _check_one(bootstrap: str, settings: BrokerSettings, http: str | None) -> Iterator[Finding]:
    """A broker, as its clients see it."""
    from ister.gateway.doctor import network
    from ister.gateway.doctor.findings import FINE
    from ister.wal.clock import SystemClock

    found = list(network.check_broker(bootstrap))
    yield from found
    if not any(each.level == FINE for each in found):
        return  # no broker there: whoever answers at the HTTP port may be another one
    yield from network.check_clock(_http_address(bootstrap, settings, http), SystemClock())


def _http_address(bootstrap: str, settings: BrokerSettings, http: str | None) -> Address | None:
    """On the broker's machine, at the usual port, unless it was said."""
    from ister.gateway.kafka_client.cluster import parse_bootstrap
    from ister.gateway.kafka_client.errors import ClientError
    from ister.gateway.listeners import Address

    known = settings.parsed_http()
    if http is not None or known is None:
        return known
    try:
        return Address(parse_bootstrap(bootstrap)[0].host, known.port)
    except ClientError:
        return None


def _check_here(settings: BrokerSettings, data: str, bucket: str | None) -> Iterator[Finding]:
    """This machine, and the broker that the settings are for."""
    from ister.gateway.doctor import disk, machine, network
    from ister.gateway.doctor.network import speaks_kafka
    from ister.wal.clock import SystemClock

    clock = SystemClock()
    yield from machine.check_ports(settings)
    for listener in settings.parsed_listeners():
        if listener.bind.port and speaks_kafka(listener.bind):
            yield from network.check_broker(str(listener.bind))
    yield from machine.check_files(settings)
    yield from disk.check_data(data, clock)
    yield from _check_bucket(data, bucket)


def _check_bucket(data: str, url: str | None) -> Iterator[Finding]:
    from ister.gateway.app import BUCKET_NAME
    from ister.gateway.doctor.bucket import check_bucket
    from ister.gateway.doctor.findings import problem
    from ister.wal.clock import SystemClock
    from ister.wal.tier import BadStoreUrl, open_store
    from ister.wal.tier.object_store import StoreUnavailable

    if url is None:
        if not os.path.isdir(data):
            return
        url = f"file://{os.path.abspath(data)}/{BUCKET_NAME}"
    try:
        store = open_store(url)
    except (BadStoreUrl, StoreUnavailable) as error:
        yield problem("bucket", str(error))
        return
    try:
        yield from check_bucket(store, _cluster_id(data), SystemClock())
    finally:
        store.close()


def _cluster_id(data: str) -> str:
    from contextlib import closing

    from ister.gateway.app import METADATA_NAME
    from ister.metadata.catalog import Catalog
    from ister.metadata.errors import MetadataError
    from ister.metadata.sqlite import SqliteStore

    try:
        with closing(SqliteStore(f"{data}/{METADATA_NAME}", read_only=True)) as store:
            return Catalog.load(store).cluster_id
    except (MetadataError, OSError):
        return ""
