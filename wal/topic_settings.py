"""From a topic's configs (Kafka's names, text) to what the log acts on.

Whoever stores configs has validated them; here a value that does not parse is a
programming error. Broker-wide defaults come under the topic's own names.
"""

from __future__ import annotations

from collections.abc import Mapping

from ister.wal.settings import TopicSettings

_DEFAULTS = TopicSettings()


def topic_settings(
    configs: Mapping[str, str], defaults: Mapping[str, str] | None = None
) -> TopicSettings:
    found = {**(defaults or {}), **configs}

    def number(name: str, default: int) -> int:
        return int(found[name]) if name in found else default

    return TopicSettings(
        batch_bytes_max=number("max.message.bytes", _DEFAULTS.batch_bytes_max),
        log_append_time=found.get("message.timestamp.type") == "LogAppendTime",
        retention_ms=number("retention.ms", _DEFAULTS.retention_ms),
        retention_bytes=number("retention.bytes", _DEFAULTS.retention_bytes),
        compact="compact" in found.get("cleanup.policy", "delete"),
        deletes="delete" in found.get("cleanup.policy", "delete"),
        reliable=found.get("ister.dispatch.mode", "reliable") != "non-reliable",
        ring_bytes=number("ister.ring.bytes", _DEFAULTS.ring_bytes),
        heartbeat_interval_ms=number(
            "ister.heartbeat.interval.ms", _DEFAULTS.heartbeat_interval_ms
        ),
        timestamp_before_max_ms=number(
            "message.timestamp.before.max.ms", _DEFAULTS.timestamp_before_max_ms
        ),
        timestamp_after_max_ms=number(
            "message.timestamp.after.max.ms", _DEFAULTS.timestamp_after_max_ms
        ),
        configs=dict(configs),
    )
