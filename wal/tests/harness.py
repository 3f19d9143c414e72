"""A log on a file system in memory, driven step by step: for tests."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from ister.wal.batch import walk
from ister.wal.clock import ManualClock
from ister.wal.driver import InlineDriver
from ister.wal.errors import LogError
from ister.wal.fs import FileSystem
from ister.wal.handoff import Handoff
from ister.wal.handoff_service import HandoffService
from ister.wal.log import Appended, Moment
from ister.wal.memory_fs import MemoryFileSystem
from ister.wal.opening import TopicInfo, close_log, lock_directory, open_log
from ister.wal.partition import Partition
from ister.wal.reader import Chunk
from ister.wal.records import records
from ister.wal.settings import LogSettings, TopicSettings
from ister.wal.tests.batches import make_batch
from ister.wal.tier.memory import MemoryStore
from ister.wal.tier.object_store import ObjectStore

TOPIC = bytes(range(16))
CLUSTER = "AAAAAAAAAAAAAAAAAAAAAA"
SMALL = LogSettings(
    journal_file_bytes=64 * 1024,
    journal_first_file_bytes=16 * 1024,
    commit_bytes_max=16 * 1024,
    cache_bytes=8 * 1024,
    handoff_bytes=16 * 1024,
    handoff_ms=60_000,
    spare_bytes=0,
)


class Harness:
    """One data directory; `open` and `crash` as often as you like."""

    def __init__(
        self,
        fs: FileSystem | None = None,
        *,
        bucket: ObjectStore | None = None,
        settings: LogSettings = SMALL,
        topics: list[TopicInfo] | None = None,
        data: str = "data",
        clock: ManualClock | None = None,
        seed: int = 0,
    ) -> None:
        self.fs = fs or MemoryFileSystem()
        self.bucket = bucket or MemoryStore()
        self.settings = settings
        self.topics = topics or [TopicInfo(TOPIC, "t", 2, TopicSettings())]
        self.tombstones: set[bytes] = set()
        self.data = data
        self.clock = clock or ManualClock()
        self.rng = random.Random(seed)
        self.errors: list[BaseException] = []
        self.runs = 0
        self.blocks: dict[tuple[bytes, int], int] = {}

    def open(self) -> Harness:
        self.runs += 1
        self.driver = InlineDriver()
        lock = lock_directory(self.fs, self.data)
        self.opened = open_log(
            fs=self.fs,
            data=self.data,
            lock=lock,
            cluster_id=CLUSTER,
            topics=self.topics,
            tombstones=self.tombstones,
            bucket=self.bucket,
            settings=self.settings,
            clock=self.clock,
            driver=self.driver,
            reserve_offsets=self._reserve,
            on_error=self.errors.append,
        )
        self.log = self.opened.log
        self.reader = self.opened.reader
        self.handoff = Handoff(
            self.bucket,
            CLUSTER,
            f"run-{self.runs}",
            self.clock,
            target_bytes=self.settings.handoff_bytes,
            delete_grace_ms=self.settings.bucket_delete_grace_ms,
        )
        self.service = HandoffService(
            self.opened,
            self.handoff,
            self.topic_name,
            self.rng,
            self.errors.append,
        )
        return self

    def topic_name(self, topic_id: bytes) -> str:
        return next(t.name for t in self.topics if t.topic_id == topic_id)

    def run(self) -> None:
        self.driver.run_until_idle()

    def tick(self, seconds: float = 0.0) -> None:
        self.clock.advance(seconds)
        self.service.tick()
        self.run()

    def close(self) -> None:
        closed: list[bool] = []
        close_log(self.opened, lambda: closed.append(True))
        self.run()
        assert closed

    def partition(self, index: int = 0, topic_id: bytes = TOPIC) -> Partition:
        return self.log.partition(topic_id, index)

    def append(
        self,
        *values: bytes,
        index: int = 0,
        topic_id: bytes = TOPIC,
        moment: Moment = Moment.DURABLE,
        done: Callable[[LogError | None], None] = lambda _: None,
        **fields: int,
    ) -> Appended:
        """Queue one batch; `run` makes it durable."""
        fields.setdefault("base_timestamp", self.clock.wall_ms())
        data = make_batch(list(values), **fields)  # type: ignore[arg-type]
        return self.log.append(self.partition(index, topic_id), data, moment, done)

    def read(
        self, offset: int, max_bytes: int = 1 << 20, index: int = 0, topic_id: bytes = TOPIC
    ) -> Chunk:
        answers: list[tuple[Chunk | None, LogError | None]] = []
        self.reader.read(
            self.partition(index, topic_id),
            offset,
            max_bytes,
            lambda c, e: answers.append((c, e)),
        )
        self.run()
        ((chunk, error),) = answers
        if error is not None:
            raise error
        assert chunk is not None
        return chunk

    def values(
        self, start: int = 0, index: int = 0, max_bytes: int = 1 << 20, topic_id: bytes = TOPIC
    ) -> list[bytes]:
        """All values from `start` to the high watermark, read as a consumer would."""
        return [value for _, value in self.records(start, index, max_bytes, topic_id)]

    def records(
        self, start: int = 0, index: int = 0, max_bytes: int = 1 << 20, topic_id: bytes = TOPIC
    ) -> Iterator[tuple[int, bytes]]:
        """(offset, value) from `start` to the high watermark, read as a consumer would."""
        offset = start
        while offset < self.partition(index, topic_id).high_watermark:
            chunk = self.read(offset, max_bytes, index, topic_id)
            assert chunk.buffers, f"empty read at {offset}"
            assert chunk.size == sum(map(len, chunk.buffers))
            yield from self.in_chunk(chunk, offset)
            assert chunk.next_offset > offset
            offset = chunk.next_offset

    def in_chunk(self, chunk: Chunk, start: int) -> Iterator[tuple[int, bytes]]:
        """The records of a chunk, from `start` on."""
        data = b"".join(chunk.buffers)
        for position, size, _ in walk(data):
            for record in records(data[position : position + size]):
                if record.offset >= start:
                    yield record.offset, record.value or b""

    def _reserve(
        self, topic_id: bytes, partition: int, count: int, done: Callable[[int, int], None]
    ) -> None:
        first = self.blocks.get((topic_id, partition), 0)
        end = self.blocks[topic_id, partition] = first + count
        self.driver.call_soon(lambda: done(first, end))
