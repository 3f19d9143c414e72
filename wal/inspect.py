"""Looking at a data directory without touching it: for `ister log dump` and `verify`.

Works beside a running broker: nothing is opened for writing, no lock is taken.
So the end of the newest file may move while we read; what is not a whole frame
there is reported as the tail, never as damage, unless valid frames stand behind
it. A file that goes or is recycled under our eyes was handed over: it is left out,
and nothing that was found in it counts. (A header is written before the frames that
follow it, so a file that still has its own was not overwritten.)
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

from ister.wal import checkpoint as checkpoints
from ister.wal.batch import crc_holds, read_header
from ister.wal.errors import CorruptBatch, Damaged
from ister.wal.files import SUFFIX, file_name
from ister.wal.frame import (
    FILE_HEADER_SIZE,
    FLAG_END,
    FRAMES_START,
    Entry,
    FileHeader,
    Frame,
    FrameScanner,
    decode_file_header,
)
from ister.wal.fs import File, FileSystem
from ister.wal.opening import CHECKPOINT_DIRECTORY, JOURNAL_DIRECTORY
from ister.wal.sidecar import SUFFIX as SIDECAR_SUFFIX
from ister.wal.sidecar import decode_directory, decode_tail


class FileView(NamedTuple):
    """A journal file that is in use; `end`: where its successor says it ends, or None."""

    sequence: int
    path: str
    size: int
    header: FileHeader
    end: int | None


class BatchView(NamedTuple):
    file: FileView
    commit: int
    position: int
    entry: Entry
    data: memoryview


class FileSummary(NamedTuple):
    file: FileView
    frames: int
    batches: int
    data_bytes: int
    end: int
    ended: bool  # an end mark: stopped cleanly
    tail_bytes: int  # of something behind the last frame that is no frame


class Finding(NamedTuple):
    """Something that is not as it was written."""

    where: str
    position: int
    what: str


def journal_files(fs: FileSystem, data: str) -> tuple[list[FileView], list[Finding]]:
    """The files in use, in order, and headers that cannot be read."""
    directory = f"{data}/{JOURNAL_DIRECTORY}"
    findings: list[Finding] = []
    headers: list[tuple[int, str, int, FileHeader]] = []
    checkpoint, damages = checkpoints.load(fs, f"{data}/{CHECKPOINT_DIRECTORY}")
    findings += [Finding(d.where, d.position, d.what) for d in damages]
    first = checkpoint.first_sequence if checkpoint else 0
    for name in fs.listdir(directory):
        if not name.endswith(SUFFIX):
            continue
        sequence, path = int(name[: -len(SUFFIX)]), f"{directory}/{name}"
        with contextlib.suppress(FileNotFoundError), _opened(fs, path) as file:
            head = file.pread(FILE_HEADER_SIZE, 0)
            header = decode_file_header(head, path)
            if header is None and any(head):
                scanner = FrameScanner(file.pread, sequence, file.size())
                if scanner.search(FRAMES_START) is not None:
                    findings.append(Finding(path, 0, "the file header is damaged"))
            if header is not None and header.sequence == sequence >= first:
                headers.append((sequence, path, file.size(), header))
    replaced = {header.replaces for *_, header in headers}
    live = [found for found in headers if found[0] not in replaced]
    views = []
    missing: list[int] = []
    for (sequence, path, size, header), after in zip(live, [*live[1:], None], strict=True):
        end = after[3].previous_end if after is not None else None
        if after is not None and after[3].previous_sequence != sequence:
            missing.append(after[3].previous_sequence)
            end = None
        views.append(FileView(sequence, path, size, header, end))
    if missing:  # or handed over since the checkpoint was read
        checkpoint, _ = checkpoints.load(fs, f"{data}/{CHECKPOINT_DIRECTORY}")
        first = checkpoint.first_sequence if checkpoint else 0
    for sequence in missing:
        if sequence >= first:
            path = f"{directory}/{file_name(sequence)}"
            findings.append(Finding(path, 0, "this journal file is missing"))
    return views, findings


def batches(fs: FileSystem, view: FileView, findings: list[Finding]) -> Iterator[BatchView]:
    """Every batch (and log start move) of the valid frames of a file; `findings` get the others."""
    with contextlib.suppress(FileNotFoundError), _opened(fs, view.path) as file:
        scanner = FrameScanner(file.pread, view.sequence, view.size)
        wrong: list[Finding] = []
        for frame in _frames(view, scanner, wrong):
            yield from _batches(view, frame)
        if _still_there(file, view):
            findings += wrong


def _batches(view: FileView, frame: Frame) -> Iterator[BatchView]:
    at = 0
    for entry in frame.entries():
        data = frame.body[at : at + entry.size]
        yield BatchView(view, frame.commit, frame.body_position + at, entry, data)
        at += entry.size


def verify_file(fs: FileSystem, view: FileView) -> tuple[FileSummary, list[Finding]]:
    """Read every frame and every batch of a file."""
    findings: list[Finding] = []
    frames = batch_count = data_bytes = tail = 0
    end = FRAMES_START
    ended = False
    with contextlib.suppress(FileNotFoundError), _opened(fs, view.path) as file:
        scanner = FrameScanner(file.pread, view.sequence, view.size)
        for frame in _frames(view, scanner, findings):
            frames += 1
            ended = bool(frame.flags & FLAG_END)
            end = frame.end
            for found in _batches(view, frame):
                if found.entry.records:
                    batch_count += 1
                    data_bytes += found.entry.size
                    findings += _check_batch(found)
        if not ended and view.end is None and scanner.something_at(end):
            tail = len(scanner.claimed(end) or b"") or 1
        if not _still_there(file, view):
            findings.clear()
    return FileSummary(view, frames, batch_count, data_bytes, end, ended, tail), findings


def _frames(view: FileView, scanner: FrameScanner, findings: list[Finding]) -> Iterator[Frame]:
    """The valid frames up to the end that the successor names, else to the last one there is."""
    end = view.size if view.end is None else view.end
    while scanner.position < end:
        frame = scanner.next()
        if frame is not None:
            yield frame
            continue
        position = scanner.position
        following = scanner.search(position + 1)
        if following is None and view.end is None:
            return  # the end, or a tail that is being written
        scanner.position = end if following is None else following.position
        what = f"a frame does not hold; {scanner.position - position} bytes cannot be read"
        findings.append(Finding(view.path, position, what))


def _still_there(file: File, view: FileView) -> bool:
    """Whether the file is still in the life in which it was looked at."""
    header = decode_file_header(file.pread(FILE_HEADER_SIZE, 0), view.path)
    return header is None or header.sequence == view.sequence


@contextlib.contextmanager
def _opened(fs: FileSystem, path: str) -> Iterator[File]:
    file = fs.open(path)
    try:
        yield file
    finally:
        file.close()


def _check_batch(found: BatchView) -> list[Finding]:
    entry = found.entry
    try:
        header = read_header(found.data)
    except CorruptBatch as error:
        return [Finding(found.file.path, found.position, str(error))]
    wrong = []
    if header.base_offset != entry.base_offset or header.count != entry.records:
        wrong.append("the batch is not the one that its frame names")
    if not crc_holds(found.data):
        wrong.append(f"the checksum of the batch at offset {entry.base_offset} does not hold")
    return [Finding(found.file.path, found.position, what) for what in wrong]


def verify_sidecars(fs: FileSystem, data: str, views: list[FileView]) -> list[Finding]:
    """Checksums of the sidecars of the files in use."""
    directory = f"{data}/{JOURNAL_DIRECTORY}"
    findings: list[Finding] = []
    for view in views:
        path = f"{directory}/{view.sequence:020d}{SIDECAR_SUFFIX}"
        try:
            with contextlib.suppress(FileNotFoundError), _opened(fs, path) as file:
                sidecar = decode_directory(file.pread, path)
                for entry in sidecar.entries.values():
                    decode_tail(file.pread, entry, path)
        except Damaged as damage:
            findings.append(Finding(damage.where, damage.position, damage.what))
    return findings
