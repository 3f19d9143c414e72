"""The four codecs of record batches, with a hard limit on what comes out.

A batch of a megabyte can state that it holds a gigabyte, and some libraries believe it
(zstandard's `max_output_size` is ignored when the frame gives its own size). So every
decoder here produces its output in steps and stops at the limit; what a frame says about
itself is only ever used to refuse sooner. Memory: the output, at most `limit`, and a
constant for the library's own window.

Strict: exactly one frame that ends where the data ends. Anything else is CorruptBatch,
and so is too much output: to the reader of a stored batch both mean that its records
cannot be had. Nothing is decompressed on the way in; only look-ups by timestamp,
compacted-topic checks and tools come here, never on the event loop.
"""

from __future__ import annotations

import struct
import zlib

import cramjam
import lz4.frame  # type: ignore[import-untyped]
import zstandard

from ister.wal.errors import CorruptBatch, UnsupportedCodec
from ister.wal.fs import Buffer

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

# 64 times the default max.message.bytes: JSON at its most repetitive shrinks 20 to 40 times.
DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024
# What zstd level 22 asks for. The decoder touches only as much of it as it has written.
ZSTD_WINDOW_BYTES_MAX = 128 * 1024 * 1024
STEP_BYTES = 256 * 1024

# snappy-java: the header, then blocks with a big-endian length in front (Java producers).
XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER_SIZE = 16
_XERIAL_VERSIONS = struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
# A copy element of three bytes gives at most 64; more than that per byte is a lie.
_SNAPPY_RATIO_MAX = 64
_INT32 = struct.Struct(">i")

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_CHECKSUM_SIZE = 4
_ZSTD_RAW, _ZSTD_RLE, _ZSTD_COMPRESSED, _ZSTD_RESERVED = range(4)


