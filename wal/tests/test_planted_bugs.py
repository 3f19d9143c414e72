"""A test of the tests: one promise is broken on purpose, and the checks must notice.

Each case runs the same check with and without the bug, so that it is the bug that is
noticed and not something else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ister.wal import chain, frame
from ister.wal.errors import LogError
from ister.wal.frame import FileHeader
from ister.wal.handoff import Handoff
from ister.wal.memory_fs import MemoryFileSystem
from ister.wal.memory_image import Inode
from ister.wal.merge import merge
from ister.wal.sweep import sweep_doomed
from ister.wal.tests.crash_kit import World, photographs, short_life, some_points, survive
from ister.wal.tests.harness import CLUSTER, SMALL, Harness
from ister.wal.tier import moves
from ister.wal.tier.chunk_cache import ChunkCache, TierReader
from ister.wal.tier.manifest import encode
from ister.wal.tier.memory import MemoryStore
from ister.wal.tier.moves import Versioned, load
from ister.wal.tier.upload import Uploader

pytestmark = pytest.mark.fault

MakeFs = Callable[[], MemoryFileSystem]


def lost_by_a_cut(make_fs: MakeFs = MemoryFileSystem, share: float = 0.15) -> int:
    """How many power cuts of a sample do harm."""
    left = photographs(World(make_fs()), short_life, some_points(3, share))
    return sum(map(does_harm, left))


def does_harm(left: Any) -> bool:
    try:
        survive(left)
    except (AssertionError, LogError, OSError):
        return True
    return False


class NoSync(MemoryFileSystem):
    """A sync of the journal that returns at once."""

    def _sync(self, path: str, inode: Inode) -> None:
        if "journal" in path:
            self._point("sync", path)
        else:
            super()._sync(path, inode)


class NoDirectorySync(MemoryFileSystem):
    """Names are never made durable."""

    def sync_dir(self, path: str) -> None:
        self._point("sync_dir", path)


def test_without_a_bug_nothing_is_noticed() -> None:
    """The same sample as below."""
    assert lost_by_a_cut() == 0


@pytest.mark.parametrize("make_fs", [NoSync, NoDirectorySync])
def test_a_missing_sync_is_noticed(make_fs: MakeFs) -> None:
    """Acked records vanish with the power."""
    assert lost_by_a_cut(make_fs) > 0


def test_a_missing_sequence_check_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The former life of a recycled file is taken for its present one."""
    real_header = frame.decode_file_header
    real_claimed = frame.claimed_frame_size
    real_decode = frame.decode_frame

    def header(data: bytes, where: str) -> FileHeader | None:
        found = real_header(data, where)
        return found and found._replace(sequence=int(where[-24:-4]))

    def claimed(data: Any, sequence: int, position: int) -> int | None:
        return real_claimed(data, _sequence_in(data), position)

    def decode(data: memoryview, at: int, position: int, sequence: int) -> frame.Frame | None:
        return real_decode(data, at, position, _sequence_in(data[at:]))

    monkeypatch.setattr(chain, "decode_file_header", header)
    monkeypatch.setattr(frame, "claimed_frame_size", claimed)
    monkeypatch.setattr(frame, "decode_frame", decode)
    with pytest.raises(LogError):  # no power cut is needed: the next opening meets them
        lost_by_a_cut()


def _sequence_in(data: Any) -> int:
    return int.from_bytes(bytes(data[8:16]), "little")


def test_trimming_before_the_manifest_moves_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the two the records are nowhere that anybody knows of."""
    real_move = moves.move
    real_open = World.open
    worlds: list[World] = []

    def opened(world: World) -> None:
        worlds.append(world)
        real_open(world)

    def move(*arguments: Any, **named: Any) -> Versioned:
        trim_now(worlds[-1])
        return real_move(*arguments, **named)

    monkeypatch.setattr(World, "open", opened)
    monkeypatch.setattr(moves, "move", move)
    assert lost_by_a_cut(share=0.5) > 0


def trim_now(world: World) -> None:
    """As if what was just uploaded were in the manifests already."""
    log = world.harness.log
    below = 0
    for partition in log.partitions.values():
        for number, sequence in enumerate(partition.file_sequences):
            if sequence in log.sealed and log.sealed[sequence].pins:
                partition.tiered_end = max(partition.tiered_end, partition.file_end(number))
                below = max(below, sequence + 1)
    if below:
        world.harness.opened.checkpointer.trim(below)
        world.run()


# -- the bucket ------------------------------------------------------------------------


def handed_off_under_a_taken_name() -> bool:
    """Whether all records can be read when the name of the next object is already taken."""
    bucket = MemoryStore()
    bucket.put("shared/0000000001-0000000001", [b"something else"])
    harness = Harness(bucket=bucket, settings=replace(SMALL, cache_bytes=0)).open()
    for number in range(10):
        harness.append(b"%d" % number)
    harness.run()
    for _ in range(4):
        harness.tick(61)
    assert harness.log.sealed == {}
    try:
        return harness.values() == [b"%d" % number for number in range(10)]
    except LogError:
        return False


def test_a_412_that_is_not_looked_at_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is taken is a success only if the bytes are ours."""
    assert handed_off_under_a_taken_name()
    monkeypatch.setattr(Uploader, "_is_there", lambda *_: True)
    assert not handed_off_under_a_taken_name()


def read_on_after_a_move(delete_grace_ms: int) -> bool:
    """Whether a reader that planned on a manifest can finish when its entries have left."""
    bucket = MemoryStore()
    harness = Harness(bucket=bucket).open()
    for number in range(20):  # enough entries to be merged into an object of its own
        harness.append(b"%d" % number)
        harness.run()
        for _ in range(3):
            harness.tick(61)
    partition = harness.partition()
    harness.close()
    handoff = Handoff(
        bucket, CLUSTER, "next", harness.clock, target_bytes=1000, delete_grace_ms=delete_grace_ms
    )
    reader = TierReader(bucket, ChunkCache(bytes_max=0))
    known = load(bucket, partition.topic_id, partition.index)
    assert known is not None
    known = merge(handoff, reader, known)
    planned = known.manifest
    own = next(entry for entry in planned.entries if entry.object.startswith("segments/"))
    moved = planned.with_log_start(
        own.last_offset + 1,
        owner_epoch=handoff.owner_epoch,
        delete_after_ms=handoff.delete_after_ms(),
    )
    version = bucket.swap(moved.where, encode(moved), known.version)
    sweep_doomed(handoff, Versioned(moved, version))
    try:
        return reader.read(planned, own.first_offset, 100)[0].base_offset == own.first_offset
    except LogError:
        return False


def test_deleting_without_grace_is_noticed() -> None:
    """A reader that planned on the older manifest finishes within the grace time."""
    assert read_on_after_a_move(delete_grace_ms=60_000)
    assert not read_on_after_a_move(delete_grace_ms=0)
