"""The broker itself as plain values: node, clients, the way to the bucket, settings."""

from __future__ import annotations

from dataclasses import fields
from heapq import nlargest
from typing import Any

import ister
from ister.gateway.broker import Broker
from ister.gateway.http.problems import disk, problems
from ister.gateway.settings import SECRETS, BrokerSettings

CLIENTS_MAX = 1_000  # shown; the count is of all


def node_list(core: Broker) -> dict[str, Any]:
    storage = core.storage
    free, total = disk(core)
    return {
        "cluster_id": storage.catalog.cluster_id,
        "nodes": [
            {
                "id": core.settings.node_id,
                "version": ister.__version__,
                "data": storage.options.data,
                "bucket": storage.bucket.url,
                "listeners": [
                    {
                        "name": each.name,
                        "bind": str(each.bind),
                        "advertised": str(each.endpoint),
                    }
                    for each in core.listeners
                ],
                "connections": len(core.server.clients),
                "topics": len(storage.catalog.topics_by_name),
                "partitions": len(storage.log.partitions),
                "journal_bytes": storage.log.files.bytes,
                "disk_free_bytes": free,
                "disk_bytes": total,
                "problems": [each._asdict() for each in problems(core)],
            }
        ],
    }


def handoff(core: Broker) -> dict[str, Any]:
    storage = core.storage
    service = storage.handoff
    partitions = storage.log.partitions.values()
    return {
        "bucket": storage.bucket.url,
        "backlog_bytes": service.backlog_bytes,
        "oldest_age_seconds": service.oldest_age_ms() / 1000,
        "objects": service.objects,
        "errors": service.errors,
        "fenced": None if service.fenced is None else str(service.fenced),
        "journal_files": len(storage.log.sealed) + 1,
        "journal_bytes": storage.log.files.bytes,
        "records_waiting": sum(
            max(0, each.high_watermark - each.tiered_end) for each in partitions
        ),
    }


def client_list(core: Broker) -> dict[str, Any]:
    """Connections, those that were active last first."""
    now = core.storage.clock.monotonic()
    newest = nlargest(CLIENTS_MAX, core.server.clients, key=lambda each: each.last_active)
    return {
        "count": len(core.server.clients),
        "clients": [
            {
                "peer": each.peer,
                "client_id": each.client_id,
                "listener": each.listener.name,
                "idle_seconds": round(max(0.0, now - each.last_active), 1),
            }
            for each in newest
        ],
    }


def settings_rows(settings: BrokerSettings) -> list[dict[str, Any]]:
    """Every setting with its value; a secret says only whether it is set."""
    rows = []
    for each in fields(BrokerSettings):
        name = each.metadata["name"]
        value = getattr(settings, each.name)
        if name in SECRETS and value:
            value = "(set)"
        rows.append({"name": name, "value": value, "default": value == each.default})
    return rows
