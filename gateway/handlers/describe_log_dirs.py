"""DescribeLogDirs, versions 1-5: how much of each partition is kept.

There is one directory, the journal's. The size of a partition is that of all its batches
that are kept, those in the bucket too: the journal alone would say 0 for everything that was
handed over, and tools sum these numbers up to sizes of topics. What was asked for and is
not there is left out, as in Kafka. Nothing lags and nothing moves. Version 3 has an error
for all, 4 the size of the volume (KIP-827); 5 whether the directory is cordoned: it is not.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from ister.gateway.handlers.api import Api, Call
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.messages import describe_log_dirs as messages
from ister.gateway.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ister.wal.partition import Partition


def handle(call: Call, request: DescribeLogDirsRequest) -> None:
    topics = tuple(
        DescribeLogDirsTopic(name=name, partitions=tuple(_describe(each) for each in partitions))
        for name, partitions in _found(call, request)
        if partitions
    )
    directory = os.path.abspath(os.path.dirname(call.context.log.journal.file.path))
    volume = os.statvfs(directory)
    result = DescribeLogDirsResult(
        log_dir=directory,
        topics=topics,
        total_bytes=volume.f_blocks * volume.f_frsize,
        usable_bytes=volume.f_bavail * volume.f_frsize,
    )
    call.reply(DescribeLogDirsResponse(results=(result,)))


def _found(call: Call, request: DescribeLogDirsRequest) -> Iterable[tuple[str, list[Partition]]]:
    context = call.context
    if request.topics is None:
        for topic in context.catalog.topics_by_name.values():
            yield topic.name, context.log.of_topic(topic.id)
        return
    asked: dict[str, dict[int, None]] = {}  # each once, in the order of the request
    for each in request.topics:
        asked.setdefault(each.topic, {}).update(dict.fromkeys(each.partitions))
    for name, indexes in asked.items():
        known = context.topic(name)
        if known is not None:
            there = (context.partition(known, index) for index in indexes)
            yield name, [partition for partition in there if partition is not None]


def _describe(partition: Partition) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=partition.index,
        partition_size=kept_bytes(partition),
        offset_lag=0,
        is_future_key=False,
    )


def kept_bytes(partition: Partition) -> int:
    """Batches in the bucket, and those in journal files that reach beyond it."""
    manifest = partition.manifest
    tiered = sum(entry.data_size for entry in manifest.entries) if manifest is not None else 0
    behind = sum(
        size
        for number, size in enumerate(partition.file_bytes)
        if partition.file_end(number) > partition.tiered_end
    )
    tail = partition.open_tail
    if tail is not None and partition.high_watermark > partition.tiered_end:
        behind += tail.data_bytes
    return tiered + behind


API = Api(
    key=ApiKey.DESCRIBE_LOG_DIRS,
    versions=(1, 5),
    handle=handle,
    read=messages.REQUEST.read,
    write=messages.RESPONSE.write,
)
