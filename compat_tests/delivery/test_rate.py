"""Ten thousand records a second, of whose wake-ups some are lost, reach every group once.

librdkafka sends in batches against the clock, so that the readers wait between two of them;
a machine that cannot keep the pace takes longer. Rate and stall are printed, never asserted.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor

import confluent_kafka
import pytest

from compat_tests.delivery.kit import MAX_WAIT_MS, SECONDS_MAX, TOPIC, counted, create, numbers, run
from compat_tests.waiting import wait_for
from ister.testing import Broker
from ister.wal.clock import SystemClock

RATE = 10_000
BATCH = 100
COUNT = RATE * (60 if os.environ.get("ISTER_LONG") == "1" else 5)
DEADLINE_S = 600.0 if os.environ.get("ISTER_LONG") == "1" else 100.0
GROUPS = ("a", "b")

pytestmark = [pytest.mark.compat, pytest.mark.fault]


def send(bootstrap: str) -> float:
    """All of them at the pace; how many a second it was."""
    clock = SystemClock()
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "queue.buffering.max.messages": COUNT,
        }
    )
    started = clock.monotonic()
    for first in range(0, COUNT, BATCH):
        for number in range(first, first + BATCH):
            producer.produce(TOPIC, str(number).encode(), partition=0)
        producer.poll(0)
        time.sleep(max(0.0, started + (first + BATCH) / RATE - clock.monotonic()))
    assert producer.flush(SECONDS_MAX) == 0
    return COUNT / (clock.monotonic() - started)


def receive(bootstrap: str, group: str) -> list[int]:
    """What one group gets, until it is as much as was sent; and what comes behind it."""
    clock = SystemClock()
    found: list[int] = []
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": MAX_WAIT_MS,
            "socket.timeout.ms": 2 * MAX_WAIT_MS,
        }
    )
    try:
        consumer.subscribe([TOPIC])
        deadline = clock.monotonic() + DEADLINE_S
        while len(found) < COUNT and clock.monotonic() < deadline:
            found += _values(consumer.consume(1000, timeout=0.2))
        return found + _values(consumer.consume(1, timeout=0.5))
    finally:
        consumer.close()


def _values(messages: list[confluent_kafka.Message]) -> list[int]:
    values = []
    for message in messages:
        assert message.error() is None, message.error()
        values.append(int(message.value() or b""))
    return values


@pytest.mark.timeout(DEADLINE_S * 2)
@pytest.mark.parametrize("fault", ["a tenth dropped", "silent notifier"])
def test_ten_thousand_a_second_with_losses(fault: str) -> None:
    """Every record exactly once per group, in order, without a restart."""
    with Broker(seed=5) as broker, ThreadPoolExecutor(3) as threads:
        run(create(broker.bootstrap))
        receiving = [threads.submit(receive, broker.bootstrap, group) for group in GROUPS]
        wait_for(lambda: broker.call(lambda core: core.parked.count) == len(GROUPS), "readers wait")
        if fault == "a tenth dropped":
            broker.faults.drop_notifications(0.1)
        else:
            broker.faults.silence_notifier()
        rate = threads.submit(send, broker.bootstrap).result()
        for each in receiving:
            assert each.result() == numbers(COUNT)
        worst = broker.call(lambda core: core.delivery.worst_stall_s)
        assert broker.faults.delivery.dropped > 0
        assert counted(broker, "offset_gaps") == 0
        if fault == "a tenth dropped":
            assert counted(broker, "notifier_polls") > 0
        else:
            assert counted(broker, "notifier_polls") == 0
            assert counted(broker, "heartbeat_polls") > 0
        missed = counted(broker, "lag_detected")
    print(
        f"{fault}: {COUNT} records at {rate:.0f}/s, {missed} wake-ups missed, "
        f"worst stall {worst * 1000:.0f} ms"
    )
