"""The clients of `bench.wire`, one case a process: `python -m bench.wire_load CASE HOST:PORT JSON`.

What is measured at the client (rates, latencies) is printed as one line of JSON. Requests of
one record come from bare sockets and an epoll loop, so that the client takes little of the
machine; everything else is confluent-kafka and aiokafka as users have them.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import socket
import statistics
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.headers import request_frame
from ister.gateway.tests.wire_kit import Part, Wire, fetch_body, produce_body
from ister.wal.tests.batches import make_batch

Result = dict[str, float]
now = time.perf_counter


def cpu_s(pid: int) -> float:
    """CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def produce(bootstrap: str, *, topic: str, size: int, count: int, partitions: int = 1) -> Result:
    """As fast as the client can, acks=all, batches as librdkafka makes them."""
    from confluent_kafka import Producer

    create(bootstrap, topic, partitions)
    failed = 0

    def delivered(error: Any, _: Any) -> None:
        nonlocal failed
        failed += error is not None

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 131_072,
        }
    )
    value = bytes(size)
    started = now()
    for number in range(count):
        while True:
            try:
                producer.produce(topic, value, partition=number % partitions, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.01)
        if not number % 1000:
            producer.poll(0)
    left = producer.flush(120)
    seconds = now() - started
    return {"seconds": seconds, "mb_s": size * count / 1e6 / seconds, "failed": failed + left}


def consume(
    bootstrap: str, *, topic: str, size: int, count: int, start: int = 0, times: int = 1
) -> Result:
    """`count` records from offset `start` on, `times` over."""
    from confluent_kafka import Consumer, TopicPartition

    started = now()
    total = 0
    for _ in range(times):
        consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False}
        )
        consumer.assign([TopicPartition(topic, 0, start)])
        got = 0
        while got < count and now() - started < 120:
            got += sum(1 for m in consumer.consume(10_000, 0.5) if m.error() is None)
        consumer.close()
        total += got
    seconds = now() - started
    missing = count * times - total
    return {"seconds": seconds, "mb_s": size * total / 1e6 / seconds, "missing": missing}


