"""Produce, versions 3-13: append, and answer when that is as safe as was asked.

acks=-1 answers when the batch is durable (topic setting `ister.durability=os`: written),
acks=1 when it is written, acks=0 never; an error under acks=0 ends the connection, as
there is no other way to tell. Requests of one connection overlap: appends happen in the
order of arrival, answers leave in that order too. A batch that was refused because there is
no room takes with it what the same connection has sent behind it (`refused.py`). Records
of a compacted topic must have keys (`key_checks.py`). Versions 0-2 are advertised and not
served, because librdkafka before 2.12 does not compress when told of a minimum of 3
(KAFKA-18659); such a request ends its connection, as it does on Kafka 4.

Versions: 7 zstd, 13 topics by id. Transactions are not served: a transactional id is
refused for good. The current leader (10) is never told: there is one node.
"""

from __future__ import annotations

from functools import partial

from ister.gateway.errors import code_of, words_of
from ister.gateway.handlers.api import Api, Call
from ister.gateway.protocol import produce as codec
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.error_codes import ErrorCode
from ister.gateway.protocol.hot import Topic
from ister.gateway.protocol.produce import (
    PartitionResult,
    ProduceRequest,
    write_one,
    write_response,
)
from ister.wal.batch import HEADER_SIZE
from ister.wal.errors import (
    BatchTooLarge,
    CorruptBatch,
    InvalidBatch,
    LogError,
    ReadOnlyTopic,
    StorageError,
    StorageFull,
    UnknownPartition,
    UnsupportedCodec,
)
from ister.wal.fs import Buffer
from ister.wal.journal import Waiter
from ister.wal.log import Appended, Moment
from ister.wal.partition import Partition

_ATTRIBUTES_LOW_BYTE = 22
_LENGTH, _MAGIC, _MAGIC_2 = 8, 16, 2
_TRANSACTIONAL = 0x10
_CODEC_MASK, _ZSTD = 0x07, 4
_ZSTD_FROM = 7
_UNKNOWN_NAME = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_UNKNOWN_ID = int(ErrorCode.UNKNOWN_TOPIC_ID)
_EMPTY = memoryview(b"")
_Topics = list[tuple[Topic, list[tuple[int, memoryview | None]]]]


def handle(call: Call, request: ProduceRequest) -> None:
    acks = request.acks
    topics = request.topics
    if acks == 0:
        _Silent(call).append(topics)
        return
    call.owe()
    if acks not in (-1, 1):
        _refuse_acks(call, request)
    elif request.transactional_id is not None:
        _refuse_all(
            call,
            request,
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "transactions are not supported",
        )
    elif len(topics) == 1 and len(topics[0][1]) == 1:
        topic, ((index, data),) = topics[0]
        partition = _find(call, topic, index)
        if partition is None:
            code = _unknown(call, topic)
            call.send((write_one(call.version, topic, index, code, -1, -1, -1),), code)
            return
        one, batch = _One(call, topic, partition), data or _EMPTY
        moment = _moment(call, partition, acks)
        if partition.settings.compact:
            _when_keyed(call, partition, batch, partial(one.append, batch, moment))
        else:
            one.append(batch, moment)
    else:
        _Many(call, topics).append(acks)


def _find(call: Call, topic: Topic, index: int) -> Partition | None:
    context = call.context
    if isinstance(topic, str):
        known = context.catalog.topics_by_name.get(topic)
        if known is None:
            return None
        return context.log.partitions.get((known.id, index))
    return context.log.partitions.get((topic, index))


def _unknown(call: Call, topic: Topic) -> int:
    if isinstance(topic, bytes) and topic not in call.context.catalog.topics_by_id:
        return _UNKNOWN_ID
    return _UNKNOWN_NAME


def _append(
    call: Call, partition: Partition, data: Buffer, moment: Moment, done: Waiter
) -> Appended:
    """Append, or LogError: also for what comes behind a batch that had no room."""
    if partition.topic_id in call.context.internal:
        raise ReadOnlyTopic("only the broker itself writes to this topic")
    if call.version < _ZSTD_FROM and _codec(data) == _ZSTD:
        raise UnsupportedCodec(f"zstd needs Produce version {_ZSTD_FROM}")
    refused = call.client.refused
    if refused.first and refused.is_behind(partition, data):
        raise StorageFull("a batch before this one was refused: send that one first")
    try:
        return call.context.log.append(partition, data, moment, done)
    except StorageFull:
        refused.note(partition, data)
        raise


