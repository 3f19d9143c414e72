"""The wired log on real files and threads: writers, readers, handoff and recycling together."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from ister.gateway.app import Options, Storage
from ister.metadata.catalog import Topic
from ister.wal import driver as lanes
from ister.wal.batch import walk
from ister.wal.errors import Contradiction, LogError, StorageFull
from ister.wal.log import Moment
from ister.wal.partition import Partition
from ister.wal.reader import Chunk
from ister.wal.records import records
from ister.wal.settings import LogSettings
from ister.wal.tests.batches import make_batch
from ister.wal.tier.faulty import FaultyStore
from ister.wal.tier.memory import MemoryStore
from ister.wal.tier.owner import bind_cluster

SETTINGS = LogSettings(
    journal_file_bytes=256 * 1024,
    journal_first_file_bytes=64 * 1024,
    commit_bytes_max=64 * 1024,
    cache_bytes=64 * 1024,
    handoff_bytes=256 * 1024,
    handoff_ms=200,
)
PARTITIONS = 3
BATCHES = 3000


async def create(storage: Storage, name: str) -> Topic:
    made: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
    topic = storage.topics.create(name, PARTITIONS, {}, made.set_result)
    assert await made is None
    return topic


async def append(storage: Storage, partition: Partition, value: bytes) -> None:
    done: asyncio.Future[LogError | None] = asyncio.get_running_loop().create_future()
    data = make_batch([value], base_timestamp=storage.clock.wall_ms())
    while True:
        try:
            storage.log.append(partition, data, Moment.DURABLE, done.set_result)
            break
        except StorageFull:  # retriable: the next file is being prepared
            await asyncio.sleep(0.002)
    assert await done is None


async def write(storage: Storage, partition: Partition) -> None:
    pending: list[asyncio.Task[None]] = []
    async with asyncio.TaskGroup() as group:
        for number in range(BATCHES):
            pending.append(
                group.create_task(append(storage, partition, b"%d" % number + bytes(200)))
            )
            if number % 20 == 19:
                await pending[-1]


async def read(storage: Storage, partition: Partition, offset: int) -> Chunk:
    done: asyncio.Future[tuple[Chunk | None, LogError | None]] = (
        asyncio.get_running_loop().create_future()
    )
    storage.reader.read(partition, offset, 4000, lambda c, e: done.set_result((c, e)))
    chunk, error = await done
    if error is not None:
        raise error
    assert chunk is not None
    return chunk


async def handed_over(storage: Storage) -> None:
    """Nobody is told of an upload, so look again and again."""
    for wait in itertools.repeat(0.01):
        if storage.handoff.objects:
            return
        await asyncio.sleep(wait)


async def follow(storage: Storage, partition: Partition, pause_s: float) -> list[int]:
    """Every value in order, as a reader that takes its time."""
    seen: list[int] = []
    offset = 0
    while len(seen) < BATCHES:
        chunk = await read(storage, partition, offset)
        data = b"".join(chunk.buffers)
        for position, size, _ in walk(data):
            for record in records(data[position : position + size]):
                if record.offset >= offset:
                    assert record.offset == len(seen)
                    assert record.value is not None
                    seen.append(int(record.value.rstrip(b"\0")))
        offset = max(offset, chunk.next_offset)
        await asyncio.sleep(pause_s if chunk.size else 0.005)
    return seen


def test_slow_and_quick_readers_miss_nothing(tmp_path: Path) -> None:
    """Cache, journal files and bucket under a log that rotates, hands off and recycles."""
    errors: list[BaseException] = []

    async def run() -> None:
        storage = Storage(Options(data=str(tmp_path / "data"), log=SETTINGS), errors.append)
        topic = await create(storage, "t")
        parts = [storage.log.partition(topic.id, n) for n in range(PARTITIONS)]
        async with asyncio.TaskGroup() as group:
            ticking = group.create_task(storage.run())
            writers = [group.create_task(write(storage, part)) for part in parts]
            quick = [group.create_task(follow(storage, part, 0)) for part in parts]
            slow = group.create_task(follow(storage, parts[0], 0.002))
            for task in (*writers, *quick, slow):
                await task
            async with asyncio.timeout(60):
                await handed_over(storage)
            # Everything is written, far more than the cache holds: this one must read files.
            late = group.create_task(follow(storage, parts[0], 0))
            await late
            ticking.cancel()
        for task in (*quick, slow, late):
            assert task.result() == list(range(BATCHES))
        assert sum(each.count for each in storage.reader.seconds.values()) > 0
        await storage.close()

    asyncio.run(run())
    assert errors == []


def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    """Topics, offsets and what was handed off; another topic of the name begins anew."""
    errors: list[BaseException] = []

    async def first() -> bytes:
        storage = Storage(Options(data=str(tmp_path / "data"), log=SETTINGS), errors.append)
        topic = await create(storage, "t")
        await write(storage, storage.log.partition(topic.id, 0))
        await storage.close()
        return topic.id

    async def second(topic_id: bytes) -> None:
        storage = Storage(Options(data=str(tmp_path / "data"), log=SETTINGS), errors.append)
        partition = storage.log.partition(topic_id, 0)
        assert await follow(storage, partition, 0) == list(range(BATCHES))
        gone: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        storage.topics.delete(storage.catalog.topics_by_name["t"], gone.set_result)
        assert await gone is None
        again = await create(storage, "t")
        assert again.id != topic_id
        assert storage.log.partition(again.id, 0).log_end == 0
        await storage.close()

    asyncio.run(second(asyncio.run(first())))
    assert errors == []


def test_a_first_start_needs_the_bucket_and_no_other_does(tmp_path: Path) -> None:
    """A second history must not begin beside one that cannot be seen; later nothing asks."""
    bucket = FaultyStore(MemoryStore(), random.Random(1))

    async def open_and_close() -> None:
        storage = Storage(Options(data=str(tmp_path / "data"), bucket=bucket), errors.append)
        await storage.close()

    errors: list[BaseException] = []
    bucket.down()
    with pytest.raises(Contradiction, match="when the bucket can be reached"):
        asyncio.run(open_and_close())
    bucket.up()
    asyncio.run(open_and_close())
    bucket.down()
    asyncio.run(open_and_close())
    assert errors == []


def test_a_bucket_that_is_gone_is_told_at_the_start(tmp_path: Path) -> None:
    """Records were handed over to it: nobody should find out by reading. Being away is no loss."""
    errors: list[BaseException] = []

    async def first() -> None:
        bucket = FaultyStore(MemoryStore(), random.Random(1))
        options = Options(data=str(tmp_path / "data"), log=SETTINGS, bucket=bucket)
        storage = Storage(options, errors.append)
        partition = storage.log.partition((await create(storage, "t")).id, 0)
        await append(storage, partition, b"x")
        async with asyncio.timeout(30):
            while partition.last_tiered < 0:
                storage.tick()
                await asyncio.sleep(0.01)
        await storage.close()

    async def again(down: bool) -> str:
        bucket = FaultyStore(MemoryStore(), random.Random(1))
        bind_cluster(bucket, "a run on the empty bucket has been here")
        if down:
            bucket.down()
        options = Options(data=str(tmp_path / "data"), log=SETTINGS, bucket=bucket)
        storage = Storage(options, errors.append)
        looked = asyncio.get_running_loop().create_future()
        storage.driver.submit(lanes.HANDOFF, lambda: None, lambda *_: looked.set_result(None))
        await looked
        await storage.close()
        return storage.bucket_lost

    asyncio.run(first())
    assert asyncio.run(again(down=True)) == ""
    assert errors == []
    assert "does not hold the records of 1 partitions" in asyncio.run(again(down=False))
    assert [type(each) for each in errors] == [Contradiction]


def test_a_bucket_that_hangs_holds_up_nobody(tmp_path: Path) -> None:
    """An upload that takes for ever: appends become durable, files rotate, the backlog grows."""
    errors: list[BaseException] = []
    hanging, go_on = threading.Event(), threading.Event()

    def hang(_: float) -> None:
        hanging.set()
        assert go_on.wait(60)

    bucket = FaultyStore(MemoryStore(), random.Random(1), sleep=hang)
    bucket.delay(1.0, "put")

    async def run() -> None:
        options = Options(data=str(tmp_path / "data"), log=SETTINGS, bucket=bucket)
        storage = Storage(options, errors.append)
        topic = await create(storage, "t")
        parts = [storage.log.partition(topic.id, n) for n in range(PARTITIONS)]
        async with asyncio.TaskGroup() as group:
            ticking = group.create_task(storage.run())
            await write(storage, parts[0])
            assert await asyncio.to_thread(hanging.wait, 60)
            before = storage.handoff.backlog_bytes
            await write(storage, parts[1])  # every batch of it durable
            assert storage.handoff.backlog_bytes > before
            assert storage.handoff.objects == 0
            bucket.clear()
            go_on.set()
            async with asyncio.timeout(60):
                await handed_over(storage)
            ticking.cancel()
        assert await follow(storage, parts[1], 0) == list(range(BATCHES))
        await storage.close()

    asyncio.run(run())
    assert errors == []


def test_closing_waits_for_no_turn_at_the_bucket(tmp_path: Path) -> None:
    """A pass over many partitions at one request a second: it ends where it is, in silence."""
    errors: list[BaseException] = []
    settings = replace(SETTINGS, bucket_requests_per_second=1, handoff_ms=1)

    async def run() -> None:
        storage = Storage(Options(data=str(tmp_path / "data"), log=settings), errors.append)
        made = [await create(storage, f"t{number}") for number in range(100)]
        parts = [storage.log.partition(topic.id, 0) for topic in made]
        for part in parts:
            await append(storage, part, b"x")
        async with asyncio.TaskGroup() as group:
            ticking = group.create_task(storage.run())
            async with asyncio.timeout(60):
                for wait in itertools.repeat(0.01):
                    if storage.handoff.busy:
                        break
                    await asyncio.sleep(wait)
            ticking.cancel()
        async with asyncio.timeout(60):  # the pass alone would take minutes
            await storage.close()
        assert any(part.tiered_end == 0 for part in parts)

    asyncio.run(run())
    assert errors == []
