"""Codecs: round trips, limits, damage."""

from __future__ import annotations

import contextlib
import gzip
import tracemalloc

import lz4.frame  # type: ignore[import-untyped]
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from ister.wal import compression
from ister.wal.compression import GZIP, LZ4, SNAPPY, ZSTD, compress, decompress
from ister.wal.errors import CorruptBatch, UnsupportedCodec

CODECS = [(0, False), (GZIP, False), (SNAPPY, False), (SNAPPY, True), (LZ4, False), (ZSTD, False)]
FRAMED = [codec for codec in CODECS if codec[0]]
MEGABYTE = 1024 * 1024


@pytest.mark.parametrize(("codec", "xerial"), CODECS)
@given(data=st.binary(max_size=2000), repeat=st.integers(1, 60))
@settings(max_examples=40, deadline=None)
def test_what_was_compressed_comes_back(codec: int, xerial: bool, data: bytes, repeat: int) -> None:
    """decompress(compress(x)) == x, also from a view, with the limit exactly met."""
    data *= repeat
    packed = compress(codec, data, xerial=xerial)
    assert decompress(codec, packed, len(data)) == data
    assert decompress(codec, memoryview(bytearray(packed)), len(data)) == data


@pytest.mark.parametrize(("codec", "xerial"), CODECS)
@pytest.mark.parametrize("size", [1, 1000, 300_000, compression.STEP_BYTES, 700_001])
def test_one_byte_above_the_limit_is_refused(codec: int, xerial: bool, size: int) -> None:
    """The limit is exact."""
    data = bytes(range(256)) * (size // 256) + bytes(size % 256)
    packed = compress(codec, data, xerial=xerial)
    assert decompress(codec, packed, size) == data
    with pytest.raises(CorruptBatch, match="limit"):
        decompress(codec, packed, size - 1)


def _bomb(codec: int, xerial: bool) -> bytes:
    """64 MB of zeros, small when packed."""
    if codec == ZSTD:  # with the size in the frame: the trap
        return zstandard.ZstdCompressor().compress(bytes(64 * MEGABYTE))
    if codec == LZ4:
        return bytes(lz4.frame.compress(bytes(64 * MEGABYTE), store_size=True))
    return compress(codec, bytes(64 * MEGABYTE), xerial=xerial)


@pytest.mark.parametrize(("codec", "xerial"), FRAMED)
def test_a_bomb_takes_no_more_memory_than_the_limit(codec: int, xerial: bool) -> None:
    """Peak of Python's allocations stays near the limit, not near what the frame holds."""
    bomb = _bomb(codec, xerial)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptBatch, match="limit"):
            decompress(codec, bomb, MEGABYTE)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * MEGABYTE + len(bomb) * 2


def test_a_bomb_of_zstd_rle_blocks_stops_at_the_limit() -> None:
    """32 KB of four-byte blocks are a gigabyte: read in steps, never whole."""
    block = b"\x02\x00\x10\x00"  # run of 128 KiB
    bomb = b"\x28\xb5\x2f\xfd\x00\x88" + block * 8000 + b"\x03\x00\x10\x00"
    with pytest.raises(CorruptBatch, match="limit"):
        decompress(ZSTD, bomb, MEGABYTE)


def test_a_snappy_block_that_claims_too_much_is_refused_before_memory_is_taken() -> None:
    """A stated size is checked against the limit and against what the bytes could hold."""
    with pytest.raises(CorruptBatch, match="limit"):
        decompress(SNAPPY, b"\xff\xff\xff\xff\x0f" + b"\0" * 10)
    with pytest.raises(CorruptBatch, match="cannot hold"):
        decompress(SNAPPY, b"\xff\xff\xff\x07" + b"\0" * 10)


@pytest.mark.parametrize(("codec", "xerial"), FRAMED)
def test_every_cut_is_corrupt(codec: int, xerial: bool) -> None:
    """A frame cut anywhere never comes back as less data."""
    packed = compress(codec, b"some words, some words again, and words" * 5, xerial=xerial)
    for size in range(len(packed)):
        if xerial and size == compression.XERIAL_HEADER_SIZE:
            continue  # a header alone is an empty stream
        with pytest.raises(CorruptBatch):
            decompress(codec, packed[:size])


@pytest.mark.parametrize(("codec", "xerial"), FRAMED)
def test_bytes_behind_the_frame_are_corrupt(codec: int, xerial: bool) -> None:
    """Exactly one frame."""
    packed = compress(codec, b"words" * 10, xerial=xerial)
    with pytest.raises(CorruptBatch):
        decompress(codec, packed + b"\0")
    with pytest.raises(CorruptBatch):
        decompress(codec, packed + packed[:20])


@pytest.mark.parametrize("codec", [-1, 5, 6, 7, 8])
def test_unknown_codecs_are_named(codec: int) -> None:
    """UnsupportedCodec both ways."""
    with pytest.raises(UnsupportedCodec, match=str(codec)):
        decompress(codec, b"")
    with pytest.raises(UnsupportedCodec, match=str(codec)):
        compress(codec, b"")


@given(codec=st.integers(0, 7), data=st.binary(max_size=300), known=st.booleans())
@settings(max_examples=400, deadline=None)
def test_arbitrary_bytes_raise_nothing_else(codec: int, data: bytes, known: bool) -> None:
    """Garbage, also behind a right magic, gives bytes within the limit or one of two errors."""
    magics = {1: b"\x1f\x8b\x08\0", 2: compression.XERIAL_MAGIC, 3: b"\x04\x22\x4d\x18"}
    magics[4] = b"\x28\xb5\x2f\xfd"
    if known:
        data = magics.get(codec, b"") + data
    with contextlib.suppress(CorruptBatch, UnsupportedCodec):
        assert len(decompress(codec, data, 10_000)) <= 10_000


@pytest.mark.parametrize(("codec", "xerial"), FRAMED)
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_a_changed_byte_raises_nothing_else(codec: int, xerial: bool, data: st.DataObject) -> None:
    """A valid frame with one byte changed: bytes within the limit or CorruptBatch."""
    packed = bytearray(compress(codec, b"words and more words " * 20, xerial=xerial))
    packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CorruptBatch):
        assert len(decompress(codec, packed, 10_000)) <= 10_000


def test_foreign_frames_are_read() -> None:
    """Other encoders' ways: gzip with a name, zstd without size, linked lz4."""
    words = b"words and more words " * 50_000
    assert decompress(GZIP, gzip.compress(words)) == words
    encoder = zstandard.ZstdCompressor(level=19, write_checksum=True).compressobj()
    assert decompress(ZSTD, encoder.compress(words) + encoder.flush()) == words
    linked = lz4.frame.compress(words, block_linked=True, content_checksum=True, store_size=False)
    assert decompress(LZ4, linked) == words
