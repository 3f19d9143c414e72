"""The end of deleted topics: tombstones in the bucket, then objects, then all memory of them.

A topic is deleted when the metadata says so (`topics.py`). What follows may take a day
and any number of restarts; each step may fail or die and is simply run again:

1. *Bury.* Every partition gets a tombstone for a manifest, whether it had one or not: a
   first move whose reply was lost could still be on its way, and a restore from an older
   snapshot must see that the topic is gone.
2. *Clear.* After the grace time its objects are deleted. Then a new snapshot of the
   metadata, which knows nothing of the topic, is written, and only then do the tombstones
   leave the bucket: whichever of the two a restore finds, the topic does not come back.
   (A restore that must fall back to an older snapshot, because the newest is damaged, says so.)
3. *Forget.* The tombstone in the metadata goes when the bucket is clear and no journal
   file can hold a frame of the id: until then such a frame must be told from a contradiction.

Steps on the bucket run in the HANDOFF lane, a few partitions at a time, so that the end of
a large topic does not keep the others from being handed off. `Burials` only says what is
next; `Housekeeping` runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from ister.metadata.catalog import Catalog, Tombstone
from ister.wal.handoff import Handoff
from ister.wal.log import Log
from ister.wal.retention import RetentionClock
from ister.wal.sweep import forget_tombstone, sweep_doomed
from ister.wal.topics import Topics

_SLICE = 100  # partitions in one job


@dataclass(slots=True)
class _Burial:
    """How far the end of one topic has come, in this run."""

    buried: int = 0  # partitions with a tombstone in the bucket
    clear_after_ms: int = 0  # when the last of their objects may go
    cleared: int = 0  # partitions of which the bucket holds nothing any more
    forgetting: bool = False


class _Buried(NamedTuple):
    partitions: int
    clear_after_ms: int


Step = tuple[Callable[[], object], Callable[[object], None]]  # work in the lane, then on the owner


class Burials:
    """What is to be done for each tombstone of the catalog."""

    def __init__(
        self,
        log: Log,
        clock: RetentionClock,
        handoff: Handoff,
        topics: Topics,
        catalog: Catalog,
        write_snapshot: Callable[[], object],
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._log = log
        self._clock = clock
        self._handoff = handoff
        self._topics = topics
        self._catalog = catalog
        self._write_snapshot = write_snapshot
        self._on_error = on_error
        self._burials: dict[bytes, _Burial] = {}

    def steps(self) -> Iterator[tuple[bytes, Step]]:
        """Steps on the bucket that are due, with the topic they are for."""
        now_ms = self._clock.now_ms()  # None: nothing goes by time
        for topic_id, tombstone in self._catalog.tombstones.items():
            burial = self._burials.setdefault(topic_id, _Burial())
            if burial.buried < tombstone.partitions:
                yield topic_id, self._bury(tombstone, burial)
            elif burial.cleared < tombstone.partitions and (now_ms or 0) >= burial.clear_after_ms:
                yield topic_id, self._clear(tombstone, burial)

    def forget(self) -> None:
        """Let go of the tombstones that nothing needs any more."""
        for topic_id, tombstone in list(self._catalog.tombstones.items()):
            burial = self._burials.get(topic_id)
            if burial is None or burial.forgetting or burial.cleared < tombstone.partitions:
                continue
            if self._is_gone_locally(topic_id):
                burial.forgetting = True
                self._topics.forget(topic_id, partial(self._forgotten, topic_id))

    def _is_gone_locally(self, topic_id: bytes) -> bool:
        oldest = min([*self._log.sealed, self._log.journal.file.sequence])
        return oldest > self._topics.barriers[topic_id]

    def _forgotten(self, topic_id: bytes, error: BaseException | None) -> None:
        if error is None:
            del self._burials[topic_id]
        else:
            self._burials[topic_id].forgetting = False
            self._on_error(error)

    # -- in the HANDOFF lane -----------------------------------------------------------

    def _bury(self, tombstone: Tombstone, burial: _Burial) -> Step:
        first = burial.buried

        def work() -> _Buried:
            grace_ms = self._handoff.delete_grace_ms
            after_ms = tombstone.deleted_ms + grace_ms
            stop = min(first + _SLICE, tombstone.partitions)
            for partition in range(first, stop):
                known = self._handoff.bury(tombstone.id, tombstone.name, partition)
                after_ms = max([after_ms, *(line.after_ms for line in known.manifest.to_delete)])
            return _Buried(stop, after_ms)

        def done(result: object) -> None:
            assert isinstance(result, _Buried)
            burial.buried = result.partitions
            burial.clear_after_ms = max(burial.clear_after_ms, result.clear_after_ms)

        return work, done

    def _clear(self, tombstone: Tombstone, burial: _Burial) -> Step:
        first = burial.cleared

        def work() -> int:
            stop = min(first + _SLICE, tombstone.partitions)
            for partition in range(first, stop):
                sweep_doomed(
                    self._handoff, self._handoff.bury(tombstone.id, tombstone.name, partition)
                )
            self._write_snapshot()
            for partition in range(first, stop):
                if not forget_tombstone(self._handoff, tombstone.id, partition):
                    return partition
            return stop

        def done(result: object) -> None:
            assert isinstance(result, int)
            if result == first:  # its objects may not go yet after all: look again when
                burial.buried = first
            burial.cleared = result

        return work, done
