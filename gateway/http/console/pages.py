"""The pages of the console. Reading only; forms on them lead to `actions.py`."""

from __future__ import annotations

from datetime import datetime
from importlib.resources import files
from typing import Any

from aiohttp import web

from ister.gateway.broker import Broker
from ister.gateway.http import views_groups, views_node, views_subscriptions, views_topics
from ister.gateway.http.console.history import History
from ister.gateway.http.console.messages import MESSAGES_MAX, offset_at, read_page
from ister.gateway.http.console.receipts import Found, look_up
from ister.gateway.http.console.render import Console
from ister.gateway.http.problems import problems
from ister.gateway.topic_configs import TOPIC_CONFIGS, default_of
from ister.wal.errors import LogError
from ister.wal.partition import Partition

ROWS_MAX = 200  # of a listing on a page; the rest is behind "more"
_STATIC = {
    "console.css": "text/css",
    "icon.svg": "image/svg+xml",
    "live.js": "text/javascript",
}


def add(routes: web.RouteTableDef, console: Console, history: History) -> None:
    core = console.core

    @routes.get("/")
    async def overview(request: web.Request) -> web.Response:
        node = views_node.node_list(core)["nodes"][0]
        return await console.page(
            request,
            "overview.html",
            problems=problems(core),
            node=node,
            handoff=views_node.handoff(core),
            groups=len(core.groups.list_groups()),
            commit=_commit_ms(core),
            records=history.records_per_second(),
            requests=history.requests_per_second(),
            connections=history.connections(),
            backlog=history.backlog_bytes(),
        )

    @routes.get("/topics")
    async def topics(request: web.Request) -> web.Response:
        listing = views_topics.topic_list(core, request.query.get("after", ""), ROWS_MAX)
        return await console.page(request, "topics.html", **listing)

    @routes.get("/topics/{topic}")
    async def topic(request: web.Request) -> web.Response:
        detail = views_topics.topic_detail(core, request.match_info["topic"])
        if detail is None:
            return await console.problem(request, "There is no such topic.", 404)
        return await console.page(
            request, "topic.html", topic=detail, configs=_configs(core, detail)
        )

    @routes.get("/topics/{topic}/messages")
    async def messages(request: web.Request) -> web.Response:
        name = request.match_info["topic"]
        partition = _partition(core, name, request.query.get("partition", "0"))
        if partition is None:
            return await console.problem(request, "There is no such partition.", 404)
        try:
            offset = await _offset(core, partition, request)
        except ValueError:
            return await console.problem(request, "That is neither an offset nor a time.")
        page = await read_page(core, partition, offset)
        return await console.page(
            request,
            "messages.html",
            name=name,
            partitions=len(core.storage.log.of_topic(partition.topic_id)),
            partition=partition,
            page=page,
            first=offset,
            older=max(partition.log_start, offset - MESSAGES_MAX),
            tail="offset" not in request.query and "time" not in request.query,
        )

    @routes.get("/groups")
    async def groups(request: web.Request) -> web.Response:
        listing = views_groups.group_list(core, request.query.get("after", ""), ROWS_MAX)
        lags = {each["id"]: history.lag(each["id"]) for each in listing["groups"]}
        return await console.page(request, "groups.html", lags=lags, **listing)

    @routes.get("/groups/{group}")
    async def group(request: web.Request) -> web.Response:
        name = request.match_info["group"]
        detail = views_groups.group_detail(core, name)
        if detail is None:
            return await console.problem(request, "There is no such group.", 404)
        return await console.page(request, "group.html", group=detail, lag=history.lag(name))

    @routes.get("/subscriptions")
    async def subscriptions(request: web.Request) -> web.Response:
        listing = views_subscriptions.subscription_list(
            core, request.query.get("after", ""), ROWS_MAX
        )
        return await console.page(request, "subscriptions.html", **listing)

    @routes.get("/receipts")
    async def receipts(request: web.Request) -> web.Response:
        asked = {name: request.query.get(name, "") for name in ("topic", "partition", "offset")}
        found, problem = await _receipts(core, **asked) if asked["topic"] else (None, "")
        return await console.page(
            request, "receipts.html", found=found, problem=problem, asked=asked
        )

    @routes.get("/handoff")
    async def handoff(request: web.Request) -> web.Response:
        values = views_node.handoff(core)
        return await console.page(
            request, "handoff.html", handoff=values, backlog=history.backlog_bytes()
        )

    @routes.get("/clients")
    async def clients(request: web.Request) -> web.Response:
        return await console.page(request, "clients.html", **views_node.client_list(core))

    @routes.get("/settings")
    async def settings(request: web.Request) -> web.Response:
        rows = views_node.settings_rows(core.settings)
        return await console.page(request, "settings.html", rows=rows)

    @routes.get("/login")
    async def login(request: web.Request) -> web.Response:
        return await console.page(request, "login.html")

    @routes.get("/static/{name}")
    async def static(request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in _STATIC:
            raise web.HTTPNotFound
        content = files("ister.gateway.http.console").joinpath("static", name).read_text()
        return web.Response(
            text=content, content_type=_STATIC[name], headers={"Cache-Control": "max-age=300"}
        )


async def _receipts(
    core: Broker, topic: str, partition: str, offset: str
) -> tuple[Found | None, str]:
    """What was found, or why nothing could be looked up."""
    where = _partition(core, topic, partition)
    if where is None:
        return None, "There is no such partition."
    if not offset.isdecimal() or int(offset) >= where.high_watermark:
        return None, f"Offsets of this partition end before {where.high_watermark}."
    try:
        return await look_up(core, topic, where, int(offset)), ""
    except (LogError, TimeoutError) as error:
        return None, str(error) or "the read took too long"


def _commit_ms(core: Broker) -> float | None:
    """Mean time of a commit; None: there was none yet."""
    seconds = core.storage.log.journal.commit_seconds
    return seconds.sum / seconds.count * 1000 if seconds.count else None


def _configs(core: Broker, topic: dict[str, Any]) -> list[dict[str, Any]]:
    """All settings of a topic, those that are set first."""
    own = topic["configs"]
    rows = [
        {
            "name": config.name,
            "value": own.get(config.name, default_of(config, core.settings)),
            "set": config.name in own,
            "effect": config.effect,
        }
        for config in TOPIC_CONFIGS.values()
    ]
    return sorted(rows, key=lambda row: (not row["set"], not row["effect"], row["name"]))


def _partition(core: Broker, topic: str, index: str) -> Partition | None:
    known = core.storage.catalog.topics_by_name.get(topic)
    if known is None or not index.isdecimal():
        return None
    return core.storage.log.partitions.get((known.id, int(index)))


async def _offset(core: Broker, partition: Partition, request: web.Request) -> int:
    """By offset, by time (UTC unless it says), or the last page."""
    time, offset = request.query.get("time", ""), request.query.get("offset", "")
    if time:
        at = datetime.fromisoformat(time if "+" in time or time.endswith("Z") else f"{time}+00:00")
        return await offset_at(core, partition, round(at.timestamp() * 1000))
    if offset:
        return min(max(int(offset), partition.log_start), partition.high_watermark)
    return max(partition.log_start, partition.high_watermark - MESSAGES_MAX)
