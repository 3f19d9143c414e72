"""The parts list: which concrete classes make a broker, wired from top to bottom.

Opening order: lock, metadata, log (recovery), services. Closing order: stop
ticking, finish jobs on the bucket, end mark and last checkpoint, threads, store.
Nothing else in the code base picks an engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from ister.metadata.catalog import Catalog
from ister.metadata.service import CommitService
from ister.metadata.snapshot import export_snapshot
from ister.metadata.store import Store
from ister.wal import driver as lanes
from ister.wal.clock import Clock, SystemClock
from ister.wal.driver import ThreadDriver
from ister.wal.errors import Contradiction, JournalFailed
from ister.wal.fs import FileSystem, OsFileSystem
from ister.wal.handoff import Handoff
from ister.wal.handoff_service import HandoffService
from ister.wal.housekeeping import Housekeeping
from ister.wal.log import Log
from ister.wal.opening import OpenLog, TopicInfo, close_log, lock_directory, open_log
from ister.wal.settings import LogSettings
from ister.wal.snapshot import write_snapshot
from ister.wal.tier import open_store
from ister.wal.tier.limits import RateLimited
from ister.wal.tier.manifest import key as manifest_key
from ister.wal.tier.object_store import Missing, ObjectStore, StoreUnavailable
from ister.wal.times import TimeIndex
from ister.wal.topic_settings import topic_settings
from ister.wal.topics import Topics

TICK_S = 0.1
METADATA_NAME = "metadata.sqlite"
BUCKET_NAME = "bucket"

Report = Callable[[BaseException], None]


@dataclass(slots=True, kw_only=True)
class Options:
    """What a broker is made of. None: the embedded default."""

    data: str
    bucket_url: str | None = None
    log: LogSettings = field(default_factory=LogSettings)
    topic_defaults: dict[str, str] = field(default_factory=dict)
    fs: FileSystem | None = None
    store: Store | None = None
    bucket: ObjectStore | None = None
    clock: Clock | None = None
    seed: int | None = None


class Storage:
    """An open data directory with everything that keeps it: log, topics, handoff, housekeeping."""

    def __init__(self, options: Options, report: Report) -> None:
        self.options = options
        self.report = report
        self.clock = options.clock or SystemClock()
        self.fs = options.fs or OsFileSystem()
        self.rng = random.Random(options.seed)
        self._closing = threading.Event()
        self.lock = lock_directory(self.fs, options.data)
        with contextlib.ExitStack() as undo:
            undo.callback(self.lock.release)
            self._open(undo)
            undo.pop_all()

    def _open(self, undo: contextlib.ExitStack) -> None:
        options = self.options
        self.bucket: ObjectStore = options.bucket or open_store(
            options.bucket_url or f"file://{_absolute(options.data)}/{BUCKET_NAME}", self.fs
        )
        undo.callback(self.bucket.close)
        if options.log.bucket_requests_per_second:
            self.bucket = RateLimited(
                self.bucket, options.log.bucket_requests_per_second, self.clock, self._wait
            )
        self.store = options.store or _sqlite(f"{options.data}/{METADATA_NAME}")
        undo.callback(self.store.close)
        self.catalog = Catalog.load(self.store)
        if not self.catalog.cluster_id:
            _refuse_foreign_bucket(self.bucket, options.data)
            self.catalog.commit(self.store, self.catalog.found(self.rng))
        self.driver = ThreadDriver(asyncio.get_running_loop())
        undo.callback(self.driver.close)
        self.commits = CommitService(
            self.store, lambda work, done: self.driver.submit(lanes.METADATA, work, done)
        )
        self.opened = self._open_log()
        self.log: Log = self.opened.log
        self.reader = self.opened.reader
        self.times = TimeIndex(self.log, self.opened.sidecars, self.opened.tier)
        self.topics = Topics(
            self.catalog,
            self.commits,
            self.log,
            self.rng,
            options.topic_defaults,
            self.store,
            self.report,
        )
        handoff = Handoff(
            self.bucket,
            self.catalog.cluster_id,
            f"{self.rng.getrandbits(64):016x}",
            self.clock,
            target_bytes=options.log.handoff_bytes,
            delete_grace_ms=options.log.bucket_delete_grace_ms,
        )
        self.handoff = HandoffService(self.opened, handoff, self._topic_name, self.rng, self.report)
        self.housekeeping = Housekeeping(
            self.log,
            self.handoff,
            handoff,
            self.opened.tier,
            self.topics,
            self.catalog,
            self.commits,
            lambda: write_snapshot(
                handoff, export_snapshot(self.store, taken_ms=self.clock.wall_ms())
            ),
            self.rng,
            self.report,
        )
        self.log.on_failed = self._journal_failed
        self.failed_at: float | None = None
        self.bucket_lost = ""  # in words, if what was handed over is not where it was
        self._look_for_bucket()

    def _open_log(self) -> OpenLog:
        return open_log(
            fs=self.fs,
            data=self.options.data,
            lock=self.lock,
            cluster_id=self.catalog.cluster_id,
            topics=[
                TopicInfo(
                    topic.id,
                    topic.name,
                    topic.partitions,
                    topic_settings(topic.configs, self.options.topic_defaults),
                )
                for topic in self.catalog.topics_by_id.values()
            ],
            tombstones=set(self.catalog.tombstones),
            bucket=self.bucket,
            settings=self.options.log,
            clock=self.clock,
            driver=self.driver,
            # Soon, not now: opening asks before there are topics to ask.
            reserve_offsets=lambda *args: self.driver.call_soon(
                lambda: self.topics.reserve_offsets(*args)
            ),
            on_error=self.report,
        )

    def _look_for_bucket(self) -> None:
        """Whether what was handed over is still there. Nothing waits for it.

        A manifest is looked for, not whether there is anything: handoff goes on and makes an
        empty bucket its own, but a manifest that it did not find it does not begin anew."""
        tiered = [each for each in self.log.partitions.values() if each.last_tiered >= 0]
        if not tiered:
            return
        name = manifest_key(tiered[0].topic_id, tiered[0].index)

        def looked(_: object, error: BaseException | None) -> None:
            if isinstance(error, Missing):
                self.bucket_lost = (
                    f"{self.bucket.url} does not hold the records of {len(tiered)} partitions that "
                    "were handed over, so they cannot be read: put it back, or start with the "
                    "right --bucket"
                )
                self.report(Contradiction(self.bucket_lost))

        self.driver.submit(lanes.HANDOFF, lambda: self.bucket.read(name), looked)

    # -- running ---------------------------------------------------------------------

    def tick(self) -> None:
        """Call every TICK_S: decides what of the background work is due."""
        self.handoff.tick()
        self.housekeeping.tick()
        self.opened.checkpointer.retry()
        if self.log.files.full:
            self.log.files.prepare()

    async def run(self) -> None:
        """Tick until cancelled."""
        while True:
            await asyncio.sleep(TICK_S)
            self.tick()

    async def close(self) -> None:
        """Make durable, leave the end mark, let go."""
        self._closing.set()
        closed = asyncio.get_running_loop().create_future()
        close_log(self.opened, lambda: closed.set_result(None))
        await closed
        self.driver.close()
        self.bucket.close()
        self.store.close()

    def _wait(self, seconds: float) -> None:
        """For a call to the bucket whose turn has not come. Who stops waits for none of them."""
        if self._closing.wait(seconds):
            raise StoreUnavailable("the broker is closing; the next run goes on with this")

    def _journal_failed(self, error: JournalFailed) -> None:
        self.failed_at = self.clock.monotonic()
        self.report(error)

    def _topic_name(self, topic_id: bytes) -> str:
        return self.catalog.topics_by_id[topic_id].name


def _sqlite(path: str) -> Store:
    from ister.metadata.sqlite import SqliteStore

    return SqliteStore(path)


def _absolute(path: str) -> str:
    import os

    return os.path.abspath(path)


def _refuse_foreign_bucket(bucket: ObjectStore, data: str) -> None:
    """An empty data directory beside a bucket that has topics would begin a second history."""
    try:
        bucket.read("cluster")
    except Missing:
        return
    except StoreUnavailable as error:
        raise Contradiction(
            f"{data} is empty, and whether the bucket holds the archive of a broker cannot be "
            f"seen: {error}. Start again when the bucket can be reached; from then on it may be "
            "away at any time"
        ) from error
    raise Contradiction(
        f"{data} is empty, but {bucket.url} holds the archive of a broker: "
        f"`ister archive restore {bucket.url} --data {data}` rebuilds the broker from it; "
        "to begin anew, use another bucket"
    )
