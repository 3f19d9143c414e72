"""One partition of the log: its numbers, and where its batches are.

Only the owner thread touches this. `log_end` counts what is appended,
`high_watermark` what is durable; readers stop at the latter.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from ister.wal.tail import TailIndex

if TYPE_CHECKING:
    from ister.wal.cache import CachedRun
    from ister.wal.producers import Producers
    from ister.wal.ring import Ring
    from ister.wal.settings import TopicSettings
    from ister.wal.tier.manifest import Manifest


class Hole(NamedTuple):
    """Offsets first..last were durable once and are lost; an operator said to go on."""

    first: int
    last: int
    reason: str


class Partition:
    """Invariant: log_start <= log_end and tiered_end <= high_watermark <= log_end."""

    __slots__ = (
        "cached",
        "epochs",
        "file_bytes",
        "file_sequences",
        "file_starts",
        "file_times",
        "high_watermark",
        "holes",
        "index",
        "live_from",
        "log_end",
        "log_start",
        "manifest",
        "manifest_version",
        "open_tail",
        "producers",
        "removed",
        "ring",
        "sealing",
        "settings",
        "tiered_end",
        "topic_id",
    )

    def __init__(self, topic_id: bytes, index: int, settings: TopicSettings) -> None:
        self.topic_id = topic_id
        self.index = index
        self.settings = settings
        self.log_start = 0
        self.high_watermark = 0
        self.log_end = 0
        self.live_from = 0  # high watermark before the last commit: from here on a read is live
        self.tiered_end = 0
        self.epochs: list[tuple[int, int]] = [(0, 0)]  # (leader epoch, its first offset)
        self.holes: tuple[Hole, ...] = ()
        self.producers: Producers | None = None
        self.ring: Ring | None = None
        self.cached: CachedRun | None = None
        self.open_tail: TailIndex | None = None
        # Files that are sealed and whose sidecar is not written yet.
        self.sealing: dict[int, TailIndex] | None = None
        # For each journal file that holds batches of this partition: first offset, sequence,
        # and, once it is sealed, bytes and largest timestamp of those batches.
        self.file_starts = array("q")
        self.file_sequences = array("q")
        self.file_bytes = array("q")
        self.file_times = array("q")
        self.manifest: Manifest | None = None
        self.manifest_version = -1  # -1: not compared with the bucket since this run began
        self.removed = False

    @property
    def leader_epoch(self) -> int:
        return self.epochs[-1][0]

    def raise_epoch(self) -> None:
        """From here on a new leader epoch: positions of clients are checked anew."""
        epoch, start = self.epochs[-1]
        if start == self.log_end:
            self.epochs[-1] = (epoch + 1, start)
        else:
            self.epochs.append((epoch + 1, self.log_end))

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """(largest known epoch <= `epoch`, the offset at which it ends); (-1, -1) if none."""
        at = bisect_right(self.epochs, (epoch, 1 << 62)) - 1
        if at < 0:
            return -1, -1
        end = self.epochs[at + 1][1] if at + 1 < len(self.epochs) else self.high_watermark
        return self.epochs[at][0], end

    def hole_at(self, offset: int) -> Hole | None:
        for hole in self.holes:
            if hole.first <= offset <= hole.last:
                return hole
        return None

    def file_for(self, offset: int) -> int | None:
        """Number (in `file_starts`) of the file that may hold `offset`; None: colder."""
        at = bisect_right(self.file_starts, offset) - 1
        return at if at >= 0 else None

    def entered_file(self, sequence: int, first_offset: int) -> TailIndex:
        """The open file gets its first batch of this partition."""
        self.found_in_file(sequence, first_offset, 0, -1)
        tail = self.open_tail = TailIndex()
        return tail

    def found_in_file(self, sequence: int, first: int, data_bytes: int, timestamp: int) -> None:
        self.file_starts.append(first)
        self.file_sequences.append(sequence)
        self.file_bytes.append(data_bytes)
        self.file_times.append(timestamp)

    def file_end(self, number: int) -> int:
        """The offset behind the last batch of this partition in its `number`-th file."""
        following = number + 1
        if following < len(self.file_starts):
            return self.file_starts[following]
        return self.high_watermark

    @property
    def earliest_local(self) -> int:
        """The first offset that a journal file holds; where nothing is left, the next one."""
        local = self.file_starts[0] if self.file_starts else self.tiered_end
        return max(local, self.log_start)

    @property
    def last_tiered(self) -> int:
        """The last offset in the bucket; -1: none that still counts."""
        return self.tiered_end - 1 if self.tiered_end > self.log_start else -1

    @property
    def earliest_pending(self) -> int:
        """The first offset that is not in the bucket yet."""
        return max(self.tiered_end, self.log_start)

    @property
    def local_bytes(self) -> int:
        """Bytes of batches in journal files."""
        return sum(self.file_bytes) + (self.open_tail.data_bytes if self.open_tail else 0)

    def left_file(self, sequence: int) -> None:
        """The open file is sealed."""
        if self.open_tail is not None:
            self.file_bytes[-1] = self.open_tail.data_bytes
            self.file_times[-1] = max(self.open_tail.timestamps)
            if self.sealing is None:
                self.sealing = {}
            self.sealing[sequence] = self.open_tail
            self.open_tail = None

    def sidecar_written(self, sequence: int) -> None:
        if self.sealing is not None:
            self.sealing.pop(sequence, None)
            if not self.sealing:
                self.sealing = None

    def files_trimmed_below(self, sequence: int) -> None:
        """Journal files below `sequence` are gone."""
        keep = 0
        while keep < len(self.file_sequences) and self.file_sequences[keep] < sequence:
            keep += 1
        if keep:
            del self.file_starts[:keep], self.file_sequences[:keep]
            del self.file_bytes[:keep], self.file_times[:keep]

    def check(self) -> None:
        """The invariants; for tests."""
        assert 0 <= self.log_start <= self.log_end
        assert self.high_watermark <= self.log_end
        assert self.tiered_end <= self.high_watermark
        assert list(self.file_starts) == sorted(self.file_starts)
        assert [e for e, _ in self.epochs] == sorted({e for e, _ in self.epochs})
