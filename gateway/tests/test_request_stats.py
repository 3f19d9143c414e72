"""What is counted of requests: API, time, and the first error of the answer."""

from __future__ import annotations

from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.error_codes import ErrorCode
from ister.gateway.protocol.messages import delete_topics, metadata
from ister.gateway.request_stats import STRUCTS_MAX, first_error
from ister.gateway.tests.wire_kit import Part, Running, Wire
from ister.wal.tests.batches import make_batch


def counted(running: Running, key: ApiKey) -> tuple[int, dict[int, int]]:
    stats = running.on_loop(lambda broker: broker.context.requests.by_api[key])
    return stats.seconds.count, dict(stats.errors)


def test_every_request_is_counted_once_under_its_first_error(running: Running, wire: Wire) -> None:
    """Whether its answer is of the generated codec or of the hand-tuned one."""
    wire.create("t")
    wire.produce("t", make_batch([b"a"]))
    wire.produce("nothing", make_batch([b"a"]))
    wire.fetch([("t", [Part(0)])])
    wire.fetch([("t", [Part(0, offset=9)])])
    wire.metadata("t")
    unknown, beyond = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OFFSET_OUT_OF_RANGE
    assert counted(running, ApiKey.CREATE_TOPICS) == (1, {})
    assert counted(running, ApiKey.PRODUCE) == (2, {unknown: 1})
    assert counted(running, ApiKey.FETCH) == (2, {beyond: 1})
    assert counted(running, ApiKey.METADATA) == (1, {})


def test_a_nested_error_is_found() -> None:
    """Most control answers carry their errors per topic."""
    answer = delete_topics.DeleteTopicsResponse(
        responses=(delete_topics.DeletableTopicResult(name="t", error_code=3),)
    )
    assert first_error(answer) == 3


def test_a_large_answer_is_not_walked() -> None:
    """An error far inside is not worth the time: the search ends at its limit."""
    fine = metadata.MetadataResponseTopic(name="t", partitions=())
    bad = metadata.MetadataResponseTopic(name="u", partitions=(), error_code=3)
    large = metadata.MetadataResponse(brokers=(), topics=(bad, *[fine] * STRUCTS_MAX * 3))
    assert first_error(large) == 0