def _codec(data: Buffer) -> int:
    if len(data) <= _ATTRIBUTES_LOW_BYTE:
        return 0
    return data[_ATTRIBUTES_LOW_BYTE] & _CODEC_MASK


def _when_keyed(call: Call, partition: Partition, data: Buffer, then: Waiter) -> None:
    """At once, unless the topic wants keys and that takes time to see."""
    if partition.settings.compact:
        call.context.key_checks.check(partition, data, then)
    else:
        then(None)


def _moment(call: Call, partition: Partition, acks: int) -> Moment:
    if acks == 1:
        return Moment.WRITTEN
    settings = call.context.settings
    if partition.settings.configs.get("ister.durability", settings.durability) == "os":
        return Moment.WRITTEN
    return Moment.DURABLE


class _Silent:
    """acks=0: over when everything is appended; an error ends the connection."""

    __slots__ = ("_call", "_left")

    def __init__(self, call: Call) -> None:
        self._call = call
        self._left = 1

    def append(self, topics: _Topics) -> None:
        for topic, partitions in topics:
            for index, data in partitions:
                self._append(topic, index, data or _EMPTY)
        self._settled(None)

    def _append(self, topic: Topic, index: int, data: Buffer) -> None:
        call = self._call
        if call.over:
            return
        partition = _find(call, topic, index)
        self._left += 1
        if partition is None:
            self._settled(UnknownPartition(f"no partition {index} of {topic!r}"))
            return
        known = partition

        def keyed(error: LogError | None) -> None:
            if error is None:
                try:
                    _append(call, known, data, Moment.APPENDED, _ignore)
                except LogError as refusal:
                    error = refusal
            self._settled(error)

        _when_keyed(call, partition, data, keyed)

    def _settled(self, error: LogError | None) -> None:
        call = self._call
        self._left -= 1
        if call.over:
            return
        if error is not None:
            call.no_reply()
            call.client.drop(f"acks=0: {error}")
        elif self._left == 0:
            call.no_reply()


def _ignore(_: LogError | None) -> None:
    pass


class _One:
    """The usual request: one batch."""

    __slots__ = ("_appended", "_call", "_early", "_partition", "_topic")

    def __init__(self, call: Call, topic: Topic, partition: Partition) -> None:
        self._call = call
        self._topic = topic
        self._partition = partition
        self._appended: Appended | None = None
        self._early = False

    def append(self, data: Buffer, moment: Moment, error: LogError | None = None) -> None:
        if error is not None:  # what was looked at first is not as it must be
            self._refuse(error, data)
            return
        try:
            self._appended = _append(self._call, self._partition, data, moment, self._done)
        except LogError as refusal:
            self._refuse(refusal, data)
            return
        if self._early:
            self._done(None)

    def _done(self, error: LogError | None) -> None:
        appended, partition, call = self._appended, self._partition, self._call
        if error is not None:
            self._refuse(error)
        elif appended is None:  # told before `append` has returned: it was there already
            self._early = True
        else:
            body = write_one(
                call.version,
                self._topic,
                partition.index,
                0,
                appended.base_offset,
                appended.append_time_ms,
                partition.log_start,
            )
            call.send((body,))

    def _refuse(self, error: LogError, data: Buffer = _EMPTY) -> None:
        result = _refusal(error, self._partition, data)
        body = write_response(self._call.version, [(self._topic, [result])])
        self._call.send((body,), result.error_code)


