"""The index of one partition in one file: whole batches, runs of bytes that lie together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ister.wal.tail import Slice, TailIndex


def filled() -> TailIndex:
    """Three batches of 2, 3 and 1 records; other partitions lie between the last two."""
    tail = TailIndex()
    tail.add(10, 12, 100, 50, 5)
    tail.add(12, 15, 150, 60, 9)
    tail.add(15, 16, 400, 70, 7)
    return tail


def test_a_slice_joins_what_lies_together() -> None:
    """One read for neighbours in the file, one more behind each gap."""
    assert filled().slice(10, 1000, 16) == Slice(10, 16, 180, [(100, 110), (400, 70)])


def test_a_slice_begins_with_the_batch_that_holds_the_offset() -> None:
    """Whole, also if it is larger than max_bytes."""
    assert filled().slice(13, 0, 16) == Slice(12, 15, 60, [(150, 60)])
    assert filled().slice(11, 110, 16) == Slice(10, 15, 110, [(100, 110)])
    assert filled().slice(11, 109, 16) == Slice(10, 12, 50, [(100, 50)])


def test_a_slice_stops_below() -> None:
    """Nothing that begins at or above the bound."""
    assert filled().slice(10, 1000, 15) == Slice(10, 15, 110, [(100, 110)])
    assert filled().slice(15, 1000, 15) is None
    assert TailIndex().slice(0, 1000, 15) is None


def test_times() -> None:
    """The first batch that may hold a record that late, and the latest of all."""
    tail = filled()
    assert [tail.at_or_after(t) for t in (0, 5, 6, 9, 10)] == [0, 0, 1, 1, None]
    assert tail.max_timestamp() == (9, 1)


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(61, 200), st.booleans()), min_size=1),
    st.data(),
)
def test_every_slice_is_what_a_plain_list_says(
    batches: list[tuple[int, int, bool]], data: st.DataObject
) -> None:
    """Offsets, sizes and positions, for any offset, limit and bound."""
    tail = TailIndex()
    plain: list[tuple[int, int, int, int]] = []
    offset, position = 7, 4096
    for records, size, apart in batches:
        position += 1000 if apart else 0
        tail.add(offset, offset + records, position, size, 0)
        plain.append((offset, offset + records, position, size))
        offset += records
        position += size
    wanted = data.draw(st.integers(7, offset - 1))
    max_bytes = data.draw(st.integers(0, 2000))
    below = data.draw(st.sampled_from([base for base, *_ in plain] + [offset]))
    found = tail.slice(wanted, max_bytes, below)
    chosen: list[tuple[int, int, int, int]] = []
    for batch in plain:
        if batch[1] > wanted and batch[0] < below:
            if chosen and sum(b[3] for b in chosen) + batch[3] > max_bytes:
                break
            chosen.append(batch)
    if not chosen:
        assert found is None
        return
    assert found is not None
    assert (found.first_offset, found.next_offset) == (chosen[0][0], chosen[-1][1])
    octets = [p for start, size in found.runs for p in range(start, start + size)]
    assert octets == [p for b in chosen for p in range(b[2], b[2] + b[3])]
    assert found.size == len(octets)
