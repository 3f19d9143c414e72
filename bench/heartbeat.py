"""What the heartbeat and parked readers cost.

python -m bench.heartbeat

The share of a core is the processor time of one beat over 10,000 subscriptions (or parked
reads), divided by the interval: a ratio within one run, whatever the machine.
"""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Callable

from ister.dispatch.attribution import Attribution
from ister.dispatch.counts import Counts
from ister.dispatch.cursors import CursorService, Place
from ister.dispatch.events import Events
from ister.dispatch.heartbeat import Heartbeat
from ister.dispatch.passed import PassedCursors
from ister.dispatch.sent import Sent
from ister.dispatch.subscriptions import Subscriptions
from ister.dispatch.tests.kit import Bench, Read, append
from ister.metadata.catalog import Catalog
from ister.metadata.cursors import Cursor
from ister.metadata.memory import MemoryStore
from ister.metadata.service import CommitService
from ister.wal.driver import METADATA, InlineDriver
from ister.wal.partition import Partition
from ister.wal.settings import TopicSettings

SUBSCRIPTIONS = 10_000
INTERVAL_S = 0.5
BEATS = 20
LATEST = 100


def processor_seconds(call: Callable[[], None]) -> float:
    started = time.process_time()
    call()
    return time.process_time() - started


def share_of_a_core(bench: Bench, between: Callable[[], None] | None = None) -> float:
    """In percent, of beats in which nothing was missed; `between` two beats heads may move."""
    bench.timer.advance(INTERVAL_S)
    spent = 0.0
    for _ in range(BEATS):
        if between is not None:
            between()
        spent += processor_seconds(lambda: bench.timer.advance(INTERVAL_S))
    return spent / (INTERVAL_S * BEATS) * 100


def parked(partitions: int) -> float:
    bench = Bench(parked_max=SUBSCRIPTIONS)
    Heartbeat(bench.parked, bench.clock, bench.timer)
    places = [Partition(bytes(16), index, TopicSettings()) for index in range(partitions)]
    for number in range(SUBSCRIPTIONS):
        bench.park(places[number % partitions], wait_s=1e6)
    return share_of_a_core(bench)


def subscribed(partitions: int, *, moving: bool, parked: bool = False) -> float:
    """With `parked` each has a reader that waits, that the notifier wakes when heads move, and
    that commits: the most that there is to compare."""
    bench = Bench(parked_max=SUBSCRIPTIONS)
    rng = random.Random(1)
    store = MemoryStore()
    catalog = Catalog.open(store, rng)
    topic = catalog.commit(store, catalog.create("t", partitions, {}, 1, rng))
    driver = InlineDriver()
    commits = CommitService(store, lambda work, done: driver.submit(METADATA, work, done))
    cursors = CursorService(store, commits, catalog)
    here: dict[tuple[bytes, int], Partition] = {
        (topic.id, index): Partition(topic.id, index, TopicSettings())
        for index in range(partitions)
    }
    for partition in here.values():
        append(partition, 100)

    def commit(offset: int) -> None:
        for number in range(SUBSCRIPTIONS):
            place = Place(topic.id, number % partitions)
            cursors._set(f"g{number // partitions}", place, Cursor(offset=offset + number % 100))

    commit(0)
    attribution, events = Attribution(), Events(bench.clock)
    subscriptions = Subscriptions(
        cursors,
        here,
        catalog,
        attribution,
        Sent(attribution, catalog, bench.clock),
        PassedCursors(cursors, here, catalog, bench.clock, events, lambda _: False),
        bench.parked,
        Counts(),
        events,
        bench.clock,
    )
    heartbeat = Heartbeat(bench.parked, bench.clock, bench.timer, subscriptions.compare)
    subscriptions.begin(heartbeat)
    assert len(subscriptions) == SUBSCRIPTIONS
    if parked:
        places = list(here.values())
        for number in range(SUBSCRIPTIONS):
            bench.park(places[number % partitions], min_records=1_000_000, wait_s=1e6)
        assert bench.parked.count == SUBSCRIPTIONS

    def move() -> None:
        for partition in here.values():
            append(partition)
        if parked:
            bench.parked.wake(here.values())
            commit(next(iter(here.values())).high_watermark - 100)

    return share_of_a_core(bench, move if moving else None)


def latest() -> tuple[float, float]:
    """(microseconds, bytes) of one more reader at the head."""
    bench, here = Bench(), Partition(bytes(16), 0, TopicSettings())
    Heartbeat(bench.parked, bench.clock, bench.timer)
    bench.park(here)
    spent = []
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    reads: list[Read] = []
    for _ in range(LATEST):
        started = time.perf_counter()
        reads.append(bench.park(here))
        spent.append(time.perf_counter() - started)
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return sorted(spent)[-2] * 1e6, used / LATEST


def main() -> None:
    for partitions in (1, 100, SUBSCRIPTIONS):
        print(
            f"{SUBSCRIPTIONS} parked reads on {partitions} partitions, compared every "
            f"{INTERVAL_S * 1000:.0f} ms: {parked(partitions):.2f} % of a core (goal below 1)"
        )
    for partitions in (100, SUBSCRIPTIONS):
        for moving, waiting in ((False, False), (True, False), (True, True)):
            share = subscribed(partitions, moving=moving, parked=waiting)
            print(
                f"{SUBSCRIPTIONS} subscriptions on {partitions} partitions, heads "
                f"{'moving' if moving else 'standing'}"
                f"{', a cursor that moves and a parked read each' if waiting else ''}: "
                f"{share:.2f} % of a core (goal below 1)"
            )
    microseconds, used = latest()
    print(f"one of {LATEST} readers at Latest, p99: {microseconds:.0f} us, {used:.0f} bytes each")


if __name__ == "__main__":
    main()
