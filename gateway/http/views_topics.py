"""Topics as plain values, for the JSON and the pages."""

from __future__ import annotations

import uuid
from typing import Any

from ister.gateway.broker import Broker
from ister.gateway.topic_admin import INTERNAL_PREFIX
from ister.metadata.catalog import Topic
from ister.wal.partition import Partition

TOPICS_MAX = 1_000  # of one listing; `after` asks for the next ones


def topic_list(core: Broker, after: str = "", limit: int = TOPICS_MAX) -> dict[str, Any]:
    """In order of name; `next` is what to ask for next, None at the end."""
    names = sorted(name for name in core.storage.catalog.topics_by_name if name > after)
    shown = names[:limit]
    topics = [summary(core, core.storage.catalog.topics_by_name[name]) for name in shown]
    return {"topics": topics, "next": shown[-1] if len(names) > len(shown) else None}


def summary(core: Broker, topic: Topic) -> dict[str, Any]:
    partitions = core.storage.log.of_topic(topic.id)
    return {
        "name": topic.name,
        "id": str(uuid.UUID(bytes=topic.id)),
        "partitions": topic.partitions,
        "records": sum(each.high_watermark - each.log_start for each in partitions),
        "journal_bytes": sum(each.local_bytes for each in partitions),
        "bucket_bytes": sum(_bucket_bytes(each) for each in partitions),
        "internal": topic.name.startswith(INTERNAL_PREFIX),
        "reliable": all(each.settings.reliable for each in partitions),
        "created_ms": topic.created_ms,
    }


def topic_detail(core: Broker, name: str) -> dict[str, Any] | None:
    """None: there is no such topic."""
    topic = core.storage.catalog.topics_by_name.get(name)
    if topic is None:
        return None
    partitions = core.storage.log.of_topic(topic.id)
    return {
        **summary(core, topic),
        "configs": dict(sorted(topic.configs.items())),
        "partition_list": [_partition(each) for each in partitions],
    }


def _partition(partition: Partition) -> dict[str, Any]:
    return {
        "partition": partition.index,
        "log_start_offset": partition.log_start,
        "high_watermark": partition.high_watermark,
        "log_end_offset": partition.log_end,
        "tiered_end_offset": partition.tiered_end,
        "leader_epoch": partition.leader_epoch,
        "journal_bytes": partition.local_bytes,
        "bucket_bytes": _bucket_bytes(partition),
        "holes": [
            {"first": hole.first, "last": hole.last, "reason": hole.reason}
            for hole in partition.holes
        ],
    }


def _bucket_bytes(partition: Partition) -> int:
    return partition.manifest.tiered_bytes if partition.manifest is not None else 0
