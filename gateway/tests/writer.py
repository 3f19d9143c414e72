"""A broker core in a process of its own, told by lines on stdin what to do: for tests that kill it.

`python -m ister.gateway.tests.writer DATA OPTIONS`, where OPTIONS is JSON: `settings` (fields of
LogSettings), `seed`, `clock_speed`. It opens `gateway.app.Storage` and runs the loop of
`gateway.serve`, so it leaves with the same exit codes. What it says is one line each, written at
once, so that whoever reads it knows nothing but what this process knew when it died:

    opened CUT CLEAN                    recovery is done
    created NAME / deleting NAME / deleted NAME
    acked PARTITION OFFSET DIGEST       one record, durable
    seen PARTITION OFFSET DIGEST        one record that a reader at the head was given
    at MOMENT SECONDS                   since the command `time`: written, durable, head or read
    refused ERROR                       an append failed
    record TOPIC PARTITION OFFSET DIGEST / end TOPIC PARTITION START END / dumped

Commands: load (append for ever), append, time, dump, hurry (what waits is due), stop.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import sys
from collections.abc import Callable, Iterator

from ister.gateway.app import Options, Storage
from ister.gateway.cli.exits import CLEAN, DISK_FAILED, guard
from ister.gateway.serve import _until
from ister.metadata.catalog import Topic
from ister.wal.batch import walk
from ister.wal.clock import Clock, SystemClock
from ister.wal.errors import LogError, StorageFull
from ister.wal.log import Moment
from ister.wal.partition import Partition
from ister.wal.reader import Chunk
from ister.wal.records import records
from ister.wal.settings import LogSettings
from ister.wal.tests.batches import make_batch

TOPIC = "t"
PARTITIONS = 3
IN_FLIGHT_MAX = 8  # batches of one partition
TICK_S = 0.02  # more often than a broker: the lives of this process are short
CHURN_EVERY = 40  # acks between two changes of the metadata
READ_BYTES = 64 * 1024
HURRY = 1e6  # times as fast


class FastClock:
    """A clock on which waiting is long or short, as the test needs it."""

    def __init__(self, inner: Clock, speed: float) -> None:
        self._inner = inner
        self.speed = speed

    def wall_ms(self) -> int:
        return self._inner.wall_ms()

    def monotonic(self) -> float:
        return self._inner.monotonic() * self.speed


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def digest(value: bytes | None) -> str:
    return hashlib.blake2b(value or b"", digest_size=8).hexdigest()


def in_chunk(chunk: Chunk, start: int) -> Iterator[tuple[int, str]]:
    """(offset, digest of the value) of the records from `start` on."""
    data = b"".join(chunk.buffers)
    for position, size, _ in walk(data):
        for record in records(data[position : position + size]):
            if record.offset >= start:
                yield record.offset, digest(record.value)


class Writer:
    """The commands."""

    def __init__(self, storage: Storage, seed: int) -> None:
        self.storage = storage
        self.log = storage.log
        self.rng = random.Random(seed)
        self.stop = asyncio.Event()
        self.clock = SystemClock()
        self.in_flight = [0] * PARTITIONS
        self.loading = False
        self.acks = 0
        self.churned: list[Topic] = []
        self.seen: dict[Partition, int] = {}
        self.reading: set[Partition] = set()
        self.log.listener = self.moved
        self.timed_from = 0.0

    def begin(self) -> None:
        """Say `opened` and listen when the topic can be written to."""
        if TOPIC in self.storage.catalog.topics_by_name:
            for partition in self.partitions():
                self.seen[partition] = partition.high_watermark
            self.opened()
            return

        def created(error: BaseException | None) -> None:
            assert error is None, error
            say("created", TOPIC)
            self.opened()

        self.storage.topics.create(TOPIC, PARTITIONS, {}, created)

    def opened(self) -> None:
        report = self.storage.opened.report
        say("opened", report.cut_bytes, int(report.clean))
        listen(self)

    def partitions(self) -> list[Partition]:
        topic = self.storage.catalog.topics_by_name[TOPIC]
        return self.log.of_topic(topic.id)

    def command(self, line: str) -> None:
        if line == "load":
            self.loading = True
            self.fill()
        elif line == "append":
            self.append(0)
        elif line == "time":
            self.time()
        elif line == "dump":
            self.dump(self.places())
        elif line == "hurry":
            clock = self.storage.clock
            assert isinstance(clock, FastClock)
            clock.speed = HURRY
        elif line == "stop":
            self.stop.set()

    def tick(self) -> None:
        """What the loop of `gateway.serve` calls on a broker."""
        self.storage.tick()
        if self.loading:
            self.fill()

    # -- appending ---------------------------------------------------------------------

    def fill(self) -> None:
        """As much as may be in flight; called again by every ack and every tick."""
        for index in range(PARTITIONS):
            while self.in_flight[index] < IN_FLIGHT_MAX and not self.log.journal.overloaded:
                if not self.append(index):
                    return

    def append(self, index: int) -> bool:
        values = [
            self.rng.randbytes(self.rng.choice((10, 100, 1000)))
            for _ in range(self.rng.randint(1, 4))
        ]
        digests = [digest(value) for value in values]
        partition = self.partitions()[index]
        data = make_batch(values, base_timestamp=self.clock.wall_ms())

        def done(error: LogError | None) -> None:
            self.in_flight[index] -= 1
            if error is not None:
                say("refused", type(error).__name__)
                return
            for at, found in enumerate(digests, appended.base_offset):
                say("acked", index, at, found)
            self.acks += 1
            if self.loading:
                if self.acks % CHURN_EVERY == 0:
                    self.churn()
                self.fill()

        try:
            appended = self.log.append(partition, data, Moment.DURABLE, done)
        except LogError as error:
            say("refused", type(error).__name__)
            self.loading = self.loading and isinstance(error, StorageFull)
            return False
        self.in_flight[index] += 1
        return True

    def churn(self) -> None:
        """Topics come, get a batch, and go."""
        if len(self.churned) > 2:
            topic = self.churned.pop(0)
            say("deleting", topic.name)
            self.storage.topics.delete(topic, self._told("deleted", topic.name))
            return
        name = f"churn-{self.rng.getrandbits(64):016x}"

        def created(error: BaseException | None) -> None:
            if error is not None:  # the disk is full, or has failed
                say("refused", type(error).__name__)
                return
            say("created", name)
            partition = self.log.of_topic(topic.id)[0]
            data = make_batch([name.encode()], base_timestamp=self.clock.wall_ms())
            try:
                self.log.append(partition, data, Moment.DURABLE, written)
            except LogError as refused:
                say("refused", type(refused).__name__)

        def written(error: LogError | None) -> None:
            if error is None:
                say("filled", name, digest(name.encode()))
                self.churned.append(topic)

        topic = self.storage.topics.create(name, 1, {}, created)

    def _told(self, *words: str) -> Callable[[BaseException | None], None]:
        def done(error: BaseException | None) -> None:
            if error is None:
                say(*words)

        return done

    # -- reading -----------------------------------------------------------------------

    def moved(self, partitions: list[Partition]) -> None:
        """A reader at the head of every partition of the topic."""
        mine = self.storage.catalog.topics_by_name.get(TOPIC)
        for partition in partitions:
            if mine is not None and partition.topic_id == mine.id:
                if self.timed_from and partition.index == 0:
                    self.elapsed("head")
                self.follow(partition)

    def follow(self, partition: Partition) -> None:
        if partition in self.reading:
            return
        start = self.seen.get(partition, 0)

        def done(chunk: Chunk | None, error: LogError | None) -> None:
            self.reading.discard(partition)
            assert error is None, error
            assert chunk is not None
            for offset, found in in_chunk(chunk, start):
                if self.timed_from and partition.index == 0:
                    self.elapsed("read")
                say("seen", partition.index, offset, found)
            self.seen[partition] = chunk.next_offset
            if chunk.buffers:
                self.follow(partition)

        self.reading.add(partition)
        self.storage.reader.read(partition, start, READ_BYTES, done)

    def places(self) -> Iterator[tuple[str, Partition]]:
        for name, topic in sorted(self.storage.catalog.topics_by_name.items()):
            for partition in self.log.of_topic(topic.id):
                yield name, partition

    def dump(self, places: Iterator[tuple[str, Partition]]) -> None:
        """Everything that can be read, as a consumer would read it."""
        place = next(places, None)
        if place is None:
            say("dumped")
            return
        name, partition = place
        end = partition.high_watermark

        def read(offset: int) -> None:
            if offset >= end:
                say("end", name, partition.index, partition.log_start, end)
                self.dump(places)
                return
            self.storage.reader.read(
                partition, offset, READ_BYTES, lambda chunk, error: got(offset, chunk, error)
            )

        def got(offset: int, chunk: Chunk | None, error: LogError | None) -> None:
            if chunk is None or not chunk.buffers:
                say("unreadable", name, partition.index, offset, error)
                self.dump(places)
                return
            for at, found in in_chunk(chunk, offset):
                if at < end:
                    say("record", name, partition.index, at, found)
            self.log.driver.call_soon(lambda: read(chunk.next_offset))

        read(partition.log_start)

    # -- time --------------------------------------------------------------------------

    def time(self) -> None:
        """When one and the same commit is written, durable, and seen."""
        partition = self.partitions()[0]
        self.timed_from = self.clock.monotonic()
        for moment in (Moment.WRITTEN, Moment.DURABLE):
            data = make_batch([b"timed"], base_timestamp=self.clock.wall_ms())

            def done(error: LogError | None, name: str = moment.name.lower()) -> None:
                assert error is None, error
                self.elapsed(name)
                if name == "written":  # in the file, and for no reader
                    chunk = self.log.read_now(partition, self.seen.get(partition, 0), READ_BYTES)
                    assert chunk is not None
                    say("early", len(chunk.buffers))

            self.log.append(partition, data, moment, done)

    def elapsed(self, moment: str) -> None:
        say("at", moment, f"{self.clock.monotonic() - self.timed_from:.3f}")


def listen(writer: Writer) -> None:
    """Commands from stdin; its end is `stop`."""
    rest = b""

    def readable() -> None:
        nonlocal rest
        data = os.read(0, 4096)
        if not data:
            asyncio.get_running_loop().remove_reader(0)
            writer.stop.set()
            return
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            writer.command(line.decode())

    asyncio.get_running_loop().add_reader(0, readable)


async def tick(writer: Writer) -> None:
    while True:
        await asyncio.sleep(TICK_S)
        writer.tick()


async def main(data: str, options: dict[str, object]) -> int:
    settings = LogSettings(**options.get("settings", {}))  # type: ignore[arg-type]
    speed = float(options.get("clock_speed", 1.0))  # type: ignore[arg-type]
    seed = int(options.get("seed", 0))  # type: ignore[call-overload]
    clock = FastClock(SystemClock(), speed)
    storage = Storage(
        Options(data=data, log=settings, clock=clock),
        lambda error: print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True),
    )
    writer = Writer(storage, seed)
    writer.begin()
    async with asyncio.TaskGroup() as group:
        ticking = group.create_task(tick(writer))
        failed = await _until(writer, writer.stop)  # type: ignore[arg-type]  # what it needs of one
        ticking.cancel()
    await storage.close()
    return DISK_FAILED if failed else CLEAN


if __name__ == "__main__":
    sys.exit(guard(lambda: asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))))
