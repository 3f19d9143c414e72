"""What options mean in a bucket, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ister.archive import DataLoss
from ister.archive.tests.buckets import TIME, Bucket
from ister.archive.tests.test_scan import batch
from ister.spark.offsets import Partition, from_json, share, to_json
from ister.spark.options import BadOption, parse
from ister.spark.source import ArchiveReader, ArchiveStreamReader, ArchiveTask


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    """orders/0: offsets 0..19 in two segments, orders/1: 0..4; a second a record from TIME on."""
    made = Bucket(tmp_path / "bucket")
    made.add([batch(0, 10)])
    made.add([batch(10, 10)])
    made.add([batch(0, 5)], partition=1)
    return made.publish()


def planned(bucket: Bucket, **options: str) -> dict[int, tuple[int, int]]:
    """First and last offset of what would be read, by partition."""
    base = {"path": bucket.url}
    if not {"assign", "subscribePattern"} & options.keys():
        base["subscribe"] = "orders"
    found: dict[int, tuple[int, int]] = {}
    for task in ArchiveReader(parse({**base, **options})).partitions():
        assert isinstance(task, ArchiveTask)
        number = task.piece.manifest.partition
        first = found.get(number, (task.piece.start, 0))[0]
        found[number] = (first, task.piece.end)
    return found


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {0: (0, 20), 1: (0, 5)}),
        ({"assign": '{"orders":[1]}'}, {1: (0, 5)}),
        ({"subscribePattern": "ord"}, {0: (0, 20), 1: (0, 5)}),
        ({"startingOffsets": '{"orders":{"0":3,"1":-2}}'}, {0: (3, 20), 1: (0, 5)}),
        ({"startingOffsets": '{"orders":{"0":-1,"1":4}}'}, {1: (4, 5)}),
        ({"endingOffsets": '{"orders":{"0":12,"1":-1}}'}, {0: (0, 12), 1: (0, 5)}),
        ({"endingTimestamp": f"{TIME + 2000}"}, {0: (0, 2), 1: (0, 2)}),
        ({"endingTimestamp": f"{TIME + 10**9}"}, {0: (0, 20), 1: (0, 5)}),
        ({"startingTimestamp": f"{TIME + 3001}"}, {0: (4, 20), 1: (4, 5)}),
        (
            {"startingOffsetsByTimestamp": f'{{"orders":{{"0":{TIME + 9000},"1":{TIME}}}}}'},
            {0: (9, 20), 1: (0, 5)},
        ),
        ({"bytesPerTask": "1"}, {0: (0, 20), 1: (0, 5)}),
    ],
)
def test_ranges(
    bucket: Bucket, options: dict[str, str], expected: dict[int, tuple[int, int]]
) -> None:
    assert planned(bucket, **options) == expected


def test_no_record_of_that_time(bucket: Bucket) -> None:
    """An error by default, the end by option."""
    late = {"startingTimestamp": f"{TIME + 10_000}"}
    with pytest.raises(BadOption, match="no record of orders/1"):
        planned(bucket, **late)
    assert planned(bucket, **late, startingOffsetsByTimestampStrategy="latest") == {0: (10, 20)}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribePattern": "x", "subscribe": "nope"}, "exactly one"),
        ({"assign": '{"nope":[0]}'}, "nope is not in"),
        ({"startingOffsets": '{"orders":{"0":3}}'}, "orders/1 is missing"),
        ({"startingOffsets": '{"orders":{"0":3,"1":0,"2":0}}'}, "orders/2 is not there"),
    ],
)
def test_what_cannot_be_is_said(bucket: Bucket, options: dict[str, str], words: str) -> None:
    with pytest.raises(BadOption, match=words):
        planned(bucket, **options)


def test_loss_is_met_while_planning(bucket: Bucket) -> None:
    """Below the log start, or beyond what was handed over: raised, or cut off by option."""
    beyond = {"endingOffsets": '{"orders":{"0":25,"1":5}}'}
    with pytest.raises(DataLoss, match="handed over"):
        planned(bucket, **beyond)
    assert planned(bucket, **beyond, failOnDataLoss="false")[0] == (0, 20)
    bucket.log_start[0] = 7
    bucket.publish()
    below = {"startingOffsets": '{"orders":{"0":3,"1":0}}'}
    with pytest.raises(DataLoss, match="retention"):
        planned(bucket, **below)
    assert planned(bucket, **below, failOnDataLoss="false")[0] == (7, 20)


def test_a_stream_sees_what_is_new(bucket: Bucket) -> None:
    """New segments and new partitions come with the next trigger; an end by option holds."""
    options: dict[str, Any] = {"path": bucket.url, "subscribe": "orders"}
    reader = ArchiveStreamReader(parse(options, streaming=True))
    start = reader.initialOffset()
    assert start == {"orders": {"0": 20, "1": 5}}
    bucket.add([batch(20, 5)])
    bucket.add([batch(0, 3)], partition=2)
    bucket.publish()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert end == {"orders": {"0": 25, "1": 5, "2": 3}}
    tasks = [task for task in reader.partitions(start, end) if isinstance(task, ArchiveTask)]
    assert [(t.piece.manifest.partition, t.piece.start, t.piece.end) for t in tasks] == [
        (0, 20, 25),
        (2, 0, 3),
    ]
    stop = '{"orders":{"0":22,"1":5,"2":1}}'
    ended = ArchiveStreamReader(parse({**options, "endingOffsets": stop}, streaming=True))
    assert ended.latestOffset(start, ended.getDefaultReadLimit()) == {
        "orders": {"0": 22, "1": 5, "2": 1}
    }


places = st.builds(Partition, st.sampled_from("ab"), st.integers(0, 3))


@given(
    st.dictionaries(places, st.tuples(st.integers(0, 50), st.integers(0, 50))), st.integers(1, 99)
)
def test_shares(backlog: dict[Partition, tuple[int, int]], limit: int) -> None:
    """Never beyond the end, never back, progress for everyone, and about the limit."""
    start = {place: first for place, (first, _) in backlog.items()}
    end = {place: first + more for place, (first, more) in backlog.items()}
    got = share(start, end, limit)
    assert from_json(to_json(got)) == got
    taken = {place: got[place] - start[place] for place in got}
    for place in end:
        assert start[place] <= got[place] <= end[place]
        assert taken[place] > 0 or start[place] == end[place]
    total = sum(end[place] - start[place] for place in end)
    assert sum(taken.values()) <= max(limit, 0) + len(end)
    if total <= limit:
        assert got == end
