"""Groups as plain values, for the JSON and the pages."""

from __future__ import annotations

from typing import Any

from ister.dispatch.cursors import Place
from ister.gateway.broker import Broker
from ister.metadata.cursors import Cursor, display_path
from ister.metadata.errors import StoreUnavailable

GROUPS_MAX = 1_000  # of one listing; `after` asks for the next ones


def group_list(core: Broker, after: str = "", limit: int = GROUPS_MAX) -> dict[str, Any]:
    """In order of name; `next` is what to ask for next, None at the end."""
    found = sorted(core.groups.list_groups(), key=lambda each: each.id)
    found = [each for each in found if each.id > after]
    groups = []
    for each in found[:limit]:
        group = core.groups.group(each.id)
        groups.append(
            {
                "id": each.id,
                "state": str(each.state.value),
                "protocol_type": each.protocol_type,
                "members": 0 if group is None else len(list(group.members)),
                "lag": total_lag(core, each.id),
            }
        )
    return {"groups": groups, "next": found[limit - 1].id if len(found) > limit else None}


def group_detail(core: Broker, group_id: str) -> dict[str, Any] | None:
    """None: there is no such group."""
    described = core.groups.describe(group_id)
    if described is None:
        return None
    return {
        "id": described.id,
        "state": str(described.state.value),
        "protocol_type": described.protocol_type,
        "protocol": described.protocol,
        "generation": described.generation,
        "members": [
            {
                "id": member.id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
            }
            for member in described.members
        ],
        "cursors": cursor_rows(core, group_id),
    }


def cursor_rows(core: Broker, group_id: str) -> list[dict[str, Any]]:
    """In order of topic and partition; empty if the store cannot tell now."""
    topics = core.storage.catalog.topics_by_id
    rows = []
    for place, cursor in _cursors(core, group_id).items():
        name = topics[place.topic_id].name
        rows.append(
            {
                "topic": name,
                "partition": place.partition,
                "offset": cursor.offset,
                "lag": lag(core, place, cursor),
                "leader_epoch": cursor.leader_epoch,
                "metadata": cursor.metadata,
                "committed_ms": cursor.time_ms,
                "path": display_path(name, place.partition, group_id),
            }
        )
    return sorted(rows, key=lambda row: (row["topic"], row["partition"]))


def total_lag(core: Broker, group_id: str) -> int:
    cursors = _cursors(core, group_id)
    return sum(lag(core, place, cursor) or 0 for place, cursor in cursors.items())


def lag(core: Broker, place: Place, cursor: Cursor) -> int | None:
    """Records between the cursor and the high watermark; None: the partition is not there."""
    partition = core.storage.log.partitions.get((place.topic_id, place.partition))
    if partition is None:
        return None
    return max(0, partition.high_watermark - max(cursor.offset, partition.log_start))


def _cursors(core: Broker, group_id: str) -> dict[Place, Cursor]:
    try:
        return core.cursors.fetch_all(group_id)
    except StoreUnavailable:
        return {}
