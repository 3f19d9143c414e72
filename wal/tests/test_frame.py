"""The journal's bytes: what is written is read, and nothing else is."""

from __future__ import annotations

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from ister.wal.errors import NewerFormat
from ister.wal.frame import (
    ENTRY,
    FILE_HEADER_SIZE,
    FLAG_END,
    FRAME_HEADER_SIZE,
    FRAMES_START,
    TERMINATOR,
    FileHeader,
    Frame,
    FrameScanner,
    decode_file_header,
    decode_frame,
    encode_file_header,
    encode_frame,
    frame_size,
    is_terminator,
)

TOPIC = bytes(range(16))
HEADER = FileHeader(7, 6, 9000, 41, 5, "AAAAAAAAAAAAAAAAAAAAAA")


def one_frame(sequence: int, commit: int, position: int, *bodies: bytes) -> bytes:
    directory = b"".join(
        ENTRY.pack(TOPIC, 1, 10 * number, 10, len(body), 99) for number, body in enumerate(bodies)
    )
    return b"".join(encode_frame(sequence, commit, position, 0, directory, list(bodies)))


def one_file(sequence: int, *frames: tuple[bytes, ...], size: int = 0) -> bytes:
    data = bytearray(encode_file_header(HEADER._replace(sequence=sequence)))
    data.extend(bytes(FRAMES_START - len(data)))
    for commit, bodies in enumerate(frames, 1):
        data += one_frame(sequence, commit, len(data), *bodies)
    data += TERMINATOR
    return bytes(data).ljust(size, b"\0")


def scanner(data: bytes, sequence: int = 7) -> FrameScanner:
    return FrameScanner(lambda size, at: data[at : at + size], sequence, len(data))


def frames_of(data: bytes, sequence: int = 7) -> list[Frame]:
    return list(iter(scanner(data, sequence).next, None))


def test_a_file_header_comes_back() -> None:
    """And any other bytes are none."""
    data = encode_file_header(HEADER)
    assert len(data) == FILE_HEADER_SIZE < FRAMES_START
    assert decode_file_header(data, "x") == HEADER
    assert decode_file_header(data[:-1], "x") is None
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 4
        assert decode_file_header(bytes(changed), "x") is None


def test_a_newer_format_is_refused_with_words() -> None:
    """Only if the header is whole: else it is damage."""
    data = bytearray(encode_file_header(HEADER))
    data[8] = 2
    assert decode_file_header(bytes(data), "x") is None
    data[-4:] = crc32c(bytes(data[:-4])).to_bytes(4, "little")
    with pytest.raises(NewerFormat, match=r"journal format 2.*install the version"):
        decode_file_header(bytes(data), "x")


def test_frames_come_back_in_order() -> None:
    """With their directory, and the place of every batch."""
    data = one_file(7, (b"abc", b"defg"), (b"h",))
    first, second = frames_of(data)
    assert (first.commit, second.commit) == (1, 2)
    assert first.end == second.position == FRAMES_START + frame_size(2, 7)
    assert [(e.base_offset, e.records, e.size) for e in first.entries()] == [
        (0, 10, 3),
        (10, 10, 4),
    ]
    assert data[first.body_position : first.end] == bytes(first.body) == b"abcdefg"


def test_every_flipped_byte_ends_the_file_there() -> None:
    """Never another frame, never other content."""
    data = one_file(7, (b"abc",), (b"defg",), (b"h",))
    whole = frames_of(data)
    for position in range(FRAMES_START, whole[-1].end):
        changed = bytearray(data)
        changed[position] ^= 0x20
        found = frames_of(bytes(changed))
        hit = next(n for n, frame in enumerate(whole) if position < frame.end)
        assert [bytes(f.body) for f in found] == [bytes(f.body) for f in whole[:hit]]


def test_a_frame_counts_only_in_its_file_and_at_its_place() -> None:
    """The former life of a file, and a copy at another position, are no frames."""
    data = one_file(7, (b"abc",), (b"defg",))
    assert frames_of(data, sequence=8) == []
    frame = data[FRAMES_START : FRAMES_START + frame_size(1, 3)]
    moved = data[:FRAMES_START] + bytes(8) + frame + bytes(100)
    assert frames_of(moved) == []
    assert scanner(moved).search(FRAMES_START) is None
    assert decode_frame(memoryview(frame), 0, FRAMES_START, 7) is not None
    assert decode_frame(memoryview(frame), 0, FRAMES_START + 8, 7) is None


def test_a_search_finds_the_next_frame_whatever_lies_between() -> None:
    """Magics that begin no frame, also across the windows in which it reads."""
    gap = 3 * FrameScanner.WINDOW + 17
    data = bytearray(one_file(7, (b"abc",)))
    junk = b"ISTC" * 5 + bytes(gap) + b"ISTC"
    data += junk
    at = len(data)
    data += one_frame(7, 9, at, b"far") + TERMINATOR
    found = scanner(bytes(data)).search(FRAMES_START + 1)
    assert found is not None
    assert (found.position, found.commit, bytes(found.body)) == (at, 9, b"far")
    assert scanner(bytes(data)).search(at + 1) is None


def test_a_frame_larger_than_the_window_is_read() -> None:
    """The window grows to it."""
    body = bytes(range(256)) * 6000
    first, second = frames_of(one_file(7, (body,), (b"x",)))
    assert bytes(first.body) == body
    assert bytes(second.body) == b"x"


def test_the_terminator_survives_a_flip_and_a_frame_does_not_look_like_it() -> None:
    """What stands behind the last frame is known also in a recycled file."""
    assert is_terminator(TERMINATOR)
    for position in range(len(TERMINATOR)):
        flipped = bytearray(TERMINATOR)
        flipped[position] = 0xFF
        assert is_terminator(flipped)
    smallest = b"".join(encode_frame(1, 1, FRAMES_START, FLAG_END, b"", []))
    assert len(smallest) == FRAME_HEADER_SIZE
    for position in range(len(smallest)):
        changed = bytearray(smallest)
        changed[position] = 0
        assert not is_terminator(changed)


@given(st.binary(max_size=400))
def test_garbage_is_no_frame(garbage: bytes) -> None:
    """And raises nothing."""
    data = bytes(FRAMES_START) + garbage
    assert frames_of(data) == []
    assert scanner(data).search(0) is None
    assert decode_file_header(garbage, "x") is None
