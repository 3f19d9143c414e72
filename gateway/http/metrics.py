"""`/metrics`: what the parts have counted, in the text format of Prometheus.

The parts keep plain integers. A scrape copies them on the broker's thread, which is quick,
and turns them into text on another. `COLLECTORS` are functions from the broker to families,
one module per part.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from ister.gateway.broker import Broker
from ister.gateway.http import metrics_cursors, metrics_delivery, metrics_log, metrics_wire
from ister.gateway.http.families import Family, metric

Collector = Callable[[Broker], Iterable[Family]]
COLLECTORS: Final[tuple[Collector, ...]] = (
    metrics_wire.collect,
    metrics_log.collect,
    metrics_cursors.collect,
    metrics_delivery.collect,
)


def add(routes: web.RouteTableDef, core: Broker) -> None:
    @routes.get("/metrics")
    async def metrics(_: web.Request) -> web.Response:
        families = collect(core)
        text = await asyncio.to_thread(render, families)
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})


def collect(core: Broker) -> list[Family]:
    """All families, copied. On the broker's thread."""
    return [family for collector in COLLECTORS for family in collector(core)]


def render(families: list[Family]) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Taken(families))
    return generate_latest(registry)


class _Taken:
    def __init__(self, families: list[Family]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return map(metric, self._families)
