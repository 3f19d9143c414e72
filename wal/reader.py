"""Cold reads from journal files: in the READ lane, with every batch checked.

A batch in a journal file does not name its partition, so a read trusts nothing:
the file must still be in the life that the index speaks of (its header is read
each time; a pinned file is never recycled), the index is checksummed, each batch
must begin with the offset that the index says, and its own checksum must hold. What
a batch's checksum leaves out is compared with what is known: offset, magic, epoch.

The owner decides which file and, for a file whose index is in memory, which
bytes; sidecars are loaded here and kept in a bounded cache. A sidecar that is
damaged or gone is said, and what was asked for is taken from the frames instead.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import NamedTuple

from ister.wal.batch import HEADER_SIZE, MAGIC, crc_holds
from ister.wal.errors import Damaged
from ister.wal.files import JournalFile
from ister.wal.frame import FILE_HEADER_SIZE, FrameScanner, decode_file_header
from ister.wal.fs import Buffer, FileSystem
from ister.wal.partition import Hole
from ister.wal.settings import MiB
from ister.wal.sidecar import Key, Sidecar, decode_directory, decode_tail, sidecar_name
from ister.wal.tail import Slice, TailIndex

LIVE, CACHE, JOURNAL, BUCKET = "live", "cache", "journal", "bucket"

_OUTSIDE_CRC = Struct(">qiib")  # base offset, length, leader epoch, magic
_LAST_DELTA = Struct(">i")
_DIRECTORIES_KEPT = 4
_TAIL_CACHE_BYTES = 8 * MiB
_TAIL_BATCH_BYTES = 28


class Chunk(NamedTuple):
    """Whole batches, one behind the other, of one partition."""

    buffers: list[Buffer]
    size: int
    first_offset: int
    next_offset: int
    source: str


class SidecarCache:
    """Indexes of sealed files, loaded when asked for. Any thread."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        sealed: Mapping[int, JournalFile],
        report: Callable[[BaseException], None],
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._sealed = sealed
        self._report = report
        self._lock = threading.Lock()
        self._directories: OrderedDict[int, Sidecar] = OrderedDict()
        self._tails: OrderedDict[tuple[int, Key], TailIndex] = OrderedDict()
        self._bytes = 0

    def tail(self, sequence: int, key: Key) -> TailIndex | None:
        """Where the batches of a partition lie in a sealed file; None: it has none."""
        with self._lock:
            tail = self._tails.get((sequence, key))
            if tail is not None:
                self._tails.move_to_end((sequence, key))
                return tail
            return self._load(sequence, key)

    def forget(self, sequence: int) -> None:
        """The file begins a new life."""
        with self._lock:
            self._directories.pop(sequence, None)
            for name in [name for name in self._tails if name[0] == sequence]:
                self._bytes -= len(self._tails.pop(name)) * _TAIL_BATCH_BYTES

    def _load(self, sequence: int, key: Key) -> TailIndex | None:
        try:
            tail = self._read(sequence, key)
        except (Damaged, FileNotFoundError) as error:
            file = self._sealed.get(sequence)
            if file is None:
                raise
            self._report(error)
            tail = scan_tail(file, key)
        if tail is None:
            return None
        self._tails[sequence, key] = tail
        self._bytes += len(tail) * _TAIL_BATCH_BYTES
        while self._bytes > _TAIL_CACHE_BYTES and len(self._tails) > 1:
            _, oldest = self._tails.popitem(last=False)
            self._bytes -= len(oldest) * _TAIL_BATCH_BYTES
        return tail

    def _read(self, sequence: int, key: Key) -> TailIndex | None:
        path = f"{self._directory}/{sidecar_name(sequence)}"
        file = self._fs.open(path)
        try:
            sidecar = self._directories.get(sequence)
            if sidecar is None:
                sidecar = self._directories[sequence] = decode_directory(file.pread, path)
                if len(self._directories) > _DIRECTORIES_KEPT:
                    self._directories.popitem(last=False)
            entry = sidecar.entries.get(key)
            return None if entry is None else decode_tail(file.pread, entry, path)
        finally:
            file.close()