class _Many:
    """Several partitions: answered when the last of them is settled."""

    __slots__ = ("_call", "_left", "_results", "_topics")

    def __init__(self, call: Call, topics: _Topics) -> None:
        self._call = call
        self._topics = topics
        self._left = 1
        self._results: list[list[PartitionResult]] = [
            [PartitionResult(index) for index, _ in partitions] for _, partitions in topics
        ]

    def append(self, acks: int) -> None:
        for number, (topic, partitions) in enumerate(self._topics):
            results = self._results[number]
            for place, (index, data) in enumerate(partitions):
                self._append(topic, index, data, acks, results, place)
        self._settled()

    def _append(
        self,
        topic: Topic,
        index: int,
        data: memoryview | None,
        acks: int,
        results: list[PartitionResult],
        place: int,
    ) -> None:
        call = self._call
        partition = _find(call, topic, index)
        if partition is None:
            results[place] = PartitionResult(index, _unknown(call, topic))
            return

        known, batch, moment = partition, data or _EMPTY, _moment(call, partition, acks)

        def done(error: LogError | None) -> None:
            if error is not None:
                results[place] = _refusal(error, known, batch)
            self._settled()

        def keyed(error: LogError | None) -> None:
            if error is not None:
                done(error)
                return
            self._left += 1  # while it is being appended, `done` may be called
            try:
                appended = _append(call, known, batch, moment, done)
            except LogError as refusal:
                self._left -= 1
                done(refusal)
                return
            if not results[place].error_code:
                results[place] = PartitionResult(
                    index, 0, appended.base_offset, appended.append_time_ms, known.log_start
                )
            self._settled()

        self._left += 1
        _when_keyed(call, partition, batch, keyed)

    def _settled(self) -> None:
        self._left -= 1
        if self._left == 0:
            answer = [
                (topic, results)
                for (topic, _), results in zip(self._topics, self._results, strict=True)
            ]
            errors = (result.error_code for results in self._results for result in results)
            first = next(filter(None, errors), 0)
            self._call.send((write_response(self._call.version, answer),), first)


# Beside these Kafka tells neither the log start nor words.
_BARE = (BatchTooLarge, CorruptBatch, StorageError)


def _refusal(error: LogError, partition: Partition, data: Buffer) -> PartitionResult:
    """As Kafka has it: what it sees before the log is reached tells less than what the log says."""
    index, code, words = partition.index, code_of(error), words_of(error)
    if isinstance(error, InvalidBatch | CorruptBatch):
        if not _is_one_batch(data):
            return PartitionResult(index, int(ErrorCode.INVALID_RECORD), error_message=words)
        if data[_ATTRIBUTES_LOW_BYTE] & _TRANSACTIONAL:
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            return PartitionResult(index, int(code), error_message=words)
    if isinstance(error, _BARE):
        return PartitionResult(index, int(code))
    records = error.records if isinstance(error, InvalidBatch) else ()
    return PartitionResult(
        index,
        int(code),
        log_start_offset=partition.log_start,
        record_errors=[(each, words) for each in records],
        error_message=words,
    )


def _is_one_batch(data: Buffer) -> bool:
    """Whether it has the outline of one batch of today, whatever else is wrong with it."""
    return (
        len(data) >= HEADER_SIZE
        and data[_MAGIC] == _MAGIC_2
        and int.from_bytes(data[_LENGTH : _LENGTH + 4]) + _LENGTH + 4 == len(data)
    )


def _refuse_acks(call: Call, request: ProduceRequest) -> None:
    """What Kafka finds wrong before it looks at the acks comes first."""
    answer = []
    for topic, partitions in request.topics:
        results = []
        for index, data in partitions:
            code = int(ErrorCode.INVALID_REQUIRED_ACKS)
            if _find(call, topic, index) is None:
                code = _unknown(call, topic)
            elif not _is_one_batch(data or _EMPTY):
                code = int(ErrorCode.INVALID_RECORD)
            results.append(PartitionResult(index, code, error_message="acks must be -1, 0 or 1"))
        answer.append((topic, results))
    body = write_response(call.version, answer)
    call.send((body,), int(ErrorCode.INVALID_REQUIRED_ACKS))


def _refuse_all(call: Call, request: ProduceRequest, code: ErrorCode, words: str) -> None:
    answer = [
        (
            topic,
            [PartitionResult(index, int(code), error_message=words) for index, _ in partitions],
        )
        for topic, partitions in request.topics
    ]
    call.send((write_response(call.version, answer),), int(code))


API = Api(
    key=ApiKey.PRODUCE,
    versions=(codec.VERSION_MIN, codec.VERSION_MAX),
    advertised_from=0,
    handle=handle,
    read=codec.read_request,
    overlaps=True,
)
