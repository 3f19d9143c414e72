"""The HTTP server: aiohttp on the broker's loop, around the routes of this package.

Slow to load, so it is imported only where HTTP is wanted. Requests are small, answers are
made from memory; a body above `BODY_BYTES_MAX` is refused, and so is a connection above
`CONNECTIONS_MAX`: descriptors are for clients of Kafka. No access log: a scrape every few
seconds is not news.
"""

from __future__ import annotations

import asyncio
import socket

from aiohttp import web

from ister.gateway.broker import Broker
from ister.gateway.http import api, guard, health, metrics
from ister.gateway.http.console import actions, pages
from ister.gateway.http.console.history import History
from ister.gateway.http.console.render import Console
from ister.gateway.listeners import Address

BODY_BYTES_MAX = 2 * 1024 * 1024
CONNECTIONS_MAX = 200
_SHUTDOWN_S = 1.0
_KEEP_ALIVE_S = 30.0
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\n"
    b"Content-Length: 21\r\nConnection: close\r\n\r\ntoo many connections\n"
)


class HttpServer:
    """`start` serves a socket that listens already; `stop` ends it."""

    def __init__(self, core: Broker, address: Address) -> None:
        policy = guard.Policy.of(core.settings, address)
        app = web.Application(client_max_size=BODY_BYTES_MAX, middlewares=[guard.check(policy)])
        routes = web.RouteTableDef()
        health.add(routes, core)
        metrics.add(routes, core)
        api.add(routes, core)
        console = Console(core, policy)
        self._history = History(core)
        pages.add(routes, console, self._history)
        actions.add(routes, console)
        app.add_routes(routes)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            handle_signals=False,
            shutdown_timeout=_SHUTDOWN_S,
            keepalive_timeout=_KEEP_ALIVE_S,
        )
        self._server: asyncio.Server | None = None

    async def start(self, listening: socket.socket) -> None:
        self._history.start()
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, sock=listening)

    async def stop(self) -> None:
        self._history.stop()
        if self._server is not None:
            self._server.close()
        await self._runner.cleanup()

    def _accept(self) -> asyncio.Protocol:
        server = self._runner.server
        assert server is not None
        return _Full() if len(server.connections) >= CONNECTIONS_MAX else server()


class _Full(asyncio.Protocol):
    """Says that there is no room, and parts."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(_FULL)
        transport.close()
