"""Which topics a member of the protocol type "consumer" subscribes to.

The subscription is the client's own; Kafka reads its first version, which begins
all the others: int16 version, then an array of topic names. What cannot be read is
None, never an error: other clients may say what they like under that name.
"""

from __future__ import annotations

import struct

CONSUMER = "consumer"  # the protocol type

_HEAD = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """None if it is not a subscription."""
    if len(metadata) < _HEAD.size:
        return None
    version, count = _HEAD.unpack_from(metadata)
    # Every name takes two bytes at least: a count beyond that is a lie.
    if version < 0 or not 0 <= count <= (len(metadata) - _HEAD.size) // _LENGTH.size:
        return None
    topics = []
    position = _HEAD.size
    for _ in range(count):
        if position + _LENGTH.size > len(metadata):
            return None
        (length,) = _LENGTH.unpack_from(metadata, position)
        position += _LENGTH.size
        if length < 0 or position + length > len(metadata):
            return None
        try:
            topics.append(metadata[position : position + length].decode())
        except UnicodeDecodeError:
            return None
        position += length
    return frozenset(topics)
