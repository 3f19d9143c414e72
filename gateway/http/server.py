"""The HTTP server: aiohttp on the broker's loop, around the routes of this package.

Slow to load, so it is imported only where HTTP is wanted. Requests are small, answers are
made from memory; a body above `BODY_BYTES_MAX` is refused. No access log: a scrape every
few seconds is not news.
"""

from __future__ import annotations

import socket

from aiohttp import web

from ister.gateway.broker import Broker
from ister.gateway.http import api, guard, health, metrics
from ister.gateway.http.console import actions, pages
from ister.gateway.http.console.history import History
from ister.gateway.http.console.render import Console
from ister.gateway.listeners import Address

BODY_BYTES_MAX = 2 * 1024 * 1024
_SHUTDOWN_S = 1.0


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
            app, access_log=None, handle_signals=False, shutdown_timeout=_SHUTDOWN_S
        )

    async def start(self, listening: socket.socket) -> None:
        self._history.start()
        await self._runner.setup()
        await web.SockSite(self._runner, listening).start()

    async def stop(self) -> None:
        self._history.stop()
        await self._runner.cleanup()
