"""A run that is photographed at every crash point, and what must hold after each of them.

`World` is a log whose journal, checkpoints and bucket share one file system in memory,
with a plain model beside it: for each partition the values by offset, how far a reader
could see, where the log start was durably moved. `photographs` runs a script once and
takes, before every operation on the file system, what a power cut there would leave
(`MemoryFileSystem.crash`) together with the model of that moment; that is the same as
cutting a new run at each point, and costs one run instead of hundreds.

`check` is the promise: everything that was visible is there with its offset and value,
nothing else but what was appended behind it, offsets are dense, retries of producers are
recognised, log starts did not go back. `go_on` is the other half: the log still works.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ister.wal.clock import ManualClock
from ister.wal.errors import LogError, StorageFull
from ister.wal.log import Appended
from ister.wal.memory_fs import MemoryFileSystem
from ister.wal.memory_image import Survival, Survivors
from ister.wal.opening import TopicInfo
from ister.wal.partition import Partition
from ister.wal.settings import LogSettings, TopicSettings
from ister.wal.tests.harness import TOPIC, Harness
from ister.wal.tier.directory import DirectoryStore

LONG = os.environ.get("ISTER_LONG") == "1"
OTHER = bytes(range(16, 32))
TOPICS = [
    TopicInfo(TOPIC, "one", 2, TopicSettings()),
    TopicInfo(OTHER, "two", 1, TopicSettings()),
]
Key = tuple[bytes, int]
KEYS: list[Key] = [(TOPIC, 0), (TOPIC, 1), (OTHER, 0)]
TINY = LogSettings(
    journal_file_bytes=12 * 1024,
    journal_first_file_bytes=8 * 1024,
    journal_pool_files=2,
    journal_ready_files=1,
    commit_bytes_max=4 * 1024,
    cache_bytes=2 * 1024,
    handoff_bytes=64 * 1024,
    handoff_ms=60_000,
)
PRODUCER = 7


class Sent(NamedTuple):
    """A batch of the idempotent producer."""

    sequence: int
    values: tuple[bytes, ...]
    base_offset: int


@dataclass
class Expected:
    """One partition, as it must be found."""

    values: list[bytes] = field(default_factory=list)  # by offset; all that was appended
    visible_end: int = 0  # below it a reader or an ack may have seen it
    log_start: int = 0  # visible
    log_start_asked: int = 0
    sent: list[Sent] = field(default_factory=list)

    def copy(self) -> Expected:
        return replace(self, values=self.values[:], sent=self.sent[:])


Model = dict[Key, Expected]


class World:
    """A log on a file system in memory, its bucket on the same one, and the model."""

    def __init__(
        self,
        fs: MemoryFileSystem,
        model: Model | None = None,
        *,
        runs: int = 0,
        wall_ms: int = 1_700_000_000_000,
        settings: LogSettings = TINY,
    ) -> None:
        self.fs = fs
        self.model: Model = model or {key: Expected() for key in KEYS}
        self.settings = settings
        self.harness = self._harness(runs, ManualClock(wall_ms))
        self.is_open = False
        self._number = 1000 * runs

    def _harness(self, runs: int, clock: ManualClock) -> Harness:
        bucket = DirectoryStore(self.fs, "bucket", random.Random(runs))
        harness = Harness(
            self.fs, bucket=bucket, topics=TOPICS, settings=self.settings, clock=clock, seed=runs
        )
        harness.runs = runs
        return harness

    # -- steps of a script -------------------------------------------------------

    def open(self) -> None:
        """Open (again) and hold what is found against the model."""
        self.is_open = False
        self.harness.bucket = DirectoryStore(
            self.fs, "bucket", random.Random(self.harness.runs + 1)
        )
        self.harness.open()
        self.is_open = True
        check(self)

    def partition(self, key: Key) -> Partition:
        return self.harness.partition(key[1], key[0])

    def append(self, key: Key, count: int = 1, size: int = 60) -> None:
        """Queue one batch of `count` records."""
        values = [self._value(key, size) for _ in range(count)]
        expected = self.model[key]
        appended = self._append(key, values, done=self._acked(key, len(values)))
        assert appended.base_offset == len(expected.values), "an offset was skipped or reused"
        expected.values += values

    def send(self, key: Key, count: int = 1) -> None:
        """Queue one batch of the idempotent producer."""
        expected = self.model[key]
        last = expected.sent[-1] if expected.sent else None
        sequence = last.sequence + len(last.values) if last else 0
        values = tuple(self._value(key, 40) for _ in range(count))
        self._send(key, Sent(sequence, values, len(expected.values)))

    def _send(self, key: Key, sent: Sent) -> None:
        expected = self.model[key]
        appended = self._append(
            key, sent.values, sent.sequence, done=self._acked(key, len(sent.values))
        )
        assert not appended.duplicate
        assert appended.base_offset == len(expected.values), "an offset was skipped or reused"
        expected.values += sent.values
        expected.sent.append(sent._replace(base_offset=appended.base_offset))

    def retry(self, key: Key) -> None:
        """The producer does not know what arrived: it sends its last five batches again."""
        expected = self.model[key]
        lost = [sent for sent in expected.sent if sent.base_offset >= len(expected.values)]
        expected.sent = [sent for sent in expected.sent if sent not in lost]
        for sent in expected.sent[-5:]:
            again = self._append(key, sent.values, sent.sequence)
            assert again.duplicate, f"sequence {sent.sequence} of {key} was taken twice"
            assert again.base_offset == sent.base_offset
        for sent in lost:
            self._send(key, sent)

    def _append(
        self,
        key: Key,
        values: Sequence[bytes],
        sequence: int | None = None,
        done: Callable[[LogError | None], None] = lambda _: None,
    ) -> Appended:
        fields: dict[str, Any] = {}
        if sequence is not None:
            fields.update(producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence)
        try:
            return self.harness.append(*values, index=key[1], topic_id=key[0], done=done, **fields)
        except StorageFull:  # the next file is being made: a client tries again
            self.run()
            return self.harness.append(*values, index=key[1], topic_id=key[0], done=done, **fields)

    def move_log_start(self, key: Key, offset: int) -> None:
        expected = self.model[key]
        expected.log_start_asked = max(expected.log_start_asked, offset)

        def done(error: LogError | None) -> None:
            assert error is None
            expected.log_start = max(expected.log_start, offset)

        self.harness.log.move_log_start(self.partition(key), offset, done)

    def run(self) -> None:
        self.harness.run()

    def tick(self, seconds: float = 61) -> None:
        self.harness.tick(seconds)

    def close(self) -> None:
        self.harness.close()

    # -- the model ---------------------------------------------------------------

    def now(self) -> Model:
        """What a power cut right now must leave."""
        found = {key: expected.copy() for key, expected in self.model.items()}
        if self.is_open:
            for key, expected in found.items():
                partition = self.partition(key)
                expected.visible_end = max(expected.visible_end, partition.high_watermark)
                expected.log_start = max(expected.log_start, partition.log_start)
        return found

    def _acked(self, key: Key, count: int) -> Callable[[LogError | None], None]:
        expected = self.model[key]
        end = len(expected.values) + count

        def done(error: LogError | None) -> None:
            assert error is None
            expected.visible_end = max(expected.visible_end, end)

        return done

    def _value(self, key: Key, size: int) -> bytes:
        self._number += 1
        return b"%d/%d/%d." % (key[0][0], key[1], self._number) + bytes(size)


def check(world: World) -> None:
    """The log that was just opened against the model, which then is what was found."""
    for key, expected in world.model.items():
        partition = world.partition(key)
        partition.check()
        end = partition.high_watermark
        assert end == partition.log_end
        assert expected.visible_end <= end <= len(expected.values), f"{key} ends at {end}"
        assert expected.log_start <= partition.log_start
        assert partition.log_start <= max(expected.log_start, expected.log_start_asked)
        found = list(world.harness.records(partition.log_start, key[1], 700, key[0]))
        assert found == list(enumerate(expected.values[:end]))[partition.log_start :]
        del expected.values[end:]
        expected.visible_end = end
        expected.log_start = expected.log_start_asked = partition.log_start
    assert world.harness.errors == []


def go_on(world: World) -> None:
    """Retries, appends, a handoff: all of it as if nothing had been."""
    for key in KEYS:
        world.retry(key)
        world.append(key, 2)
    world.run()
    for _ in range(3):
        world.tick()
    check(world)
    for key in KEYS:
        expected = world.model[key]
        partition = world.partition(key)
        assert partition.tiered_end == len(expected.values), "not all of it is in the bucket"


# -- photographs -------------------------------------------------------------------


class Photograph(NamedTuple):
    """What a power cut left, and what must be found there."""

    fs: MemoryFileSystem
    model: Model
    runs: int
    wall_ms: int
    where: str

    def develop(self, settings: LogSettings = TINY) -> World:
        """The world after the power is back, not opened yet."""
        model = {key: expected.copy() for key, expected in self.model.items()}
        return World(
            self.fs, model, runs=self.runs + 1, wall_ms=self.wall_ms + 5000, settings=settings
        )


def photograph(world: World, survival: Survival, model: Model, where: str) -> Photograph:
    """The power goes now."""
    name = survival.name if isinstance(survival, Survivors) else "random"
    return Photograph(
        world.fs.crash(survival),
        model,
        world.harness.runs,
        world.harness.clock.wall_ms(),
        f"{where}, {name} of it survived",
    )


def photographs(
    world: World,
    script: Callable[[World], None],
    survivals: Callable[[int], list[Survival]],
) -> list[Photograph]:
    """Run the script; `survivals(point)` says what to keep of each crash point."""
    taken: list[Photograph] = []
    point = 0

    def hook(operation: str) -> None:
        nonlocal point
        point += 1
        chosen = survivals(point)
        if not chosen:
            return
        model = world.now()
        taken.extend(
            photograph(world, survival, model, f"point {point}, {world.fs.last_point}")
            for survival in chosen
        )

    world.fs.on_operation = hook
    try:
        script(world)
    finally:
        world.fs.on_operation = None
    return taken


def every_point(seed: int, part: int = 0, parts: int = 1) -> Callable[[int], list[Survival]]:
    """Nothing unsynced survives, and all of it or some of it (LONG: both), at every point.

    Of `parts` parts that together are every point this is one."""

    def choose(point: int) -> list[Survival]:
        if point % parts != part:
            return []
        others: list[Survival] = [
            Survivors.EVERYTHING,
            random.Random(seed * 1_000_003 + point),
        ]
        return [Survivors.NOTHING, *(others if LONG else others[point // parts % 2 :][:1])]

    return choose


def some_points(seed: int, share: float) -> Callable[[int], list[Survival]]:
    """One of the three ways at some of the points."""
    rng = random.Random(seed)

    def choose(point: int) -> list[Survival]:
        if rng.random() >= share:
            return []
        return [rng.choice([*Survivors, random.Random(rng.random())])]

    return choose


# -- scripts -----------------------------------------------------------------------


def short_life(world: World) -> None:
    """Two runs with everything that a log does, in as few steps as will do."""
    world.open()
    for turn in range(6):
        for key in KEYS:
            world.append(key, 1 + turn % 3, size=150)
        world.send(KEYS[0], 2)
        world.send(KEYS[2])
        world.run()
    world.tick()
    world.move_log_start(KEYS[1], 4)
    world.append(KEYS[1], 2)
    world.run()
    for _ in range(3):  # seals by age, hands off, trims, recycles
        world.tick()
    for _ in range(8):
        world.append(KEYS[0], 1, size=900)
        world.append(KEYS[2], 1, size=500)
        world.run()
    world.tick()
    world.append(KEYS[0], 3)
    world.send(KEYS[0])
    world.run()
    world.close()
    world.open()
    for _ in range(5):
        world.append(KEYS[1], 2, size=500)
        world.send(KEYS[0], 1)
        world.run()
    world.move_log_start(KEYS[0], 12)
    for _ in range(3):
        world.tick()
    world.append(KEYS[0])
    world.append(KEYS[1], 4)
    world.run()


def long_life(world: World, rng: random.Random) -> None:
    """One run of random steps."""
    world.open()
    for key in KEYS:
        world.retry(key)
    for _ in range(rng.randrange(10, 60)):
        key = rng.choice(KEYS)
        dice = rng.random()
        if dice < 0.45:
            world.append(key, rng.randint(1, 4), size=rng.choice([10, 100, 700]))
        elif dice < 0.65:
            world.send(key, rng.randint(1, 3))
        elif dice < 0.9:
            world.run()
        elif dice < 0.93:
            world.move_log_start(key, rng.randint(0, world.partition(key).high_watermark))
        else:
            world.tick(rng.choice([1, 61]))
    world.run()
    if rng.random() < 0.5:
        world.close()
        world.is_open = False


def survive(left: Photograph, *, again: bool = True) -> World:
    """Open what was left, hold it against the model, go on with it."""
    world = left.develop()
    try:
        world.open()
        if again:
            go_on(world)
    except Exception as error:
        error.add_note(left.where)
        raise
    return world


def each_recovery(left: Photograph, seed: int, share: float) -> Iterator[Photograph]:
    """Power cuts during the opening of what a power cut left."""
    world = left.develop()
    for taken in photographs(world, World.open, some_points(seed, share)):
        yield taken._replace(where=f"{left.where}; then {taken.where}")
