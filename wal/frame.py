"""The journal's bytes: file header, commit frames, end mark.

All integers are little-endian. A file is FRAMES_START bytes of header, then
frames one behind the other, then whatever was in the file before.

File header (at 0; written and synced before the first frame):
    8s   magic "ISTERJNL"
    I    format version (1)
    Q    sequence: new for each use of a file, rising; must equal the file's name
    Q    sequence of the file before this one (0: none)
    Q    position at which that file ends
    Q    commit number of the first frame here
    Q    sequence of the file that this one replaces (recovery copied it; 0: none)
    22s  cluster id
    I    crc32c of all of the above

Commit frame (at its position):
    4s   magic "ISTC"
    I    crc32c of every byte behind this field: header, directory, batches
    Q    file sequence
    Q    commit number: rising by one from frame to frame
    Q    position of this frame in the file
    I    number of directory entries
    I    flags: 1 end mark (clean stop), 2 some batch carries a producer id
    Q    size of the batches together
  directory, one entry a batch, in the order of arrival:
    16s  topic id
    I    partition
    q    base offset
    I    number of records; 0: no batch, the log start of that partition moves to "base offset"
    I    size of the batch in bytes
    q    largest timestamp of the batch
  then the batches, byte for byte as readers get them.

Each write ends with a terminator of FRAME_HEADER_SIZE zeros, over which the next
frame is written: so what stands behind the last frame is known, also in a
recycled file, and a frame whose very header was hit is still seen to be there.

A frame is valid when magic, sequence and position are its own and the checksum
holds. A frame of another sequence is the rest of the file's former life: the
end. A file whose header is valid but names another sequence is empty.
Deliberately not here: what recovery makes of a bad frame (`recovery.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from ister.wal.errors import NewerFormat

Buffer = bytes | bytearray | memoryview

FORMAT_VERSION = 1
FRAMES_START = 4096  # a page of its own, so that header and frames never share a sector
FILE_MAGIC = b"ISTERJNL"
FRAME_MAGIC = b"ISTC"

_FILE_HEADER = Struct("<8sIQQQQQ22s")
_CRC = Struct("<I")
FILE_HEADER_SIZE = _FILE_HEADER.size + _CRC.size
_FRAME_HEADER = Struct("<4sIQQQIIQ")
FRAME_HEADER_SIZE = _FRAME_HEADER.size
_FRAME_REST = Struct("<QQQIIQ")
ENTRY = Struct("<16sIqIIq")
ENTRY_SIZE = ENTRY.size
_CRC_SKIP = 8  # magic and the checksum itself

TERMINATOR = bytes(FRAME_HEADER_SIZE)
_TERMINATOR_BYTES_HIT_MAX = 3  # a stray flip in the zeros; a frame header has more bytes than that

FLAG_END = 1
FLAG_PRODUCERS = 2


class FileHeader(NamedTuple):
    sequence: int
    previous_sequence: int
    previous_end: int
    first_commit: int
    replaces: int
    cluster_id: str


class Entry(NamedTuple):
    """A directory entry, in the order in which it is stored."""

    topic_id: bytes
    partition: int
    base_offset: int
    records: int
    size: int
    max_timestamp: int


class Frame(NamedTuple):
    """A valid frame. `body` starts at `body_position` of the file."""

    sequence: int
    commit: int
    position: int
    flags: int
    directory: bytes | memoryview
    body: memoryview
    body_position: int
    end: int

    def entries(self) -> list[Entry]:
        return [Entry(*fields) for fields in ENTRY.iter_unpack(self.directory)]


def encode_file_header(header: FileHeader) -> bytes:
    data = _FILE_HEADER.pack(
        FILE_MAGIC,
        FORMAT_VERSION,
        header.sequence,
        header.previous_sequence,
        header.previous_end,
        header.first_commit,
        header.replaces,
        header.cluster_id.encode(),
    )
    return data + _CRC.pack(crc32c(data))


def decode_file_header(data: bytes, where: str) -> FileHeader | None:
    """The header, or None if these bytes are none. A newer format raises."""
    if len(data) < FILE_HEADER_SIZE:
        return None
    (crc,) = _CRC.unpack_from(data, _FILE_HEADER.size)
    if crc32c(data[: _FILE_HEADER.size]) != crc:
        return None
    fields = _FILE_HEADER.unpack_from(data)
    magic, version = fields[:2]
    if magic != FILE_MAGIC:
        return None
    if version > FORMAT_VERSION:
        raise NewerFormat(
            f"{where} has journal format {version}, this version reads up to {FORMAT_VERSION}: "
            "install the version that wrote it"
        )
    sequence, previous_sequence, previous_end, first_commit, replaces, cluster_id = fields[2:]
    return FileHeader(
        sequence,
        previous_sequence,
        previous_end,
        first_commit,
        replaces,
        cluster_id.rstrip(b"\0").decode(),
    )


def frame_size(entries: int, body_size: int) -> int:
    return FRAME_HEADER_SIZE + entries * ENTRY_SIZE + body_size


def encode_frame(
    sequence: int,
    commit: int,
    position: int,
    flags: int,
    directory: bytes,
    body: Sequence[Buffer],
) -> list[Buffer]:
    """The buffers of one frame, for one gathered write."""
    entries = len(directory) // ENTRY_SIZE
    body_size = sum(map(len, body))
    rest = _FRAME_REST.pack(sequence, commit, position, entries, flags, body_size)
    crc = crc32c(directory, crc32c(rest))
    for buffer in body:
        crc = crc32c(buffer, crc)
    return [FRAME_MAGIC + _CRC.pack(crc) + rest, directory, *body]


def decode_frame(data: memoryview, at: int, position: int, sequence: int) -> Frame | None:
    """The valid frame that starts at data[at], which is `position` in the file; else None."""
    if len(data) - at < FRAME_HEADER_SIZE:
        return None
    magic, crc, seq, commit, own, entries, flags, body_size = _FRAME_HEADER.unpack_from(data, at)
    if magic != FRAME_MAGIC or seq != sequence or own != position:
        return None
    size = frame_size(entries, body_size)
    if size > len(data) - at or crc32c(data[at + _CRC_SKIP : at + size]) != crc:
        return None
    body_at = at + FRAME_HEADER_SIZE + entries * ENTRY_SIZE
    return Frame(
        seq,
        commit,
        position,
        flags,
        data[at + FRAME_HEADER_SIZE : body_at],
        data[body_at : at + size],
        position + body_at - at,
        position + size,
    )


def claimed_frame_size(data: Buffer, sequence: int, position: int) -> int | None:
    """The size that a frame header claims, if it looks like one of this file; unverified."""
    if len(data) < FRAME_HEADER_SIZE:
        return None
    magic, _, seq, _, own, entries, _, body_size = _FRAME_HEADER.unpack_from(data)
    if magic != FRAME_MAGIC or seq != sequence or own != position:
        return None
    return frame_size(entries, body_size)


def is_terminator(data: Buffer) -> bool:
    """Whether nothing was written here behind the last frame."""
    return len(data) - bytes(data).count(0) <= _TERMINATOR_BYTES_HIT_MAX


class FrameScanner:
    """Reads the frames of one file in order, a window at a time.

    `read(size, position)` gives bytes of the file. The scanner holds one window
    (grown to the largest frame), so memory does not follow the file.
    """

    WINDOW = 1 << 20

    def __init__(self, read: Callable[[int, int], bytes], sequence: int, file_size: int) -> None:
        self._read = read
        self._sequence = sequence
        self._file_size = file_size
        self._window = memoryview(b"")
        self._window_position = 0
        self.position = FRAMES_START

    def next(self) -> Frame | None:
        """The next valid frame; None at the first thing that is none (`position` stays there)."""
        frame = self.at(self.position)
        if frame is not None:
            self.position = frame.end
        return frame

    def at(self, position: int) -> Frame | None:
        head = self._view(position, FRAME_HEADER_SIZE)
        size = claimed_frame_size(head, self._sequence, position)
        if size is None or position + size > self._file_size:
            return None
        data = self._view(position, size)
        return decode_frame(data, 0, position, self._sequence)

    def claimed(self, position: int) -> memoryview | None:
        """The unverified bytes of what claims to be a frame at `position`."""
        size = claimed_frame_size(self._view(position, FRAME_HEADER_SIZE), self._sequence, position)
        if size is None or position + size > self._file_size:
            return None
        return self._view(position, size)

    def something_at(self, position: int) -> bool:
        """Whether a frame, however broken, was begun at `position`."""
        return not is_terminator(self._view(position, FRAME_HEADER_SIZE))

    def search(self, position: int) -> Frame | None:
        """The first valid frame at or behind `position`, found by looking at every byte."""
        while position < self._file_size:
            window = bytes(self._view(position, self.WINDOW))
            found = window.find(FRAME_MAGIC)
            while found >= 0:
                frame = self.at(position + found)
                if frame is not None:
                    return frame
                found = window.find(FRAME_MAGIC, found + 1)
            position += max(len(window) - len(FRAME_MAGIC) + 1, 1)
        return None

    def _view(self, position: int, size: int) -> memoryview:
        start = position - self._window_position
        if start < 0 or start + size > len(self._window):
            length = min(max(size, self.WINDOW), max(self._file_size - position, 0))
            self._window = memoryview(self._read(length, position))
            self._window_position = position
            start = 0
        return self._window[start : start + size]