def decompress(codec: int, data: Buffer, limit: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """What `data` holds, at most `limit` bytes; CorruptBatch if it is more or not whole."""
    if codec == NONE:
        return _bounded(bytes(data), limit)
    if codec == GZIP:
        return _gunzip(data, limit)
    if codec == SNAPPY:
        return _unsnap(memoryview(data), limit)
    if codec == LZ4:
        return _unlz4(data, limit)
    if codec == ZSTD:
        return _unzstd(memoryview(data), limit)
    raise UnsupportedCodec(f"codec {codec} is not known")


def compress(codec: int, data: bytes, *, xerial: bool = False) -> bytes:
    """One frame of `codec`, for tools and tests; `xerial` frames snappy as Java does."""
    if codec == NONE:
        return data
    if codec == GZIP:
        compressor = zlib.compressobj(wbits=16 + zlib.MAX_WBITS)
        return compressor.compress(data) + compressor.flush()
    if codec == SNAPPY:
        return _snap_xerial(data) if xerial else bytes(cramjam.snappy.compress_raw(data))
    if codec == LZ4:
        return bytes(lz4.frame.compress(data))
    if codec == ZSTD:
        return zstandard.ZstdCompressor().compress(data)
    raise UnsupportedCodec(f"codec {codec} is not known")


def _bounded(output: bytes, limit: int) -> bytes:
    if len(output) > limit:
        raise _too_much(limit)
    return output


def _too_much(limit: int) -> CorruptBatch:
    return CorruptBatch(f"the batch decompresses to more than the limit of {limit} bytes")


def _gunzip(data: Buffer, limit: int) -> bytes:
    decoder = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        output = decoder.decompress(data, limit + 1)
    except zlib.error as error:
        raise CorruptBatch(f"gzip: {error}") from error
    _bounded(output, limit)
    if not decoder.eof:
        # With exactly `limit` bytes out the trailer may still be unread: one more step.
        try:
            output += decoder.decompress(decoder.unconsumed_tail, 1)
        except zlib.error as error:
            raise CorruptBatch(f"gzip: {error}") from error
        _bounded(output, limit)
    if not decoder.eof:
        raise CorruptBatch("gzip: the data ends before the stream does")
    if decoder.unused_data:
        raise CorruptBatch(f"gzip: {len(decoder.unused_data)} bytes behind the stream")
    return output


def _unsnap(data: memoryview, limit: int) -> bytes:
    if data[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        return _unsnap_block(data, limit)
    if len(data) < XERIAL_HEADER_SIZE:
        raise CorruptBatch("snappy: the data ends in the header")
    position = XERIAL_HEADER_SIZE
    blocks: list[bytes] = []
    room = limit
    while position < len(data):
        if len(data) - position < _INT32.size:
            raise CorruptBatch("snappy: the data ends in a block length")
        size = _INT32.unpack_from(data, position)[0]
        position += _INT32.size
        if size <= 0 or size > len(data) - position:
            raise CorruptBatch(f"snappy: block of {size} bytes at {position} of {len(data)}")
        block = _unsnap_block(data[position : position + size], room, limit)
        if block:
            blocks.append(block)
        room -= len(block)
        position += size
    return b"".join(blocks)


def _unsnap_block(data: memoryview, room: int, limit: int | None = None) -> bytes:
    """A raw block states its size: checked before a byte is taken for it."""
    try:
        size = cramjam.snappy.decompress_raw_len(data)
        if size > room:
            raise _too_much(room if limit is None else limit)
        if size > len(data) * _SNAPPY_RATIO_MAX:
            raise CorruptBatch(f"snappy: {len(data)} bytes cannot hold {size}")
        return bytes(cramjam.snappy.decompress_raw(data))
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"snappy: {error}") from error


def _snap_xerial(data: bytes) -> bytes:
    parts = [XERIAL_MAGIC, _XERIAL_VERSIONS]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        parts += [_INT32.pack(len(block)), block]
    return b"".join(parts)


def _unlz4(data: Buffer, limit: int) -> bytes:
    decoder = lz4.frame.LZ4FrameDecompressor()
    parts: list[bytes] = []
    room = limit + 1
    source: Buffer = data
    try:
        while room and not decoder.eof:
            part = decoder.decompress(source, max_length=min(room, STEP_BYTES))
            source = b""
            if not part and (decoder.needs_input or not decoder.eof):
                break
            parts.append(part)
            room -= len(part)
    except (RuntimeError, EOFError, ValueError, MemoryError) as error:
        raise CorruptBatch(f"lz4: {error}") from error
    if not room:
        raise _too_much(limit)
    if not decoder.eof:
        raise CorruptBatch("lz4: the data ends before the frame does")
    if decoder.unused_data:
        raise CorruptBatch(f"lz4: {len(decoder.unused_data)} bytes behind the frame")
    return b"".join(parts)


def _unzstd(data: memoryview, limit: int) -> bytes:
    parts: list[bytes] = []
    room = limit + 1
    try:
        _check_zstd_frame(data)
        decoder = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES_MAX)
        with decoder.stream_reader(data) as reader:
            while room:
                part = reader.read(min(room, STEP_BYTES))
                if not part:
                    break
                parts.append(part)
                room -= len(part)
    except (zstandard.ZstdError, MemoryError) as error:
        raise CorruptBatch(f"zstd: {error}") from error
    if not room:
        raise _too_much(limit)
    return b"".join(parts)


def _check_zstd_frame(data: memoryview) -> None:
    """Walk the blocks: the stream reader returns what it has of a cut frame without a word."""
    if data[: len(_ZSTD_MAGIC)] != _ZSTD_MAGIC:
        raise CorruptBatch("zstd: no frame")
    has_checksum = zstandard.get_frame_parameters(data).has_checksum
    position = zstandard.frame_header_size(data)
    is_last = False
    while not is_last:
        if len(data) - position < 3:
            raise CorruptBatch("zstd: the data ends before the frame does")
        head = int.from_bytes(data[position : position + 3], "little")
        is_last = bool(head & 1)
        kind = head >> 1 & 3
        if kind == _ZSTD_RESERVED:
            raise CorruptBatch(f"zstd: unknown block at {position}")
        position += 3 + (1 if kind == _ZSTD_RLE else head >> 3)
    if has_checksum:
        position += _ZSTD_CHECKSUM_SIZE
    if position != len(data):
        raise CorruptBatch(f"zstd: the frame ends at {position} of {len(data)} bytes")
