"""The one table from exception class to Kafka's error code.

Whoever raises knows no numbers; whoever answers asks here. A class without a row
of its own takes that of its nearest base. What has no row at all becomes
UNKNOWN_SERVER_ERROR, and the caller logs it with its traceback: a client must never
get -1 for something that passes by itself. A test walks all classes.
"""

from __future__ import annotations

from typing import Final

from ister.dispatch import errors as dispatch
from ister.gateway.coordinator import errors as groups
from ister.gateway.protocol.error_codes import ErrorCode
from ister.metadata import errors as metadata
from ister.wal import errors as wal


class RequestError(Exception):
    """What a handler itself says no to: a code of Kafka's, and words for the client.

    No words where Kafka has none.
    """

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message)
        self.code = code


# Classes that end the process or concern only the background: a client never meets them, and
# if one did it should try again.
_TABLE: Final[dict[type[BaseException], ErrorCode]] = {
    # -- the log
    wal.LogError: ErrorCode.KAFKA_STORAGE_ERROR,
    wal.CorruptBatch: ErrorCode.CORRUPT_MESSAGE,
    wal.InvalidBatch: ErrorCode.INVALID_RECORD,
    wal.BatchTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    wal.InvalidTimestamp: ErrorCode.INVALID_TIMESTAMP,
    wal.UnsupportedCodec: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    wal.OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    wal.StaleProducerEpoch: ErrorCode.INVALID_PRODUCER_EPOCH,
    wal.UnknownPartition: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    wal.ReadOnlyTopic: ErrorCode.INVALID_TOPIC_EXCEPTION,
    wal.OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    wal.StorageError: ErrorCode.KAFKA_STORAGE_ERROR,
    wal.StorageFull: ErrorCode.KAFKA_STORAGE_ERROR,
    wal.JournalFailed: ErrorCode.KAFKA_STORAGE_ERROR,
    wal.Damaged: ErrorCode.KAFKA_STORAGE_ERROR,
    wal.Contradiction: ErrorCode.KAFKA_STORAGE_ERROR,
    wal.NewerFormat: ErrorCode.KAFKA_STORAGE_ERROR,
    wal.InUse: ErrorCode.KAFKA_STORAGE_ERROR,
    wal.Fenced: ErrorCode.KAFKA_STORAGE_ERROR,
    wal.Closed: ErrorCode.NOT_LEADER_OR_FOLLOWER,  # the broker stops: look for the leader again
    # -- metadata
    metadata.MetadataError: ErrorCode.KAFKA_STORAGE_ERROR,
    metadata.Conflict: ErrorCode.REQUEST_TIMED_OUT,  # planned anew and lost again
    metadata.StoreUnavailable: ErrorCode.REQUEST_TIMED_OUT,
    metadata.StoreOverloaded: ErrorCode.REQUEST_TIMED_OUT,
    metadata.StoreFailed: ErrorCode.KAFKA_STORAGE_ERROR,
    metadata.StoreDamaged: ErrorCode.KAFKA_STORAGE_ERROR,
    metadata.NewerFormat: ErrorCode.KAFKA_STORAGE_ERROR,
    metadata.StoreNotEmpty: ErrorCode.KAFKA_STORAGE_ERROR,
    metadata.TopicExists: ErrorCode.TOPIC_ALREADY_EXISTS,
    metadata.UnknownTopic: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    metadata.InvalidPartitions: ErrorCode.INVALID_PARTITIONS,
    # -- delivery
    dispatch.DispatchError: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    dispatch.TooManyCursors: ErrorCode.POLICY_VIOLATION,
    # -- groups
    groups.CoordinatorError: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    groups.InvalidGroupId: ErrorCode.INVALID_GROUP_ID,
    groups.InvalidSessionTimeout: ErrorCode.INVALID_SESSION_TIMEOUT,
    groups.UnknownMember: ErrorCode.UNKNOWN_MEMBER_ID,
    groups.MemberIdRequired: ErrorCode.MEMBER_ID_REQUIRED,
    groups.FencedInstance: ErrorCode.FENCED_INSTANCE_ID,
    groups.IllegalGeneration: ErrorCode.ILLEGAL_GENERATION,
    groups.InconsistentProtocol: ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    groups.RebalanceInProgress: ErrorCode.REBALANCE_IN_PROGRESS,
    groups.GroupFull: ErrorCode.GROUP_MAX_SIZE_REACHED,
    groups.TooManyGroups: ErrorCode.POLICY_VIOLATION,
    groups.GroupNotFound: ErrorCode.GROUP_ID_NOT_FOUND,
    groups.GroupNotEmpty: ErrorCode.NON_EMPTY_GROUP,
    groups.SubscribedToTopic: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    groups.CursorMetadataTooLarge: ErrorCode.OFFSET_METADATA_TOO_LARGE,
    groups.CoordinatorUnavailable: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


def code_of(error: BaseException | None) -> ErrorCode:
    """The number for a client; NONE for no error."""
    if error is None:
        return ErrorCode.NONE
    if isinstance(error, RequestError):
        return error.code
    for kind in type(error).__mro__:
        found = _TABLE.get(kind)
        if found is not None:
            return found
    return ErrorCode.UNKNOWN_SERVER_ERROR


def has_row(kind: type[BaseException]) -> bool:
    """Whether the class stands in the table itself."""
    return kind in _TABLE


def words_of(error: BaseException | None) -> str | None:
    """What is wrong, for the fields that carry a message."""
    if error is None or (isinstance(error, RequestError) and not str(error)):
        return None
    return str(error) or type(error).__name__
