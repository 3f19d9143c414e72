"""A broker process: settings, open, listen, say that it is ready, tick, stop on a signal."""

from __future__ import annotations

import asyncio
import errno
import importlib
import os
import signal
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import structlog

from ister.gateway import logs
from ister.gateway.app import TICK_S, Options
from ister.gateway.broker import Broker
from ister.gateway.cli.exits import BAD_SETTINGS, CANNOT_LISTEN, CLEAN, DISK_FAILED, say
from ister.gateway.cli.port_owner import port_owner
from ister.gateway.cli.serve import FAILED_EXIT_AFTER_S
from ister.gateway.http import listen as http_listen
from ister.gateway.listeners import Address
from ister.gateway.runtime import raise_file_limit, tune
from ister.gateway.settings import BadSettings, BrokerSettings, Given, build, gather, log_settings
from ister.wal.recovery import Report
from ister.wal.tier.object_store import StoreUnavailable

if TYPE_CHECKING:
    from ister.gateway.http.server import HttpServer

_SIGNALS = (signal.SIGTERM, signal.SIGINT)

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """The command line of `ister serve`."""

    data: str
    bucket: str | None = None
    listen: list[str] = field(default_factory=list)
    advertise: list[str] = field(default_factory=list)
    http: str | None = None
    workers: int = 1
    continue_past_damage: bool = False
    config: str | None = None
    assignments: list[str] = field(default_factory=list)


def run(arguments: Arguments) -> int:
    """An exit code, as promised."""
    logs.configure()
    try:
        settings = read_settings(arguments)
    except BadSettings as error:
        for problem in error.problems:
            say(problem)
        return BAD_SETTINGS
    options = Options(
        data=arguments.data,
        bucket_url=arguments.bucket,
        log=log_settings(settings, continue_past_damage=arguments.continue_past_damage),
    )
    try:
        return asyncio.run(_serve(options, settings))
    except StoreUnavailable as error:  # opening only: no credentials, say; later it may be away
        say(str(error))
        return BAD_SETTINGS


def read_settings(arguments: Arguments) -> BrokerSettings:
    """File, environment, --set, and the options that are settings too; later wins."""
    if arguments.workers != 1:
        raise BadSettings(["--workers: only 1 is supported so far"])
    given = gather(arguments.config, os.environ, arguments.assignments)
    if arguments.listen:
        given["listeners"] = Given(",".join(arguments.listen), "--listen")
    if arguments.advertise:
        given["advertised.listeners"] = Given(",".join(arguments.advertise), "--advertise")
    if arguments.http is not None:
        given["ister.http"] = Given(arguments.http, "--http")
    return build(given)


async def _serve(options: Options, settings: BrokerSettings) -> int:
    raise_file_limit()
    broker = Broker(options, settings, _report)
    _say_opened(options.data, broker.storage.opened.report)
    try:
        await broker.start()
        http = _bind_http(settings)
    except OSError as error:
        say(_cannot_listen(error))
        await broker.close()
        return CANNOT_LISTEN
    _say_listening(broker)
    tune()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, _stop, stop)
    print(f"ister ready kafka={broker.bootstrap} http={http or 'off'}", flush=True)
    server = None if http is None else await _serve_http(broker, http)
    failed = await _until(broker, stop)
    await broker.close()
    if server is not None:
        await server.stop()
    return DISK_FAILED if failed else CLEAN


class _Http(NamedTuple):
    address: Address
    listening: socket.socket

    def __str__(self) -> str:
        return str(self.address)


def _bind_http(settings: BrokerSettings) -> _Http | None:
    address = settings.parsed_http()
    if address is None:
        return None
    listening = http_listen.bind(address)
    return _Http(http_listen.bound(address, listening), listening)


async def _serve_http(broker: Broker, http: _Http) -> HttpServer:
    """Loaded after clients are served already, on another thread: it takes half a second."""
    module = await asyncio.to_thread(importlib.import_module, "ister.gateway.http.server")
    server: HttpServer = module.HttpServer(broker, http.address)
    await server.start(http.listening)
    return server


def _cannot_listen(error: OSError) -> str:
    """In words, for the first problem that everybody has."""
    address = str(error.filename)
    port = address.rpartition(":")[2]
    if error.errno == errno.EADDRINUSE:
        owner = port_owner(int(port)) if port.isdecimal() else None
        whose = f" by {owner}" if owner else ""
        return (
            f"cannot listen on {address}: the port is in use{whose}. "
            "Stop that, or choose another one: --listen or --http HOST:PORT (port 0 is a free one)"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return (
            f"cannot listen on {address}: this machine does not have that address. To be "
            "reached under another one, listen on 0.0.0.0 and name it with --advertise"
        )
    return f"cannot listen on {address}: {error.strerror or error}"


def _stop(stop: asyncio.Event) -> None:
    if stop.is_set():  # the second signal: nothing acked is lost by leaving now
        os._exit(CLEAN)
    stop.set()


async def _until(broker: Broker, stop: asyncio.Event) -> bool:
    """Tick until a signal comes (False) or the disk has been failed for long enough (True)."""
    storage = broker.storage
    while not stop.is_set():
        broker.tick()
        at = storage.failed_at
        if at is not None and storage.clock.monotonic() - at >= FAILED_EXIT_AFTER_S:
            return True
        try:
            await asyncio.wait_for(stop.wait(), TICK_S)
        except TimeoutError:
            continue
    return False


def _say_opened(data: str, report: Report) -> None:
    log.info(
        "log_opened",
        data=data,
        files=report.files,
        frames=report.frames,
        clean=report.clean,
        cut_bytes=report.cut_bytes,
        cut_where=report.cut_where or None,
    )
    for damage in report.damages:
        log.error("damage", where=damage.where, position=damage.position, what=damage.what)


def _say_listening(broker: Broker) -> None:
    """The ready line has room for the first address alone."""
    if len(broker.listeners) > 1:
        for each in broker.listeners:
            log.info("listening", name=each.name, bind=str(each.bind), told=str(each.endpoint))


def _report(error: BaseException) -> None:
    log.error("background_error", error=str(error), kind=type(error).__name__)
