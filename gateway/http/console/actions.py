"""What the console changes: topics, a test message, groups. Each answers by going back.

`guard.py` has let the request through: it comes from a page of ours and may change things.
The form's own token is checked here. Everything goes the way that a client's request goes,
with the same rules; what the broker refuses is said on a page.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aiohttp import web

from ister.dispatch.cursors import Place
from ister.gateway.broker import Broker
from ister.gateway.coordinator.offsets import CommitRequest, OffsetsResult, OffsetToCommit
from ister.gateway.errors import RequestError, code_of, words_of
from ister.gateway.http.console.render import Console, checked, segment
from ister.gateway.http.guard import TOKEN_COOKIE
from ister.gateway.kafka_client.batches import NewRecord, encode
from ister.gateway.protocol.error_codes import ErrorCode
from ister.gateway.topic_admin import INTERNAL_PREFIX
from ister.gateway.topic_configs import validate
from ister.metadata.catalog import Topic
from ister.wal.log import Moment

TIMEOUT_S = 30.0
PARTITIONS_MAX = 10_000


class Refused(Exception):
    """Said on a page."""


def add(routes: web.RouteTableDef, console: Console) -> None:
    core = console.core

    def action(path: str, change: Callable[[Broker, web.Request, dict[str, str]], Any]) -> None:
        @routes.post(path)
        async def run(request: web.Request) -> web.Response:
            fields = await checked(request)
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    where = await change(core, request, fields)
            except Refused as error:
                return await console.problem(request, str(error))
            except TimeoutError:
                return await console.problem(request, "The broker did not answer in time.", 503)
            return see(where)

    action("/topics", create_topic)
    action("/topics/{topic}/delete", delete_topic)
    action("/topics/{topic}/produce", produce)
    action("/groups/{group}/reset", reset_group)
    action("/groups/{group}/delete", delete_group)

    @routes.post("/login")
    async def login(request: web.Request) -> web.Response:
        fields = await checked(request)
        response = see("/")
        token = fields.get("token", "")
        response.set_cookie(TOKEN_COOKIE, token, httponly=True, samesite="Strict", path="/")
        return response


async def create_topic(core: Broker, _: web.Request, fields: dict[str, str]) -> str:
    name = fields.get("name", "").strip()
    partitions = _number(fields, "partitions", 1, PARTITIONS_MAX)
    lines = [line.strip() for line in fields.get("configs", "").splitlines() if line.strip()]
    configs = dict(line.partition("=")[::2] for line in lines)
    await _done(lambda done: core.context.topics.create(name, partitions, validate(configs), done))
    return f"/topics/{segment(name)}"


async def delete_topic(core: Broker, request: web.Request, fields: dict[str, str]) -> str:
    topic = _topic(core, request.match_info["topic"])
    if fields.get("confirm") != topic.name:
        raise Refused("The name that was typed is not the topic's: nothing was deleted.")
    if not core.settings.delete_topic_enable:
        raise Refused("Deleting topics is switched off (delete.topic.enable).")
    await _done(lambda done: core.context.topics.delete(topic, done))
    return "/topics"


async def produce(core: Broker, request: web.Request, fields: dict[str, str]) -> str:
    topic = _topic(core, request.match_info["topic"])
    index = _number(fields, "partition", 0, topic.partitions - 1)
    key, value = fields.get("key", ""), fields.get("value", "")
    record = NewRecord(key.encode() if key else None, value.encode(), core.storage.clock.wall_ms())
    partition = core.storage.log.partitions[topic.id, index]
    if partition.settings.compact and not key:
        raise Refused("This topic is compacted: its records need a key.")
    batch = encode([record])
    await _done(lambda done: core.storage.log.append(partition, batch, Moment.DURABLE, done))
    return f"/topics/{segment(topic.name)}/messages?partition={index}"


async def reset_group(core: Broker, request: web.Request, fields: dict[str, str]) -> str:
    group = request.match_info["group"]
    if core.groups.describe(group) is None:
        raise Refused(f"There is no group {group}.")
    topic = _topic(core, fields.get("topic", ""))
    to = fields.get("to", "").strip()
    offsets = []
    for partition in core.storage.log.of_topic(topic.id):
        low, high = partition.log_start, partition.high_watermark
        if to not in ("earliest", "latest") and not to.isdecimal():
            raise Refused("earliest, latest or an offset is wanted.")
        wanted = low if to == "earliest" else high if to == "latest" else int(to)
        place = Place(topic.id, partition.index)
        offsets.append(OffsetToCommit(place, min(max(wanted, low), high)))
    answer: asyncio.Future[OffsetsResult] = asyncio.get_running_loop().create_future()
    request_ = CommitRequest(group, "", None, -1, offsets)
    core.context.offsets.commit(request_, lambda result: _set(answer, result))
    result = await answer
    problem = result.error or next(iter(result.failures.values()), None)
    if problem is not None:
        name = code_of(problem).name
        raise Refused(f"The group was not moved ({name}). Has it members? Stop them first.")
    return f"/groups/{segment(group)}"


async def delete_group(core: Broker, request: web.Request, fields: dict[str, str]) -> str:
    group = request.match_info["group"]
    if fields.get("confirm") != group:
        raise Refused("The name that was typed is not the group's: nothing was deleted.")
    await _done(lambda done: core.groups.delete_group(group, done))
    return "/groups"


def see(where: str) -> web.Response:
    return web.Response(status=303, headers={"Location": where})


# -- helpers -----------------------------------------------------------------------------


async def _done(start: Callable[[Callable[[BaseException | None], None]], object]) -> None:
    """Start something that calls back once; Refused with its words if it fails."""
    answer: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
    try:
        start(lambda error: _set(answer, error))
        error = await answer
    except RequestError as refused:
        raise Refused(str(refused)) from refused
    except TimeoutError:
        raise
    except Exception as refused:
        error = refused
    if error is not None:
        raise Refused(_words(error)) from error


def _words(error: BaseException) -> str:
    code = code_of(error)
    if code is ErrorCode.UNKNOWN_SERVER_ERROR:
        raise error  # ours: a traceback in the log, not a page
    return f"{words_of(error)} ({code.name})"


def _set(answer: asyncio.Future[Any], result: Any) -> None:
    if not answer.done():
        answer.set_result(result)


def _topic(core: Broker, name: str) -> Topic:
    topic = core.storage.catalog.topics_by_name.get(name)
    if topic is None:
        raise Refused(f"There is no topic {name}.")
    if name.startswith(INTERNAL_PREFIX):
        raise Refused(f"{name} is the broker's own.")
    return topic


def _number(fields: dict[str, str], name: str, low: int, high: int) -> int:
    text = fields.get(name, "").strip()
    if not text.isdecimal() or not low <= int(text) <= high:
        raise Refused(f"{name}: a number between {low} and {high} is wanted.")
    return int(text)