def scan_tail(file: JournalFile, key: Key) -> TailIndex | None:
    """What the sidecar of a sealed file should say of one partition, from its frames.

    A frame that does not hold is passed over: if that leaves a gap, the read finds it."""
    tail = TailIndex()
    scanner = FrameScanner(file.file.pread, file.sequence, file.size)
    while scanner.position < file.end:
        frame = scanner.next()
        if frame is None:
            frame = scanner.search(scanner.position + 1)
            scanner.position = file.end if frame is None else frame.position
            continue
        position = frame.body_position
        for entry in frame.entries():
            if entry.records and (entry.topic_id, entry.partition) == key:
                base = entry.base_offset
                tail.add(base, base + entry.records, position, entry.size, entry.max_timestamp)
            position += entry.size
    return tail if len(tail) else None


def read_slice(
    file: JournalFile, part: Slice, holes: Sequence[Hole], epochs: Sequence[tuple[int, int]]
) -> Chunk:
    """The bytes of a slice, checked. Damaged if they are not what was appended."""
    check_life(file)
    buffers: list[Buffer] = []
    expected = part.first_offset
    for position, size in part.runs:
        data = file.file.pread(size, position)
        expected = check_run(data, size, expected, holes, epochs, file.path, position)
        buffers.append(data)
    if expected != part.next_offset and behind_holes(holes, expected) != part.next_offset:
        what = f"offset {expected} where the index ends with {part.next_offset}"
        raise Damaged(file.path, part.runs[-1][0], what)
    return Chunk(buffers, part.size, part.first_offset, part.next_offset, JOURNAL)


def check_life(file: JournalFile) -> None:
    """The file must still be in the life in which it was indexed."""
    header = decode_file_header(file.file.pread(FILE_HEADER_SIZE, 0), file.path)
    if header is None or header.sequence != file.sequence:
        raise Damaged(file.path, 0, f"the file is not (or no longer) sequence {file.sequence}")


def behind_holes(holes: Sequence[Hole], offset: int) -> int:
    """The first offset from `offset` on that is in no known hole."""
    for hole in holes:
        if hole.first <= offset <= hole.last:
            offset = hole.last + 1
    return offset


def epoch_of(epochs: Sequence[tuple[int, int]], offset: int) -> int:
    """The leader epoch in which `offset` was given; -1 if there was none yet."""
    for epoch, start in reversed(epochs):
        if start <= offset:
            return epoch
    return -1


def check_run(
    data: bytes,
    size: int,
    expected: int,
    holes: Sequence[Hole],
    epochs: Sequence[tuple[int, int]],
    where: str,
    position: int,
) -> int:
    """Each batch continues the last one (or a known hole) and is whole; the offset behind it."""
    if len(data) < size:
        raise Damaged(where, position, f"{size} bytes expected, {len(data)} are there")
    view = memoryview(data)
    at = 0
    while at < size:
        if size - at < HEADER_SIZE:
            raise Damaged(where, position + at, "no whole batch where the index says one is")
        base, length, epoch, magic = _OUTSIDE_CRC.unpack_from(view, at)
        end = at + length + 12
        if base != expected and base != behind_holes(holes, expected):
            raise Damaged(where, position + at, f"offset {base} where {expected} should be")
        if end > size or length + 12 < HEADER_SIZE:
            raise Damaged(where, position + at, f"a batch of {length + 12} bytes does not fit")
        if magic != MAGIC or epoch != epoch_of(epochs, base) or not crc_holds(view[at:end]):
            raise Damaged(where, position + at, f"the batch at offset {base} is damaged")
        expected = base + _LAST_DELTA.unpack_from(view, at + 23)[0] + 1
        at = end
    return expected
