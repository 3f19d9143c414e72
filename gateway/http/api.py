"""`/api/v1/...`: what the console shows, as JSON. Reading only.

A listing takes `limit` and `after`; its `next` is the `after` of the next page, or null.
"""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from ister.gateway.broker import Broker
from ister.gateway.http import views_groups, views_node, views_subscriptions, views_topics


def add(routes: web.RouteTableDef, core: Broker) -> None:
    @routes.get("/api/v1/topics")
    async def topics(request: web.Request) -> web.Response:
        return answer(views_topics.topic_list(core, *page(request, views_topics.TOPICS_MAX)))

    @routes.get("/api/v1/topics/{topic}")
    async def topic(request: web.Request) -> web.Response:
        return answer(views_topics.topic_detail(core, request.match_info["topic"]))

    @routes.get("/api/v1/groups")
    async def groups(request: web.Request) -> web.Response:
        return answer(views_groups.group_list(core, *page(request, views_groups.GROUPS_MAX)))

    @routes.get("/api/v1/groups/{group}")
    async def group(request: web.Request) -> web.Response:
        return answer(views_groups.group_detail(core, request.match_info["group"]))

    @routes.get("/api/v1/subscriptions")
    async def subscriptions(request: web.Request) -> web.Response:
        after, limit = page(request, views_subscriptions.SUBSCRIPTIONS_MAX)
        group = request.query.get("group")
        return answer(views_subscriptions.subscription_list(core, after, limit, group))

    @routes.get("/api/v1/handoff")
    async def handoff(_: web.Request) -> web.Response:
        return answer(views_node.handoff(core))

    @routes.get("/api/v1/nodes")
    async def nodes(_: web.Request) -> web.Response:
        return answer(views_node.node_list(core))


def answer(value: Any) -> web.Response:
    """None is a thing that is not there."""
    if value is None:
        return web.json_response({"error": "not found"}, status=404)
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")


def page(request: web.Request, most: int) -> tuple[str, int]:
    """(after, limit) of a listing; a limit that is none is a bad request."""
    text = request.query.get("limit", str(most))
    if not text.isdecimal() or not 1 <= int(text) <= most:
        raise web.HTTPBadRequest(text=f"limit: a number between 1 and {most} is wanted\n")
    return request.query.get("after", ""), int(text)
