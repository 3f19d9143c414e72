"""The section format: round trips, indexes, and damage that is always found."""

from __future__ import annotations

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from ister.wal.errors import Contradiction, Damaged, NewerFormat
from ister.wal.tier import segment
from ister.wal.tier.segment import (
    BLOCK_BYTES,
    FOOTER_SIZE,
    SectionWriter,
    read_footer,
    read_section,
    sections_of,
)
from ister.wal.tier.tests.sections import TIME, TOPIC, make_run, make_section


def test_a_section_tells_what_it_holds() -> None:
    """Footer, size and checksum of what was written are what the bytes say."""
    run = make_run(100, [3, 1, 2])
    data, entry = make_section([run], partition=7)
    section = read_section(data[entry.data_size :], "x", len(data))
    footer = section.footer
    assert (footer.topic_id, footer.partition) == (TOPIC, 7)
    assert (footer.first_offset, footer.last_offset, footer.records) == (100, 105, 6)
    assert (footer.section_size, footer.data_size) == (len(data), len(run[0]))
    assert footer.max_timestamp == TIME + 2000
    assert section.producers == b"state"
    assert data[: entry.data_size] == run[0]
    assert (entry.crc, footer.data_crc) == (crc32c(data), crc32c(run[0]))
    assert len(data) - entry.data_size - len(b"state") - 28 == FOOTER_SIZE


@given(
    counts=st.lists(st.integers(1, 4), min_size=1, max_size=60),
    size=st.sampled_from([10, 5_000, 40_000]),
    cut=st.integers(1, 7),
)
@settings(max_examples=30, deadline=None)
def test_every_offset_and_time_is_located(counts: list[int], size: int, cut: int) -> None:
    """The block of an offset holds its batch; blocks are whole batches, however runs are cut."""
    buffer, entries = make_run(50, counts, size=size)
    runs = []
    position = 0
    for start in range(0, len(entries), cut):
        part = entries[start : start + cut]
        end = position + sum(entry[2] for entry in part)
        runs.append((buffer[position:end], part))
        position = end
    data, entry = make_section(runs)
    section = read_section(data[entry.data_size :], "x", len(data))
    section.check_blocks(0, len(section.offsets) - 1, data[: entry.data_size], "x", 0)
    starts = {}
    position = 0
    for base, count, batch_size, stamp in entries:
        for offset in range(base, base + count):
            starts[offset] = (position, batch_size, stamp)
        position += batch_size
    for offset, (at, batch_size, stamp) in starts.items():
        block = section.locate(offset)
        begin, end = section.position(block), section.position(block + 1)
        assert begin <= at
        assert at + batch_size <= end
        assert end - begin <= max(BLOCK_BYTES, batch_size)
        block_of_time = section.locate_time(stamp)
        assert block_of_time == block  # stamps rise with every batch here
    assert section.locate_time(entries[-1][3] + 1) is None


def test_the_time_index_is_a_running_maximum() -> None:
    """Timestamps that go back do not hide an earlier, larger one."""
    late, late_entries = make_run(0, [1], size=70_000, time=TIME + 5_000)
    early, early_entries = make_run(1, [1], size=70_000, time=TIME)
    data, entry = make_section([(late, late_entries), (early, early_entries)])
    section = read_section(data[entry.data_size :], "x", len(data))
    assert list(section.times) == [TIME + 5_000, TIME + 5_000]
    assert section.locate_time(TIME) == 0


def read_all(data: bytes | bytearray, data_size: int) -> None:
    section = read_section(data[data_size:], "x", len(data))
    section.check_blocks(0, 0, data[:data_size], "x", 0)


def test_every_flipped_byte_is_found() -> None:
    """A byte flipped at any position of a section is damage, wherever the reader looks."""
    data, entry = make_section([make_run(0, [2, 2], size=30)])
    for position in range(len(data)):
        broken = bytearray(data)
        broken[position] ^= 0x40
        with pytest.raises(Damaged):
            read_all(broken, entry.data_size)
        assert crc32c(broken) != entry.crc


@given(st.binary(max_size=300))
def test_garbage_is_never_a_section(data: bytes) -> None:
    """Arbitrary bytes are damage, not a crash."""
    with pytest.raises(Damaged):
        read_section(data, "x", len(data))


def test_cut_bytes_are_damage() -> None:
    """A tail of any other length than its own is refused."""
    data, entry = make_section([make_run(0, [2, 2], size=30)])
    tail = data[entry.data_size :]
    for cut in range(1, len(tail)):
        with pytest.raises(Damaged):
            read_section(tail[cut:], "x", len(data))
        with pytest.raises(Damaged):
            read_section(tail[:-cut], "x", len(data))


def test_a_newer_format_is_refused_with_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sound footer of a higher version says which version is needed."""
    monkeypatch.setattr(segment, "FORMAT_VERSION", 9)
    data, entry = make_section([make_run(0, [1])])
    monkeypatch.undo()
    with pytest.raises(NewerFormat, match="version 9"):
        read_footer(data[entry.data_size :], "x", len(data))


def test_an_object_is_walked_from_its_end() -> None:
    """Sections of a shared object are found without a manifest."""
    parts = [make_section([make_run(10 * n, [2])], partition=n)[0] for n in range(3)]
    data = b"".join(parts)
    found = list(sections_of(lambda start, size: data[start : start + size], len(data), "x"))
    assert [footer.partition for _, footer in found] == [2, 1, 0]
    assert [start for start, _ in found] == [len(parts[0]) + len(parts[1]), len(parts[0]), 0]


@pytest.mark.parametrize(
    "entries",
    [
        [(5, 1, 0, TIME)],
        [(0, 1, 1, TIME)],
        [(0, 2, 0, TIME), (3, 1, 0, TIME)],
    ],
)
def test_bytes_that_are_not_the_entries_never_become_a_section(
    entries: list[tuple[int, int, int, int]],
) -> None:
    """A wrong offset, a wrong size or a gap is a contradiction before anything is uploaded."""
    buffer, _ = make_run(0, [2, 2])
    half = len(buffer) // 2
    fixed = [(base, count, size or half, stamp) for base, count, size, stamp in entries]
    with pytest.raises(Contradiction):
        SectionWriter(TOPIC, 0, TIME).add(buffer, fixed)


def test_a_gap_between_runs_is_refused() -> None:
    """A section is contiguous: holes lie between sections."""
    writer = SectionWriter(TOPIC, 0, TIME)
    writer.add(*make_run(0, [2]))
    with pytest.raises(Contradiction):
        writer.add(*make_run(3, [2]))