def requests(
    bootstrap: str,
    *,
    topic: str,
    connections: int,
    in_flight: int,
    seconds: float,
    bare: bool = False,
) -> Result:
    """One record of 100 bytes a request; each connection keeps `in_flight` of them under way."""
    if not bare:
        create(bootstrap, topic, 1)
    host, port = bootstrap.rsplit(":", 1)
    batch = make_batch([bytes(100)], base_timestamp=time.time_ns() // 1_000_000)
    frame = request_frame(ApiKey.PRODUCE, 9, 1, "bench", [produce_body(9, [(topic, [(0, batch)])])])
    poll = select.epoll()
    sockets: dict[int, socket.socket] = {}
    partial: dict[int, bytes] = {}
    sent_at: dict[int, float] = {}
    latencies: list[float] = []
    for _ in range(connections):
        made = socket.create_connection((host, int(port)))
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sockets[made.fileno()] = made
        partial[made.fileno()] = b""
        poll.register(made.fileno(), select.EPOLLIN)
    started = now()
    for fd, made in sockets.items():
        made.sendall(frame * in_flight)
        sent_at[fd] = now()
    done = 0
    end = started + seconds
    while (moment := now()) < end:
        for fd, _ in poll.poll(1.0):
            data = partial[fd] + sockets[fd].recv(65536)
            answers = position = 0
            while len(data) - position >= 4:
                size = struct.unpack_from(">i", data, position)[0]
                if len(data) - position - 4 < size:
                    break
                position += 4 + size
                answers += 1
            partial[fd] = data[position:]
            if answers:
                latencies.append(now() - sent_at[fd])
                done += answers
                sockets[fd].sendall(frame * answers)
                sent_at[fd] = now()
    for made in sockets.values():
        made.close()
    elapsed = moment - started
    return {
        "requests": done,
        "rate": done / elapsed,
        "p50_ms": 1000 * statistics.median(latencies),
        "p99_ms": 1000 * percentile(latencies, 0.99),
    }


def end_to_end(bootstrap: str, *, topic: str, rate: int, seconds: float) -> Result:
    """From `produce` to `poll` in one process, records sent one by one at a steady rate."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    create(bootstrap, topic, 1)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 500,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    consumer.poll(1.0)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    latencies: list[float] = []
    total = int(rate * seconds)
    sent = 0
    started = now()
    while len(latencies) < total and now() - started < seconds + 30:
        due = min(total, int((now() - started) * rate) + 1)
        while sent < due:
            producer.produce(topic, struct.pack(">d", now()))
            sent += 1
        producer.poll(0)
        message = consumer.poll(0.0005)
        while message is not None:
            if message.error() is None:
                latencies.append(now() - struct.unpack(">d", message.value())[0])
            message = consumer.poll(0)
    producer.flush(10)
    consumer.close()
    return {
        "p50_ms": 1000 * statistics.median(latencies),
        "p99_ms": 1000 * percentile(latencies, 0.99),
        "missing": total - len(latencies),
    }


def new_group(bootstrap: str, *, topic: str) -> Result:
    """From a new consumer in a new group to its first record."""
    from confluent_kafka import Consumer, Producer

    create(bootstrap, topic, 1)
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"first")
    producer.flush(10)
    times = []
    for number in range(5):
        started = now()
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"{topic}-{number}",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([topic])
        while (message := consumer.poll(0.05)) is None or message.error():
            continue
        times.append(now() - started)
        consumer.close()
    return {"librdkafka_s": statistics.median(times), "aiokafka_s": _new_aiokafka(bootstrap, topic)}


def _new_aiokafka(bootstrap: str, topic: str) -> float:
    from aiokafka import AIOKafkaConsumer

    async def once(number: int) -> float:
        started = now()
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=f"{topic}-a-{number}",
            auto_offset_reset="earliest",
        )
        await consumer.start()
        await consumer.getone()
        seconds = now() - started
        await consumer.stop()
        return seconds

    async def main() -> float:
        return statistics.median([await once(number) for number in range(5)])

    return asyncio.run(main())


def parked(bootstrap: str, *, topic: str, readers: int, seconds: float, pid: int) -> Result:
    """Readers at the head of an idle partition: empty polls; then one record wakes them all."""
    port = int(bootstrap.rsplit(":", 1)[1])
    create(bootstrap, topic, 1)
    writer = Wire(port)
    offset = writer.produce(topic, make_batch([b"first"])).base_offset + 1
    wires: dict[int, Wire] = {}
    poll = select.epoll()

    def frame(at: int) -> bytes:
        body = fetch_body(12, [(topic, [Part(0, at)])], max_wait_ms=500)
        return request_frame(ApiKey.FETCH, 12, 1, "bench", [body])

    asking = frame(offset)
    for _ in range(readers):
        wire = Wire(port)
        wires[wire.socket.fileno()] = wire
        poll.register(wire.socket.fileno(), select.EPOLLIN)
        wire.socket.sendall(asking)
    empty, empty_bytes = 0, 0
    for phase in (1.0, seconds):  # the first until everybody has come
        before, empty = cpu_s(pid), 0
        end = now() + phase
        while now() < end:
            for fd, _ in poll.poll(0.1):
                empty_bytes = len(wires[fd].socket.recv(65536))
                wires[fd].socket.sendall(asking)
                empty += 1
    cpu = cpu_s(pid) - before
    wakes = []
    for _ in range(10):
        batch = make_batch([b"wake"])
        following = frame(offset + 1)
        started = now()
        writer.ask(ApiKey.PRODUCE, 9, produce_body(9, [(topic, [(0, batch)])]))
        woken: list[int] = []
        while len(woken) < readers:
            for fd, _ in poll.poll(1.0):
                if len(wires[fd].socket.recv(65536)) > empty_bytes:
                    woken.append(fd)
                else:
                    wires[fd].socket.sendall(asking)
        wakes.append(now() - started)
        writer.answer()
        asking, offset = following, offset + 1
        for fd in woken:
            wires[fd].socket.sendall(asking)
    return {"empty_us": cpu / empty * 1e6, "wake_p50_ms": 1000 * statistics.median(wakes)}


def create(bootstrap: str, topic: str, partitions: int) -> None:
    """The topic, unless it is there."""
    with Wire(int(bootstrap.rsplit(":", 1)[1])) as wire:
        (known,) = wire.metadata(topic).topics
        if known.error_code:
            wire.create(topic, partitions)
        while wire.metadata(topic).topics[0].error_code:
            time.sleep(0.01)


CASES: dict[str, Callable[..., Result]] = {
    each.__name__: each for each in (produce, consume, requests, end_to_end, new_group, parked)
}


def main() -> None:
    case, bootstrap, arguments = sys.argv[1:]
    print(json.dumps(CASES[case](bootstrap, **json.loads(arguments))))


if __name__ == "__main__":
    main()
