"""Options of `format("ister")`, without Spark."""

from __future__ import annotations

import pytest

from ister.spark.options import EARLIEST, LATEST, BadOption, Position, parse

BASE = {"path": "file:///bucket", "subscribe": "a, b"}


def test_defaults() -> None:
    """A batch is everything, a stream begins at the end: as the Kafka source has it."""
    batch, stream = parse(BASE), parse(BASE, streaming=True)
    assert batch.topics == ("a", "b")
    assert (batch.start, batch.end) == (Position(EARLIEST), Position(LATEST))
    assert stream.start == Position(LATEST)
    assert batch.fail_on_data_loss
    assert not batch.headers


def test_names_in_any_case_and_options_of_the_connection() -> None:
    """One set of options serves both sources."""
    given = {"PATH": "/b", "SubScribe": "a", "kafka.bootstrap.servers": "x:1", "minPartitions": "4"}
    assert parse(given).url == "file:///b"


def test_a_time_comes_before_times_before_offsets() -> None:
    """The precedence of the Kafka source."""
    offsets = {"startingOffsets": '{"a":{"0":5}}'}
    times = {"startingOffsetsByTimestamp": '{"a":{"0":7}}'}
    time = {"startingTimestamp": "9"}
    assert parse({**BASE, **offsets}).start == Position(offsets={"a": {0: 5}})
    assert parse({**BASE, **offsets, **times}).start == Position(times={"a": {0: 7}})
    assert parse({**BASE, **offsets, **times, **time}).start == Position(times=9)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribe": "a"}, "path"),
        ({"path": "/b"}, "exactly one"),
        ({**BASE, "assign": '{"a":[0]}'}, "exactly one"),
        ({**BASE, "startingoffset": "earliest"}, "not known"),
        ({**BASE, "startingOffsets": "latest"}, "batch"),
        ({**BASE, "endingOffsets": "earliest"}, "batch"),
        ({**BASE, "startingOffsets": "[1]"}, "object"),
        ({**BASE, "startingOffsets": '{"a":{"x":1}}'}, "wants"),
        ({**BASE, "startingOffsets": '{"a":{"0":-3}}'}, "from -2"),
        ({**BASE, "maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger"),
        ({**BASE, "includeHeaders": "yes"}, "true or false"),
        ({"path": "/b", "subscribePattern": "("}, "subscribePattern"),
        ({"path": "/b", "assign": '{"a":["0"]}'}, "assign"),
        ({**BASE, "startingOffsetsByTimestampStrategy": "nope"}, "Strategy"),
    ],
)
def test_what_cannot_be_is_said(options: dict[str, str], words: str) -> None:
    with pytest.raises(BadOption, match=words):
        parse(options)


def test_a_stream_ends_only_at_offsets() -> None:
    """Our addition; times make no sense for what is still to come."""
    end = {**BASE, "endingOffsets": '{"a":{"0":5}}'}
    assert parse(end, streaming=True).end == Position(offsets={"a": {0: 5}})
    with pytest.raises(BadOption, match="stream"):
        parse({**BASE, "endingTimestamp": "5"}, streaming=True)
