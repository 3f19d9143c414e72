"""The index beside a sealed file: it comes back, and any other bytes are damage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ister.wal.errors import Damaged, NewerFormat
from ister.wal.fs import OsFile, OsFileSystem
from ister.wal.sidecar import (
    Key,
    Sidecar,
    decode_directory,
    decode_tail,
    encode,
    sidecar_name,
    write_sidecar,
)
from ister.wal.tail import TailIndex

TOPIC = bytes(range(16))


def some_tails() -> dict[Key, TailIndex]:
    tails: dict[Key, TailIndex] = {}
    for partition in (2, 0, 1):
        tail = tails[TOPIC, partition] = TailIndex()
        for number in range(5 + partition):
            base = 100 * partition + 3 * number
            tail.add(base, base + 3, 4096 + 70 * number, 70, 1_700_000_000_000 - number)
    tails[TOPIC, 9] = TailIndex()  # nothing of it is in the file
    return tails


@pytest.fixture
def file(tmp_path: Path) -> Iterator[OsFile]:
    """A real file: what a decoder asks of it for a length that was hit is asked of the system."""
    fs = OsFileSystem()
    write_sidecar(fs, str(tmp_path), 7, encode(7, 9000, 1234, some_tails()))
    found = fs.open(f"{tmp_path}/{sidecar_name(7)}", write=True)
    yield found
    found.close()


def read(file: OsFile) -> tuple[Sidecar, dict[Key, TailIndex]]:
    sidecar = decode_directory(file.pread, "x")
    return sidecar, {
        key: decode_tail(file.pread, entry, "x") for key, entry in sidecar.entries.items()
    }


def test_it_comes_back(file: OsFile) -> None:
    """Sorted by partition, with what recovery needs in the directory alone."""
    sidecar, tails = read(file)
    assert (sidecar.sequence, sidecar.end, sidecar.last_append_ms) == (7, 9000, 1234)
    written = some_tails()
    assert list(sidecar.entries) == [(TOPIC, partition) for partition in (0, 1, 2)]
    for key, entry in sidecar.entries.items():
        tail = written[key]
        assert entry.first_offset == tail.first_offset
        assert entry.next_offset == tails[key].next_offset == tail.next_offset
        assert entry.data_bytes == tail.data_bytes
        assert entry.max_timestamp == max(tail.timestamps)
        for name in ("bases", "positions", "sizes", "timestamps"):
            assert getattr(tails[key], name) == getattr(tail, name)


def test_every_flipped_bit_is_damage(file: OsFile) -> None:
    """A length of thousands of millions too: no memory is taken for it."""
    for position in range(file.size()):
        (byte,) = file.pread(1, position)
        for bit in (0, 7):
            file.pwrite([bytes([byte ^ 1 << bit])], position)
            with pytest.raises((Damaged, NewerFormat)):
                read(file)
        file.pwrite([bytes([byte])], position)
    read(file)


def test_every_cut_is_damage(file: OsFile) -> None:
    """A sidecar is written aside and renamed, so this is a disk that lost something."""
    for size in reversed(range(file.size())):
        file.truncate(size)
        with pytest.raises(Damaged):
            read(file)
