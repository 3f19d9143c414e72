"""What can go wrong in the log; a class exists where a caller acts differently.

No Kafka numbers here: `gateway/errors.py` has the one table.
"""

from __future__ import annotations

from collections.abc import Sequence


class LogError(Exception):
    """Base of all errors the log raises on purpose."""


# -- the batch that was sent ---------------------------------------------------


class CorruptBatch(LogError):
    """Length, magic or checksum do not hold: the sender must send it again."""


class InvalidBatch(LogError):
    """Well-formed, but not a batch that a client may append (counts, control, attributes)."""

    def __init__(self, message: str = "", records: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.records = records  # the ones that are wrong, counted from 0, if only those are


class BatchTooLarge(LogError):
    """Above the size limit of the topic (or of a journal file): split it."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"batch of {size} bytes is larger than the limit of {limit}")
        self.size = size
        self.limit = limit


class InvalidTimestamp(LogError):
    """The timestamp is outside what the topic allows."""


class UnsupportedCodec(LogError):
    """The compression of the batch is not known."""


# -- producers -----------------------------------------------------------------


class OutOfOrderSequence(LogError):
    """A batch of this producer is missing before this one."""


class StaleProducerEpoch(LogError):
    """A newer instance of this producer exists: this one must stop."""


# -- places --------------------------------------------------------------------


class UnknownPartition(LogError):
    """No such topic id or partition (any more)."""


class ReadOnlyTopic(LogError):
    """Only the broker itself writes there."""


class OffsetOutOfRange(LogError):
    """Below the log start or above the log end: the reader must choose a new position."""

    def __init__(self, offset: int, log_start: int, log_end: int) -> None:
        super().__init__(f"offset {offset} is outside {log_start}..{log_end}")
        self.offset = offset
        self.log_start = log_start
        self.log_end = log_end


# -- storage -------------------------------------------------------------------


class StorageError(LogError):
    """The data exists but cannot be reached now: try again later."""


class StorageFull(StorageError):
    """No room for an append; it goes on by itself when there is."""


class JournalFailed(StorageError):
    """The disk failed under the journal: no append until a restart. Durable reads go on."""


class Damaged(LogError):
    """Stored bytes are not what was written. Says where and what; never skipped in silence."""

    def __init__(self, where: str, position: int, what: str) -> None:
        super().__init__(f"{where} at {position}: {what}")
        self.where = where
        self.position = position
        self.what = what


class Contradiction(LogError):
    """The stores disagree; opening would lose or mix data. The message says what to do (exit 3)."""


class NewerFormat(Contradiction):
    """Written by a newer version."""


class InUse(LogError):
    """Another process has this data directory (exit 4)."""

    def __init__(self, data: str, lock: str) -> None:
        super().__init__(f"{data} is in use by another process")
        self.lock = lock  # the file that it has locked


# -- bucket --------------------------------------------------------------------


class Fenced(LogError):
    """A newer run owns the bucket: this one must stop handing off."""


class Closed(LogError):
    """The log is shut."""
