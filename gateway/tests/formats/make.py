"""Write the next pair: `python -m ister.gateway.tests.formats.make NUMBER`.

One life that leaves something of everything: records in the bucket, in sealed files and in
the open one, an idempotent producer, compression, a moved log start, a known hole, a higher
epoch, cursors, a deleted topic, a non-reliable one, a snapshot of metadata.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ister.gateway.app import Options, Storage
from ister.gateway.tests.formats.look import FORMATS, describe
from ister.metadata.catalog import Topic
from ister.metadata.cursors import Cursor, commit_cursors
from ister.wal.clock import ManualClock
from ister.wal.log import Moment
from ister.wal.settings import LogSettings
from ister.wal.tests.batches import make_batch

SETTINGS: dict[str, Any] = {
    "journal_file_bytes": 16 * 1024,
    "journal_first_file_bytes": 8 * 1024,
    "journal_ready_files": 1,
    "journal_pool_files": 1,
    "commit_bytes_max": 4 * 1024,
    "spare_bytes": 0,
    "handoff_ms": 60_000,
    "handoff_bytes": 16 * 1024,
    "housekeeping_interval_ms": 30_000,
    "bucket_requests_per_second": 0,  # the clock stands still while it waits
}
CODECS = 5
PRODUCER = 7
SENT = 14  # batches, more than one journal file takes


class Life:
    """One run of a broker's storage."""

    def __init__(self, data: Path, clock: ManualClock, **settings: Any) -> None:
        self.clock = clock
        log = LogSettings(**SETTINGS, **settings)
        self.errors: list[BaseException] = []
        self.storage = Storage(
            Options(data=str(data), log=log, clock=clock, seed=int(clock.monotonic())),
            self.errors.append,
        )

    async def done(self, begin: Callable[[Callable[[Any], None]], Any]) -> Any:
        """What `begin` returns, once it has called back without an error."""
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        result = begin(answered.set_result)
        assert await answered is None
        return result

    async def create(self, name: str, partitions: int = 1, **configs: str) -> Topic:
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        topic = await self.done(
            lambda done: self.storage.topics.create(name, partitions, settings, done)
        )
        assert isinstance(topic, Topic)
        return topic

    async def append(self, topic: Topic, index: int, *values: bytes, **fields: Any) -> None:
        data = make_batch(list(values), base_timestamp=self.clock.wall_ms(), **fields)
        partition = self.storage.log.partition(topic.id, index)
        await self.done(lambda done: self.storage.log.append(partition, data, Moment.DURABLE, done))

    async def hand_off(self) -> None:
        """Until everything is in the bucket, and the snapshot with it."""
        for _ in range(20):
            self.clock.advance(61)
            self.storage.tick()
            while self.storage.handoff.busy:  # noqa: ASYNC110  a tool, and nothing tells
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.02)
        assert self.errors == []


async def first_life(data: Path, clock: ManualClock) -> None:
    """Ends clean; one record in the middle is then damaged."""
    life = Life(data, clock)
    orders = await life.create("orders", 2, retention_ms="-1")
    for number in range(3):
        await life.append(orders, 1, b"orders 1: %d" % number)
    await life.storage.close()


def damage(data: Path) -> None:
    for path in (data / "journal").glob("*.log"):
        content = bytearray(path.read_bytes())
        at = content.find(b"orders 1: 1")
        if at >= 0:
            content[at] ^= 0xFF
            path.write_bytes(content)


async def second_life(data: Path, clock: ManualClock, copy: Path) -> None:
    """Goes on past the damage, and is killed."""
    life = Life(data, clock, continue_past_damage=True)
    storage = life.storage
    orders = storage.catalog.topics_by_name["orders"]
    for codec in range(CODECS):
        await life.append(orders, 0, b"codec %d" % codec, b"again", codec=codec)
    gone = await life.create("gone")
    await life.append(gone, 0, b"gone")
    await life.hand_off()
    await life.done(lambda done: storage.topics.delete(gone, done))
    news = await life.create("news", 1, ister_dispatch_mode="non-reliable")
    await asyncio.sleep(0.1)
    await life.append(news, 0, b"news")
    cursor = Cursor(offset=4, leader_epoch=1, metadata="of mine", time_ms=clock.wall_ms())
    commit = commit_cursors(orders.id, "readers", {0: cursor})
    await life.done(lambda done: storage.commits.commit(commit, done))
    await life.hand_off()
    for sequence in range(SENT):
        await life.append(
            orders,
            0,
            b"sent %d" % sequence + bytes(1200),
            producer_id=PRODUCER,
            producer_epoch=0,
            base_sequence=sequence,
        )
    partition = storage.log.partition(orders.id, 0)
    await life.done(lambda done: storage.log.move_log_start(partition, 3, done))
    await life.append(orders, 1, b"last")
    await asyncio.sleep(0.2)
    assert life.errors == []
    shutil.copytree(data, copy)  # as a kill would leave it
    await storage.close()


def main(number: str) -> None:
    here = Path(__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        data, copy = Path(folder, "data"), Path(folder, "copy")
        clock = ManualClock()
        asyncio.run(first_life(data, clock))
        damage(data)
        clock.advance(10)
        asyncio.run(second_life(data, clock, copy))
        with tarfile.open(here / f"{number}.tar.xz", "w:xz") as archive:
            archive.add(copy, "data", filter=_plain)
        found = {"formats": FORMATS, **asyncio.run(describe(copy, clock))}
    (here / f"{number}.json").write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = 0
    return entry


if __name__ == "__main__":
    main(sys.argv[1])
