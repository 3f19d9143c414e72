"""Bounded delivery over TCP: wake-ups are lost, and nothing is missed.

Every fetch here waits for a minute, so that none delivers by expiring; what arrives was
woken. Exact bounds are asserted on a manual clock (`dispatch/tests/test_heartbeat.py`);
here it is completeness, order and counters, with a generous bound on time.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable, Iterator

import pytest
import structlog

from ister.gateway.broker import Broker as Core
from ister.gateway.handlers import fetch
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.error_codes import ErrorCode
from ister.gateway.protocol.messages import incremental_alter_configs as alter
from ister.gateway.settings import BrokerSettings
from ister.gateway.tests.small_files import SmallFiles
from ister.gateway.tests.wire_kit import FetchAnswer, Part, Wire
from ister.testing import Broker
from ister.wal.clock import SystemClock
from ister.wal.errors import StorageError
from ister.wal.fs import File
from ister.wal.tests.batches import make_batch

MAX_WAIT_MS = 60_000
LONG = os.environ.get("ISTER_LONG") == "1"
HEARTBEAT_S = BrokerSettings().heartbeat_interval_ms / 1000
BEST_OF = 5
PUBLISHES_MAX = 500  # a recycled file is seen after some ten
SECONDS_MAX = 45.0  # well below the wait: what comes by then did not come by expiring

pytestmark = pytest.mark.slow


class Reader:
    """Fetches one partition from an offset until told to stop; notes every offset it got."""

    def __init__(self, broker: Broker, topic: str, offset: int = 0, min_bytes: int = 1) -> None:
        self.offsets: list[int] = []
        self.errors: list[int] = []
        self._broker, self._topic, self._offset = broker, topic, offset
        self._min_bytes = min_bytes
        self._moved = threading.Condition()
        self._wire = Wire(broker.port, 90)
        self._thread = threading.Thread(target=self._run, name="reader")
        self._thread.start()

    def _run(self) -> None:
        try:
            while True:
                part = Part(0, self._offset)
                answer = self._wire.fetch(
                    [(self._topic, [part])], max_wait_ms=MAX_WAIT_MS, min_bytes=self._min_bytes
                )
                fetched = answer.partitions[self._topic, 0]
                with self._moved:
                    if fetched.error:
                        self.errors.append(fetched.error)
                    for offset in offsets_of(fetched.records):
                        if offset >= self._offset:
                            self.offsets.append(offset)
                    if self.offsets:
                        self._offset = self.offsets[-1] + 1
                    self._moved.notify_all()
        except (OSError, EOFError):
            return

    def until(self, last: int, seconds: float = SECONDS_MAX) -> bool:
        with self._moved:
            return self._moved.wait_for(
                lambda: bool(self.offsets) and self.offsets[-1] >= last, seconds
            )

    def close(self) -> None:
        self._wire.socket.shutdown(2)
        self._thread.join(SECONDS_MAX)
        self._wire.socket.close()
        assert not self._thread.is_alive()


def offsets_of(records: bytes) -> list[int]:
    found: list[int] = []
    at = 0
    while at < len(records):
        base, length, delta = struct.unpack_from(">qi11xi", records, at)
        found += range(base, base + delta + 1)
        at += 12 + length
    return found


class Stage:
    """A broker with a topic, a producer and readers."""

    def __init__(self, broker: Broker, notifier_works: bool) -> None:
        self.broker = broker
        self.notifier_works = notifier_works
        self.wire = Wire(broker.port, 90)
        self.topic_id = self.wire.create("t")
        self.readers: list[Reader] = []
        self.head = 0

    def reader(self, offset: int = 0, min_bytes: int = 1) -> Reader:
        """One that waits at the head when this returns."""
        before = self.broker.call(lambda core: core.parked.count)
        reader = Reader(self.broker, "t", offset, min_bytes)
        self.readers.append(reader)
        if offset >= self.head:
            self.until(lambda core: core.parked.count > before)
        return reader

    def publish(self, records: int = 1, size: int = 10) -> None:
        done = self.wire.produce("t", make_batch([b"v" * size] * records))
        assert done.error == 0
        self.head = done.base_offset + records

    def until(self, holds: Callable[[Core], bool]) -> None:
        pause = threading.Event()
        for _ in range(int(SECONDS_MAX * 100)):
            if self.broker.call(holds):
                return
            pause.wait(0.01)
        raise AssertionError("it never came to hold")

    def count(self, name: str) -> int:
        """A counter of delivery, over all rows."""
        return self.broker.call(
            lambda core: sum(int(getattr(row, name)) for row in core.delivery.counts.rows.values())
        )

    def close(self) -> None:
        for reader in self.readers:
            reader.close()
        self.wire.socket.close()


@pytest.fixture(params=["works", "does nothing"])
def stages(request: pytest.FixtureRequest) -> Iterator[Callable[..., Stage]]:
    """Makes stages and takes them down; each test runs again with a notifier that is idle."""
    made: list[Stage] = []
    works = request.param == "works"

    def make(heartbeat_ms: int = 500, kind: type[Broker] = Broker, **settings: object) -> Stage:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        named["ister.heartbeat.interval.ms"] = heartbeat_ms
        broker = kind(settings=named, seed=1)
        broker.start()
        if not works:
            broker.faults.silence_notifier()
        made.append(Stage(broker, works))
        return made[-1]

    yield make
    for stage in made:
        stage.close()
        stage.broker.stop()


only_with_notifier = pytest.mark.parametrize("stages", ["works"], indirect=True)
Stages = Callable[..., Stage]


def complete(stage: Stage, reader: Reader, first: int = 0) -> None:
    """Nothing missing, nothing twice, in order."""
    assert reader.until(stage.head - 1), (reader.offsets[-5:], stage.head)
    assert reader.offsets == list(range(first, stage.head))
    assert not reader.errors


@only_with_notifier
def test_the_notifier_delivers(stages: Stages) -> None:
    """The fast path, with the heartbeat off."""
    stage = stages(heartbeat_ms=0)
    reader = stage.reader()
    for _ in range(20):
        stage.publish()
    complete(stage, reader)
    assert stage.count("notifier_polls") > 0
    assert stage.count("heartbeat_polls") == 0


def test_every_notification_dropped(stages: Stages) -> None:
    """The heartbeat alone delivers, and says so."""
    stage = stages()
    stage.broker.faults.drop_notifications(1.0)
    reader = stage.reader()
    stage.publish()
    complete(stage, reader)
    assert stage.count("lag_detected") == stage.count("fallback_polls") == 1
    assert stage.count("notifier_polls") == 0


def test_without_heartbeat_what_is_dropped_does_not_come(stages: Stages) -> None:
    """So it was the heartbeat, and no other way, that brought it."""
    stage = stages(heartbeat_ms=0)
    stage.broker.faults.drop_notifications(1.0)
    reader = stage.reader()
    stage.publish()
    assert not reader.until(0, 1.5)
    assert stage.broker.call(lambda core: core.parked.count) == 1


@pytest.mark.fault
def test_the_notifier_is_killed_and_comes_back(stages: Stages) -> None:
    """The commit never notices; the heartbeat delivers; the death is counted with its reason."""
    stage = stages()
    stage.broker.faults.kill_notifier()
    reader = stage.reader()
    for _ in range(5):
        stage.publish()
        assert reader.until(stage.head - 1)
    complete(stage, reader)
    stage.until(lambda core: core.notifier.alive)
    deaths, reason = stage.broker.call(
        lambda core: (core.notifier.deaths, core.notifier.last_death)
    )
    assert deaths == 1
    assert reason == "NotifierKilled: by a fault"
    assert stage.count("lag_detected") >= 1


@pytest.mark.fault
@pytest.mark.parametrize("heartbeat_ms", [500, 0])
def test_the_notifier_is_killed_for_good(stages: Stages, heartbeat_ms: int) -> None:
    """Its restart is held back: with a heartbeat everything comes, without one nothing."""
    stage = stages(heartbeat_ms=heartbeat_ms)
    stage.broker.faults.kill_notifier(hold_restart=True)
    reader = stage.reader()
    stage.publish()
    if heartbeat_ms:
        complete(stage, reader)
        stage.publish()
        complete(stage, reader)
    else:
        assert not reader.until(0, 1.5)


@pytest.mark.fault
@only_with_notifier
@pytest.mark.parametrize("fault", ["every notification dropped", "killed for good"])
def test_the_heartbeat_alone_delivers_within_its_interval(stages: Stages, fault: str) -> None:
    """From the answer of the produce to that of the fetch: the interval and a second.

    A machine that has no time for a while may miss it; the best of a few records does not."""
    stage = stages()
    if fault == "killed for good":
        stage.broker.faults.kill_notifier(hold_restart=True)
    else:
        stage.broker.faults.drop_notifications(1.0)
    reader = stage.reader()
    clock = SystemClock()
    took: list[float] = []
    for _ in range(BEST_OF):
        stage.until(lambda core: core.parked.count == 1)
        stage.publish()
        durable = clock.monotonic()
        assert reader.until(stage.head - 1)
        took.append(clock.monotonic() - durable)
        if took[-1] <= HEARTBEAT_S + 1.0:
            break
    complete(stage, reader)
    print(f"{fault}: {[round(each * 1000) for each in took]} ms")
    assert min(took) <= HEARTBEAT_S + 1.0
    assert stage.count("notifier_polls") == 0
    assert stage.count("fallback_polls") == len(took)


def test_a_thousand_rapid_publishes_with_coalesced_notifications(stages: Stages) -> None:
    stage = stages()
    stage.broker.faults.coalesce_notifications(50)
    reader = stage.reader()
    for _ in range(1000):
        stage.publish()
    complete(stage, reader)


def test_the_first_read_comes_back_empty(stages: Stages) -> None:
    """It was not evaluated at the head, so the heartbeat asks again."""
    stage = stages()
    stage.broker.faults.empty_reads(1)
    reader = stage.reader()
    stage.publish()
    complete(stage, reader)
    assert stage.count("lag_detected") == 1


def test_publishing_while_subscriptions_are_made(stages: Stages) -> None:
    """Readers come at every moment between two commits; nobody sleeps over a record."""
    stage = stages()
    readers = []
    for _ in range(30):
        readers.append(Reader(stage.broker, "t", stage.head))
        stage.readers.append(readers[-1])
        stage.publish()
    for number, reader in enumerate(readers):
        complete(stage, reader, first=number)


def test_a_consumer_is_cut_off_in_the_middle_and_comes_back(stages: Stages) -> None:
    """It goes on where it was; its parked fetch is gone at once."""
    stage = stages()
    reader = stage.reader()
    for _ in range(10):
        stage.publish()
    complete(stage, reader)
    reader.close()
    stage.readers.remove(reader)
    stage.until(lambda core: core.parked.count == 0)
    for _ in range(10):
        stage.publish()
    again = stage.reader(offset=10)
    complete(stage, again, first=10)


def test_consumers_come_and_go_while_publishing(stages: Stages) -> None:
    stage = stages()
    constant = stage.reader()
    for number in range(15):
        passing = Reader(stage.broker, "t", 0)
        for _ in range(10):
            stage.publish()
        if number % 2:
            complete(stage, passing)
        passing.close()
    complete(stage, constant)
    stage.until(lambda core: core.parked.count <= 1)


@pytest.mark.fault
def test_rotation_recycling_and_handoff_while_delivering(stages: Stages) -> None:
    """A live and a late reader miss nothing while files change, go to the bucket and come back.

    A recycled file keeps its handle and gets a new sequence; so one handle that was written
    under two sequences is a journal file that was taken from the pool again."""
    stage = stages(kind=SmallFiles)
    live = stage.reader()
    sequences: dict[File, set[int]] = {}

    def lives_of_files(core: Core) -> list[int]:
        now = core.log.journal.file
        sequences.setdefault(now.file, set()).add(now.sequence)
        return sorted(len(each) for each in sequences.values())

    pause = threading.Event()
    for _ in range(PUBLISHES_MAX):
        stage.publish(10, 30_000)
        if stage.broker.call(lives_of_files)[-1] > 1:
            break
        pause.wait(0.05)  # handing over needs its time; this bounds what is kept meanwhile
    else:
        raise AssertionError("no journal file was ever taken again")
    assert live.until(stage.head - 1)
    for _ in range(3):  # into the file that was taken again
        stage.publish(10, 30_000)
    assert len(sequences) > 1  # rotation
    partition = (stage.topic_id, 0)
    tiered = stage.broker.call(lambda core: core.log.partitions[partition].tiered_end)
    assert tiered > 0  # handoff
    complete(stage, live)
    stage.broker.faults.evict_cache()
    complete(stage, stage.reader(offset=0))
    assert stage.count("offset_gaps") == 0
    assert stage.broker.errors == []


@pytest.mark.fault
def test_the_cache_evicts_under_a_slow_reader(stages: Stages) -> None:
    """What leaves memory between two fetches comes from the journal."""
    stage = stages(ister_cache_bytes=4096)
    for _ in range(50):
        stage.publish(3, 500)
    reader = stage.reader(offset=0)
    for _ in range(20):
        stage.broker.faults.evict_cache()
        stage.publish()
    complete(stage, reader)


def test_a_minimum_that_is_not_there_is_no_missed_wake_up(stages: Stages) -> None:
    """fetch.min.bytes of 1 MB with 10 KB available waits, without a single lag_detected."""
    stage = stages(heartbeat_ms=50)
    reader = stage.reader(min_bytes=1 << 20)
    for _ in range(10):
        stage.publish(1, 1000)
    assert not reader.until(0, 1.0)
    assert stage.count("lag_detected") == 0
    for _ in range(12):
        stage.publish(1, 100_000)
    assert reader.until(18)  # a whole megabyte; the rest waits for the next one
    assert reader.offsets == list(range(reader.offsets[-1] + 1))


def test_many_readers_of_one_partition_share_one_pass(stages: Stages) -> None:
    stage = stages()
    readers = [stage.reader() for _ in range(40)]
    for _ in range(3):
        stage.publish()
    for reader in readers:
        complete(stage, reader)


def test_a_fetch_of_many_partitions_parks_once(stages: Stages) -> None:
    stage = stages()
    stage.wire.create("many", 200)
    with Wire(stage.broker.port, 90) as wire:
        parts = [Part(index) for index in range(200)]
        done: list[object] = []
        thread = threading.Thread(
            target=lambda: done.append(wire.fetch([("many", parts)], max_wait_ms=MAX_WAIT_MS))
        )
        thread.start()
        stage.until(lambda core: core.parked.count == 1)
        stage.wire.produce("many", make_batch([b"v"]), partition=137)
        thread.join(SECONDS_MAX)
        assert len(done) == 1


def test_a_minimum_over_many_partitions_is_gathered(stages: Stages) -> None:
    """What was found before stays found: each wake-up reads only the partitions that moved."""
    stage = stages(heartbeat_ms=50)
    stage.wire.create("many", 20)
    answers: list[FetchAnswer] = []
    with Wire(stage.broker.port, 90) as wire:
        topics = [("many", [Part(index) for index in range(20)])]
        thread = threading.Thread(
            target=lambda: answers.append(
                wire.fetch(topics, max_wait_ms=MAX_WAIT_MS, min_bytes=10_000)
            )
        )
        thread.start()
        stage.until(lambda core: core.parked.count == 1)
        for index in range(20):
            stage.wire.produce("many", make_batch([b"v" * 600]), partition=index)
        thread.join(SECONDS_MAX)
        assert not thread.is_alive()
    found = {index for (_, index), got in answers[0].partitions.items() if got.records}
    assert found >= set(range(14))  # as many as make the minimum
    assert all(offsets_of(answers[0].partitions["many", each].records) == [0] for each in found)


def alter_heartbeat(wire: Wire, value: int) -> int:
    asked = alter.IncrementalAlterConfigsRequest(
        resources=(
            alter.AlterConfigsResource(
                resource_type=2,
                resource_name="t",
                configs=(
                    alter.AlterableConfig(
                        name="ister.heartbeat.interval.ms", config_operation=0, value=str(value)
                    ),
                ),
            ),
        ),
        validate_only=False,
    )
    answer = wire.request(alter, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, asked)
    return int(answer.responses[0].error_code)


def test_the_interval_is_changed_while_a_fetch_waits(stages: Stages) -> None:
    """Off, then on: it takes effect without a new fetch; values outside the range are refused."""
    stage = stages(heartbeat_ms=0)
    stage.broker.faults.drop_notifications(1.0)
    reader = stage.reader()
    stage.publish()
    assert not reader.until(0, 1.0)
    for wrong in (-1, 1, 49, 1001):
        assert alter_heartbeat(stage.wire, wrong) == ErrorCode.INVALID_CONFIG
    assert alter_heartbeat(stage.wire, 50) == 0
    complete(stage, reader)


@pytest.mark.fault
def test_a_gap_is_never_delivered_past(stages: Stages) -> None:
    """Memory gives out a broken row: counted, and read again from the journal."""
    stage = stages()
    for _ in range(5):
        stage.publish(2)
    stage.broker.faults.lose_batch(4)
    reader = stage.reader(offset=0)
    complete(stage, reader)
    assert stage.count("offset_gaps") >= 1


@pytest.mark.fault
@only_with_notifier
def test_what_no_source_has_is_logged(stages: Stages) -> None:
    """The client gets a number; who runs the broker finds place and reason in the log."""
    stage = stages()
    stage.publish(5)

    def break_reads(core: Core) -> None:
        core.storage.reader.read = (  # type: ignore[method-assign]
            lambda *call: call[-1](None, StorageError("nothing there"))
        )

    stage.broker.call(break_reads)
    stage.broker.faults.evict_cache()
    with structlog.testing.capture_logs() as lines, Wire(stage.broker.port, 90) as wire:
        got = wire.fetch([("t", [Part(0)])], max_wait_ms=100).partitions["t", 0]
    assert got.error == ErrorCode.KAFKA_STORAGE_ERROR
    (line,) = [each for each in lines if each["event"] == "read_failed"]
    assert (line["topic"], line["partition"], line["offset"]) == ("t", 0, 0)
    assert line["error"] == "nothing there"


@pytest.mark.fault
@only_with_notifier
def test_a_source_that_never_answers_is_an_error(
    stages: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pitfall 13: never an empty success that parks the reader; retriable, and then it works."""
    monkeypatch.setattr(fetch, "COLD_WAIT_MAX_S", 0.2)
    stage = stages()
    stage.publish(5)
    held: list[Callable[[], None]] = []

    def hold(core: Core) -> None:
        core.storage.reader.read = lambda *call: held.append(  # type: ignore[method-assign]
            lambda: real(*call)
        )

    real = stage.broker.call(lambda core: core.storage.reader.read)
    stage.broker.call(hold)
    stage.broker.faults.evict_cache()
    with Wire(stage.broker.port, 90) as wire:
        got = wire.fetch([("t", [Part(0)])], max_wait_ms=100).partitions["t", 0]
        assert got.error == ErrorCode.KAFKA_STORAGE_ERROR
        assert held
        stage.broker.call(lambda core: setattr(core.storage.reader, "read", real))
        got = wire.fetch([("t", [Part(0)])], max_wait_ms=100).partitions["t", 0]
        assert offsets_of(got.records) == [0, 1, 2, 3, 4]


@pytest.mark.fault
def test_ten_percent_of_notifications_are_lost(stages: Stages) -> None:
    """Every record exactly once to each reader, at speed; the long form runs for a minute."""
    stage = stages()
    stage.broker.faults.drop_notifications(0.1)
    readers = [stage.reader(), stage.reader()]
    batches = 6000 if LONG else 50
    for _ in range(batches):
        stage.publish(100, 100)
    for reader in readers:
        complete(stage, reader)
    worst = stage.broker.call(lambda core: core.delivery.worst_stall_s)
    print(f"worst stall {worst * 1000:.1f} ms over {stage.head} records")
