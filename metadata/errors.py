"""What can go wrong in metadata; a class exists where a caller acts differently.

No Kafka numbers here: `gateway/errors.py` has the one table.
"""

from __future__ import annotations


class MetadataError(Exception):
    """Base of all errors that metadata raises on purpose."""


# -- transactions --------------------------------------------------------------


class Conflict(MetadataError):
    """A key is not as the transaction expected; nothing was changed. Look again and plan anew."""

    def __init__(self, key: str, expected: int, found: int) -> None:
        super().__init__(f"{key!r}: expected version {expected}, found {found}")
        self.key = key
        self.expected = expected
        self.found = found


class StoreUnavailable(MetadataError):
    """No answer from the store. The transaction may have been applied or not: look before
    planning anew."""


class StoreOverloaded(StoreUnavailable):
    """Too much is waiting already; this transaction was not tried and may be sent again."""


class StoreFailed(StoreUnavailable):
    """The disk failed under the store: no commit until a restart. Reads may go on."""


class StoreDamaged(MetadataError):
    """What is stored is not what was written. The message says where and what to do (exit 3)."""


class NewerFormat(MetadataError):
    """Written by a newer version of the product, which is needed to open it (exit 3)."""


class StoreNotEmpty(MetadataError):
    """A snapshot is only restored into an empty store."""


# -- topics --------------------------------------------------------------------


class TopicExists(MetadataError):
    """A topic has that name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"topic {name!r} exists")
        self.name = name


class UnknownTopic(MetadataError):
    """No topic (or tombstone) has that id."""

    def __init__(self, topic_id: bytes) -> None:
        super().__init__(f"no topic with the id {topic_id.hex()}")
        self.topic_id = topic_id


class InvalidPartitions(MetadataError):
    """A topic has at least one partition, and their number only grows."""
