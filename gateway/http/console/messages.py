"""Records of a partition as a page shows them: read through the log, decoded off the loop.

A value is text, pretty JSON, or bytes in hex; what is longer than `SHOWN_BYTES_MAX` is cut.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from ister.gateway.broker import Broker
from ister.wal.errors import LogError
from ister.wal.fs import Buffer
from ister.wal.partition import Partition
from ister.wal.reader import Chunk
from ister.wal.records import Record, records
from ister.wal.times import Found

T = TypeVar("T")

MESSAGES_MAX = 50
READ_BYTES = 1024 * 1024
READS_MAX = 20  # a page is made of at most so many reads
SHOWN_BYTES_MAX = 20_000
HEX_BYTES_MAX = 512
TIMEOUT_S = 30.0


class Shown(NamedTuple):
    """Bytes for a reader."""

    kind: str  # "null", "text", "json" or "bytes"
    text: str
    size: int

    @property
    def is_cut(self) -> bool:
        return self.size > (HEX_BYTES_MAX if self.kind == "bytes" else SHOWN_BYTES_MAX)


class Message(NamedTuple):
    offset: int
    timestamp_ms: int
    key: Shown
    value: Shown
    headers: list[tuple[str, Shown]]


class Page(NamedTuple):
    messages: list[Message]
    next_offset: int
    problem: str | None


async def read_page(core: Broker, partition: Partition, offset: int) -> Page:
    """Up to MESSAGES_MAX records from `offset` on; what cannot be read is said on the page."""
    found: list[Message] = []
    at = max(offset, partition.log_start)
    try:
        for _ in range(READS_MAX):
            if at >= partition.high_watermark or len(found) >= MESSAGES_MAX:
                break
            chunk = await read_chunk(core, partition, at)
            if not chunk.size:
                break
            wanted = MESSAGES_MAX - len(found)
            found += await asyncio.to_thread(_decode, chunk.buffers, at, wanted)
            at = found[-1].offset + 1 if len(found) >= MESSAGES_MAX else chunk.next_offset
    except (LogError, TimeoutError) as error:
        return Page(found, at, str(error) or "the read took too long")
    return Page(found, at, None)


async def offset_at(core: Broker, partition: Partition, timestamp_ms: int) -> int:
    """Where a time begins; the end if there is nothing as late as that."""
    answer: asyncio.Future[Found | None] = asyncio.get_running_loop().create_future()
    core.context.times.offset_for_time(partition, timestamp_ms, _setter(answer))
    async with asyncio.timeout(TIMEOUT_S):
        found = await answer
    return partition.high_watermark if found is None else found.offset


async def read_chunk(core: Broker, partition: Partition, offset: int) -> Chunk:
    """What comes next, from wherever it is; LogError or TimeoutError."""
    answer: asyncio.Future[Chunk | None] = asyncio.get_running_loop().create_future()
    core.context.reader.read(partition, offset, READ_BYTES, _setter(answer))
    async with asyncio.timeout(TIMEOUT_S):
        chunk = await answer
    assert chunk is not None
    return chunk


def _setter(
    answer: asyncio.Future[T | None],
) -> Callable[[T | None, BaseException | None], None]:
    def done(result: T | None, error: BaseException | None) -> None:
        if answer.done():  # nobody waits any more
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)

    return done


def _decode(buffers: list[Buffer], offset: int, wanted: int) -> list[Message]:
    found: list[Message] = []
    for buffer in buffers:
        for record in records(buffer):
            if record.offset >= offset:
                found.append(_message(record))
            if len(found) >= wanted:
                return found
    return found


def _message(record: Record) -> Message:
    return Message(
        record.offset,
        record.timestamp,
        shown(record.key),
        shown(record.value),
        [(name.decode("utf-8", "replace"), shown(value)) for name, value in record.headers],
    )


def shown(data: bytes | None) -> Shown:
    if data is None:
        return Shown("null", "null", 0)
    size = len(data)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return Shown("bytes", data[:HEX_BYTES_MAX].hex(" "), size)
    if size <= SHOWN_BYTES_MAX and text[:1] in ("{", "["):
        try:
            pretty = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
        except (ValueError, RecursionError):
            return Shown("text", text, size)
        return Shown("json", pretty, size)
    return Shown("text", text[:SHOWN_BYTES_MAX], size)
