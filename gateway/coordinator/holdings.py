"""What the members of a group hold, read from their assignments.

An assignment of the protocol type "consumer" begins, in every version, with int16 version
and an array of (topic name, array of int32 partitions). What cannot be read holds nothing,
and is never an error: other clients may say what they like under that name.
"""

from __future__ import annotations

import struct
from functools import lru_cache

from ister.dispatch.attribution import Holding
from ister.gateway.coordinator.group import Group
from ister.gateway.coordinator.subscription import CONSUMER

_HEAD = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")
_COUNT = struct.Struct(">i")


def holdings(group: Group | None) -> list[Holding]:
    """Of the members that live; nothing of a group that is not one of consumers."""
    if group is None or group.protocol_type != CONSUMER:
        return []
    return [
        Holding(
            member.id,
            member.client_id,
            member.client_host.removeprefix("/"),  # as listings show it
            assigned(member.assignment),
        )
        for member in group.members
        if member.assignment
    ]


@lru_cache(maxsize=4096)  # whenever one member comes or goes, all of its group are asked
def assigned(assignment: bytes) -> tuple[tuple[str, int], ...]:
    """(topic, partition) of an assignment; empty if it is not one."""
    try:
        return tuple(_read(assignment))
    except (struct.error, UnicodeDecodeError):
        return ()


def _read(data: bytes) -> list[tuple[str, int]]:
    _, topics = _HEAD.unpack_from(data)
    position = _HEAD.size
    found: list[tuple[str, int]] = []
    for _ in range(topics):
        (length,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size
        if length < 0 or position + length > len(data):
            return []
        topic = data[position : position + length].decode()
        position += length
        (count,) = _COUNT.unpack_from(data, position)
        position += _COUNT.size
        # Every number takes four bytes: a count beyond that is a lie.
        if not 0 <= count <= (len(data) - position) // 4:
            return []
        found += [(topic, each) for each in struct.unpack_from(f">{count}i", data, position)]
        position += 4 * count
    return found
