"""Which journal files count, and in which order: the first half of recovery.

Each file's header names the file before it and where that one ends. So the newest
header leads back to all files that count; whatever else is there is a spare: prewritten
and not entered, trimmed, or replaced by a copy. A replaced file may outlive the copy that
replaced it, so only this walk tells that nothing needs it.

A file that holds frames of its own but no header that holds was damaged (headers are
synced before frames, copies get their name last). Going on past that, the header is
made up from the frames, which stand under their own checksums.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ister.wal.errors import Contradiction, Damaged
from ister.wal.files import SUFFIX, file_name
from ister.wal.frame import (
    FILE_HEADER_SIZE,
    FRAMES_START,
    FileHeader,
    FrameScanner,
    decode_file_header,
    encode_file_header,
)
from ister.wal.fs import File, FileSystem


@dataclass(slots=True)
class Found:
    """A file in the directory."""

    sequence: int
    path: str
    file: File
    size: int
    header: FileHeader | None  # its own; None: empty by the rules

    def scanner(self) -> FrameScanner:
        return FrameScanner(self.file.pread, self.sequence, self.size)

    def frames_end(self) -> int:
        """Where the last frame that holds ends, whatever lies before it."""
        scanner = self.scanner()
        while True:
            while scanner.next() is not None:
                pass
            following = scanner.search(scanner.position + 1)
            if following is None:
                return scanner.position
            scanner.position = following.position


class Chain:
    """The files of one directory. `damaged` notes what is wrong; it raises unless told to go on."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        cluster_id: str,
        first_sequence: int,
        scan_from: int,
        damaged: Callable[[Damaged], None],
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._cluster_id = cluster_id
        self._first = first_sequence
        self._scan_from = scan_from
        self._damaged = damaged
        self.live: list[Found] = []  # in order
        self.spares: list[Found] = []  # nothing needs them

    def find(self) -> None:
        candidates: list[Found] = []
        for name in self._fs.listdir(self._directory):
            if not name.endswith(SUFFIX):
                continue
            found = self._look(int(name[: -len(SUFFIX)]), f"{self._directory}/{name}")
            if found.header is None and found.sequence >= self._first:
                self._make_up_header(found, candidates)
            needed = found.header is not None and found.sequence >= self._first
            (candidates if needed else self.spares).append(found)
        self.live = self._walk(candidates)
        self.spares += [found for found in candidates if found not in self.live]

    def _look(self, sequence: int, path: str) -> Found:
        file = self._fs.open(path, write=True)
        header = decode_file_header(file.pread(FILE_HEADER_SIZE, 0), path)
        if header is not None and header.sequence != sequence:
            header = None  # the header of an earlier life: nothing was written in this one
        if header is not None and header.cluster_id != self._cluster_id:
            raise Contradiction(
                f"{path} belongs to cluster {header.cluster_id}, this directory to "
                f"{self._cluster_id}: these files were mixed; put the right ones back"
            )
        return Found(sequence, path, file, file.size(), header)

    def _make_up_header(self, found: Found, before: list[Found]) -> None:
        """A header that is none: never finished, or hit later. Frames of its own tell."""
        data = found.file.pread(FILE_HEADER_SIZE, 0)
        if not any(data) or decode_file_header(data, found.path) is not None:
            return
        frame = found.scanner().search(FRAMES_START)
        if frame is None:
            return
        self._damaged(Damaged(found.path, 0, "the file header is damaged"))
        # A file that begins with the same commit is the one of which this is a copy.
        previous = [f for f in before if f.header and f.header.first_commit < frame.commit]
        found.header = FileHeader(
            found.sequence,
            previous[-1].sequence if previous else 0,
            previous[-1].frames_end() if previous else 0,
            frame.commit,
            0,
            self._cluster_id,
        )
        found.file.pwrite([encode_file_header(found.header)], 0)  # readers look at it too
        found.file.sync()

    def _walk(self, candidates: list[Found]) -> list[Found]:
        newest = candidates[-1].sequence if candidates else 0
        if newest < self._scan_from:
            self._missing(self._scan_from)
        chain: list[Found] = []
        wanted = newest
        for found in reversed(candidates):
            if found.sequence > wanted:
                continue
            if found.sequence < wanted:
                self._missing(wanted)
            chain.append(found)
            assert found.header is not None
            wanted = found.header.previous_sequence
        if wanted and wanted >= self._first:
            self._missing(wanted)
        return chain[::-1]

    def _missing(self, sequence: int) -> None:
        path = f"{self._directory}/{file_name(sequence)}"
        self._damaged(Damaged(path, 0, "this journal file is missing"))
