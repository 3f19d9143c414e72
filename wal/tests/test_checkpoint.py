"""The checkpoint file: what is whole is read, what is not is said, what is newer is refused."""

from __future__ import annotations

import msgspec
import pytest

from ister.wal import checkpoint as checkpoints
from ister.wal.checkpoint import Checkpoint, PartitionRecord, decode, encode
from ister.wal.errors import Damaged, LogError, NewerFormat
from ister.wal.memory_fs import MemoryFileSystem

RECORD = PartitionRecord(bytes(16), 0, 10, 2, 5, [(0, 0)], [(3, 4, "lost")], b"", b"")
SMALL = Checkpoint(3, "A" * 22, 1_700_000_000_000, 1, 2, 9, [RECORD])


def test_what_was_written_is_read() -> None:
    """Every field comes back."""
    assert decode(b"".join(encode(SMALL)), "here") == SMALL


def test_every_flipped_bit_is_damage() -> None:
    """Also in the version: a flip is never taken for a newer format, nor for a checkpoint."""
    data = b"".join(encode(SMALL))
    for position in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            with pytest.raises(Damaged):
                decode(bytes(flipped), "here")


def test_every_cut_is_damage() -> None:
    """Half a checkpoint is none."""
    data = b"".join(encode(SMALL))
    for size in range(len(data)):
        with pytest.raises(Damaged):
            decode(data[:size], "here")


def test_a_newer_format_is_refused_with_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """The version that wrote it is named; it is no reason to take the older generation."""
    fs = MemoryFileSystem()
    fs.makedirs("checkpoint")
    checkpoints.write(fs, "checkpoint", SMALL)
    with monkeypatch.context() as newer:
        newer.setattr(checkpoints, "FORMAT_VERSION", 2)
        checkpoints.write(fs, "checkpoint", msgspec.structs.replace(SMALL, generation=4))
    with pytest.raises(NewerFormat, match="format 2, this version reads up to 1") as caught:
        checkpoints.load(fs, "checkpoint")
    assert isinstance(caught.value, LogError)


def test_the_older_generation_serves_when_the_newest_is_damaged() -> None:
    """And the damage is told."""
    fs = MemoryFileSystem()
    fs.makedirs("checkpoint")
    checkpoints.write(fs, "checkpoint", SMALL)
    fs.open("checkpoint/00000000000000000004.ckpt", create=True).pwrite([b"ISTERCKP rubbish"], 0)
    found, damages = checkpoints.load(fs, "checkpoint")
    assert found == SMALL
    assert [damage.where for damage in damages] == ["checkpoint/00000000000000000004.ckpt"]
