"""The receipts of one record, looked up in the broker's own topic of them.

A receipt is written after the record that it is about, so the look-up begins at the time
of the record and ends after `BYTES_MAX`; the page says if it had to stop there.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import msgspec

from ister.dispatch.receipts import decode
from ister.gateway.broker import Broker
from ister.gateway.evidence import Evidence
from ister.gateway.http.console.messages import Message, offset_at, read_chunk, read_page
from ister.gateway.internal_topics import RECEIPTS
from ister.wal.fs import Buffer
from ister.wal.partition import Partition
from ister.wal.records import records

BYTES_MAX = 64 * 1024 * 1024


class Found(NamedTuple):
    message: Message | None
    lines: list[str]
    stopped: bool  # before the last receipt


async def look_up(core: Broker, topic: str, partition: Partition, offset: int) -> Found:
    """LogError if something cannot be read."""
    evidence = Evidence(topic, partition.topic_id.hex(), partition.index, offset)
    page = await read_page(core, partition, offset)
    message = next((each for each in page.messages if each.offset == offset), None)
    known = core.storage.catalog.topics_by_name.get(RECEIPTS)
    if known is None:
        return Found(message, list(evidence.lines()), False)
    where = core.storage.log.partitions[known.id, 0]
    core.receipts.flush()  # those that wait in memory count too
    at = await offset_at(core, where, 0 if message is None else message.timestamp_ms)
    stopped = await _read(core, where, at, evidence)
    return Found(message, list(evidence.lines()), stopped)


async def _read(core: Broker, where: Partition, at: int, evidence: Evidence) -> bool:
    """True: there was more."""
    left = BYTES_MAX
    while at < where.high_watermark:
        if left <= 0:
            return True
        chunk = await read_chunk(core, where, at)
        if not chunk.size:
            break
        await asyncio.to_thread(_add_all, chunk.buffers, evidence)
        left -= chunk.size
        at = chunk.next_offset
    return False


def _add_all(buffers: list[Buffer], evidence: Evidence) -> None:
    for buffer in buffers:
        for record in records(buffer):
            try:
                evidence.add(decode(record.value or b""))
            except msgspec.MsgspecError:
                continue
