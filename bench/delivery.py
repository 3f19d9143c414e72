"""Delivery over TCP: from durable to answered, and what receipts cost.

python -m bench.delivery

The stall is the broker's own histogram. The cost of evidence is the share of the processor
time of the broker's thread, measured around the calls that make it.
"""

from __future__ import annotations

import os
import threading
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

from ister.gateway.broker import Broker as Core
from ister.gateway.protocol.api import ApiKey
from ister.gateway.tests.wire_kit import Part, Wire, fetch_body
from ister.testing import Broker
from ister.wal.tests.batches import make_batch

RECORDS = 2_000
READERS = 100
ROUNDS = 10
PASSES = 10  # over the topic in one round
MEGABYTES = 40


def stalls() -> None:
    """One reader that waits, one record at a time."""
    with Broker() as broker, Wire(broker.port) as writer, Wire(broker.port) as reader:
        writer.create("t")

        def read() -> None:
            for offset in range(RECORDS):
                reader.fetch([("t", [Part(0, offset)])], max_wait_ms=30_000)

        thread = threading.Thread(target=read)
        thread.start()
        batch = make_batch([b"x" * 100])
        for _ in range(RECORDS):
            writer.produce("t", batch)
        thread.join()
        histogram = broker.call(lambda core: core.delivery.stalls)
        wanted = histogram.count * 0.99
        p99 = next(bound for bound, count in histogram.cumulative() if count >= wanted)
        print(
            f"durable to answered, {histogram.count} waits: p99 at most {p99 * 1000:g} ms (goal 5)"
        )


def latest() -> None:
    """Readers that start together at the head: time of the broker's thread, memory, files."""
    with Broker() as broker, Wire(broker.port) as wire:
        wire.create("t")
        wires = [Wire(broker.port) for _ in range(READERS)]
        asked = fetch_body(12, [("t", [Part(0)])], max_wait_ms=60_000)
        while broker.call(lambda core: len(core.server.clients)) <= READERS:
            time.sleep(0.001)
        files = len(os.listdir("/proc/self/fd"))
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for each in wires:
            each.ask(ApiKey.FETCH, 12, asked)
        while broker.call(lambda core: core.parked.count) < READERS:
            time.sleep(0.001)
        used = (tracemalloc.get_traced_memory()[0] - before) / READERS
        tracemalloc.stop()
        opened = len(os.listdir("/proc/self/fd")) - files
        for each in wires:
            each.socket.close()
        print(
            f"{READERS} readers at Latest: {used:.0f} bytes each (goal 4096), {opened} files opened"
        )
    with Broker() as broker, Wire(broker.port) as wire:
        wire.create("t")
        wires = [Wire(broker.port) for _ in range(READERS)]
        broker.call(_time_fetches)
        for each in wires:
            each.ask(ApiKey.FETCH, 12, asked)
        while broker.call(lambda core: core.parked.count) < READERS:
            time.sleep(0.001)
        spent = sorted(_spent)
        print(f"set-up of each: p99 {spent[-2] * 1000:.3f} ms of the broker's thread (goal 2)")
        for each in wires:
            each.socket.close()


_spent: list[float] = []


def _time_fetches(core: Core) -> None:
    router = core.server.router
    dispatch = router.dispatch

    def timed(client: Any, request: Any) -> Any:
        started = time.thread_time()
        call = dispatch(client, request)
        _spent.append(time.thread_time() - started)
        return call

    router.dispatch = timed  # type: ignore[method-assign]


def consume_seconds(broker: Broker) -> float:
    """Of the broker's thread, for reading the topic again and again."""
    with Wire(broker.port) as wire:
        started = broker.call(lambda _: time.thread_time())
        for _ in range(PASSES):
            offset = 0
            while offset < MEGABYTES * 10:
                got = wire.fetch([("t", [Part(0, offset, 1 << 20)])]).partitions["t", 0]
                offset += len(got.records) // 100_000  # a batch is a record of so many bytes
        return broker.call(lambda _: time.thread_time()) - started


def receipts() -> None:
    """The share of the broker's thread that evidence takes while a topic is read from the cache."""
    with Broker() as broker:
        with Wire(broker.port) as wire:
            wire.create("t")
            for _ in range(MEGABYTES * 10):
                wire.produce("t", make_batch([bytes(100_000)]))
        consume_seconds(broker)
        spent = [0.0]
        broker.call(lambda core: _time_evidence(core, spent))
        total = sum(consume_seconds(broker) for _ in range(ROUNDS))
        share = spent[0] / total * 100
        print(f"evidence takes {share:.1f} % of the broker's thread while consuming (goal 3)")


def _time_evidence(core: Core, spent: list[float]) -> None:
    def timed(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            started = time.thread_time()
            try:
                return call(*arguments)
            finally:
                spent[0] += time.thread_time() - started

        return run

    sent: Any = core.sent
    core_receipts: Any = core.receipts
    sent.fetched, sent.sent, sent.tick = timed(sent.fetched), timed(sent.sent), timed(sent.tick)
    core_receipts.tick = timed(core_receipts.tick)


def main() -> None:
    stalls()
    latest()
    receipts()


if __name__ == "__main__":
    main()
