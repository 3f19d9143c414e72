"""`/healthz`: the process lives. `/readyz`: clients are served, or why they are not."""

from __future__ import annotations

from aiohttp import web

from ister.gateway.broker import Broker
from ister.gateway.http.problems import not_ready


def add(routes: web.RouteTableDef, core: Broker) -> None:
    @routes.get("/healthz")
    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    @routes.get("/readyz")
    async def readyz(_: web.Request) -> web.Response:
        reasons = not_ready(core)
        if reasons:
            return web.Response(status=503, text="".join(f"{each}\n" for each in reasons))
        return web.Response(text="ready\n")
