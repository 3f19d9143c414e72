"""The decoder by vectors against the careful one, record by record."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ister.archive.columns import GROUP_BYTES, arrow_batches, schema
from ister.wal.errors import CorruptBatch
from ister.wal.records import Record, records
from ister.wal.tests.batches import make_batch, seal

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
content = st.none() | st.binary(max_size=200) | st.just(b"x" * 9000)
one = st.tuples(
    content,
    content,
    st.lists(st.tuples(st.binary(max_size=5), content), max_size=3),
    st.integers(-(2**40), 2**41),
)


def rows(batches: list[bytes], *, headers: bool = True) -> Any:
    found = list(arrow_batches(batches, "t", 3, headers=headers))
    for batch in found:
        batch.validate(full=True)
    return pa.Table.from_batches(found, schema(headers)).to_pylist()


def expected(record: Record) -> dict[str, object]:
    headers = [
        {"key": name.decode(errors="replace"), "value": value} for name, value in record.headers
    ]
    return {
        "key": record.key,
        "value": record.value,
        "topic": "t",
        "partition": 3,
        "offset": record.offset,
        "timestamp": EPOCH + timedelta(milliseconds=record.timestamp),
        "timestampType": 0,
        "headers": headers or None,
    }


@given(st.lists(st.lists(one, min_size=1, max_size=20), min_size=1, max_size=5), st.integers(0, 4))
def test_agrees_with_the_careful_reader(batches: list[list[tuple[Any, ...]]], codec: int) -> None:
    """Every column of every record, for any keys, values, headers, times and codecs."""
    made, offset = [], 0
    for batch in batches:
        keys, values, headers, times = zip(*batch, strict=True)
        base = make_batch(
            values, keys=keys, headers=headers, timestamps=times, base_offset=offset, codec=codec
        )
        made.append(base)
        offset += len(batch)
    assert rows(made) == [expected(record) for batch in made for record in records(batch)]


@given(st.binary(min_size=7, max_size=80), st.integers(1, 4))
def test_agrees_about_nonsense(body: bytes, count: int) -> None:
    """A body of any bytes under a right checksum: both readers take it or both refuse it."""
    _agree(seal(body, count))


@given(st.data())
def test_agrees_about_a_changed_byte(data: st.DataObject) -> None:
    """Bodies that are nearly right: one byte of a good one changed."""
    good = bytearray(make_batch([b"a", b"bc" * 40, None], headers=[[(b"h", b"v")], [], []])[61:])
    good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    _agree(seal(bytes(good), 3))


def _agree(batch: bytes) -> None:
    try:
        careful = [expected(record) for record in records(batch)]
    except CorruptBatch as error:
        with pytest.raises(CorruptBatch, match=re.escape(str(error))):
            rows([batch])
    except OverflowError:  # a time that datetime cannot say
        return
    else:
        assert rows([batch]) == careful


def test_log_append_time() -> None:
    """All records of such a batch have its time, and say so."""
    batch = make_batch([b"a", b"b"], attributes=8, timestamps=[5, 9], base_timestamp=5)
    assert [(r["timestamp"], r["timestampType"]) for r in rows([batch])] == [
        (EPOCH + timedelta(milliseconds=9), 1)
    ] * 2


def test_a_time_beyond_microseconds_is_refused() -> None:
    """Spark cannot say it, and neither can we."""
    with pytest.raises(CorruptBatch, match="microseconds"):
        rows([make_batch([b"a"], timestamps=[2**62], base_timestamp=2**62)])


def test_headers_only_when_asked_for() -> None:
    """The schema is the Kafka source's without includeHeaders."""
    (row,) = rows([make_batch([b"a"], headers=[[(b"h", b"v")]])], headers=False)
    assert "headers" not in row


def test_groups_are_bounded() -> None:
    """A hundred times the bytes come in several Arrow batches, none of them large."""
    big = [make_batch([b"v" * 1_000_000], base_offset=n, codec=4) for n in range(12)]
    sizes = [batch.nbytes for batch in arrow_batches(big, "t", 0)]
    assert len(sizes) >= 3
    assert max(sizes) < GROUP_BYTES + 10_000
