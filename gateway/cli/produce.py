"""`ister produce TOPIC`: records from arguments or from stdin, one a line.

What stdin has ready is sent together, so a person who types sees each line leave, and a
pipe is fast.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterable, Iterator
from io import BufferedReader
from typing import TYPE_CHECKING, Annotated, cast

import typer

from ister.gateway.cli.common import BOOTSTRAP, Bootstrap, Progress, assignments, run

if TYPE_CHECKING:
    from ister.gateway.kafka_client.batches import NewRecord
    from ister.gateway.kafka_client.cluster import Cluster

BATCH_BYTES = 512 * 1024
BATCH_RECORDS = 10_000


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    values: Annotated[
        list[str] | None, typer.Argument(metavar="VALUE...", help="Instead of lines on stdin.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key of all of them.")] = None,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-K", help="Each line is key, this, value."),
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", help="By key, or in turn, if not set.")
    ] = None,
    bootstrap: Bootstrap = BOOTSTRAP,
) -> None:
    """Write records; they are durable when this returns."""
    headers = tuple(
        (name.encode(), value.encode())
        for name, value in assignments(header or [], "--header").items()
    )

    def command() -> None:
        from ister.gateway.kafka_client.batches import NewRecord
        from ister.gateway.kafka_client.cluster import Cluster
        from ister.wal.clock import SystemClock

        clock = SystemClock()

        def record(line: bytes) -> NewRecord:
            own_key, value = _split(line, key, key_separator)
            return NewRecord(own_key, value, clock.wall_ms(), headers)

        groups = [[each.encode() for each in values]] if values else _lines()
        with Cluster(bootstrap) as cluster:
            writer = _Writer(cluster, topic, partition)
            for lines in groups:
                writer.write(map(record, lines))
        writer.progress.end()
        print(f"{writer.count} record{'s' if writer.count != 1 else ''} written", file=sys.stderr)

    run(command)


class _Writer:
    """Sends records to the partitions of one topic."""

    def __init__(self, cluster: Cluster, topic: str, partition: int | None) -> None:
        found = cluster.usable_topic(topic, create=True)
        indexes = sorted(each.partition_index for each in found.partitions)
        wanted = indexes if partition is None else [partition]
        self._leaders = {
            index: connection
            for connection, led in cluster.by_leader(topic, wanted).items()
            for index in led
        }
        self._topic = topic
        self._partitions = wanted
        self._turn = 0
        self.count = 0
        self.progress = Progress("records written")

    def write(self, records: Iterable[NewRecord]) -> None:
        """All of them, in batches, partition by partition."""
        from ister.gateway.kafka_client.batches import size_of

        waiting: dict[int, list[NewRecord]] = {}
        sizes: dict[int, int] = {}
        self._turn += 1
        for record in records:
            index = self._partition_of(record)
            waiting.setdefault(index, []).append(record)
            sizes[index] = sizes.get(index, 0) + size_of(record)
            if sizes[index] >= BATCH_BYTES or len(waiting[index]) >= BATCH_RECORDS:
                self._send(index, waiting.pop(index))
                sizes[index] = 0
        for index, left in waiting.items():
            self._send(index, left)

    def _partition_of(self, record: NewRecord) -> int:
        """One key, one partition; without a key one after another, batch by batch."""
        count = len(self._partitions)
        number = self._turn if record.key is None else zlib.crc32(record.key)
        return self._partitions[number % count]

    def _send(self, index: int, records: list[NewRecord]) -> None:
        from ister.gateway.kafka_client import data
        from ister.gateway.kafka_client.batches import encode

        data.produce(self._leaders[index], self._topic, index, encode(records))
        self.count += len(records)
        self.progress.at(self.count)


def _lines() -> Iterator[list[bytes]]:
    """Lines of stdin, as many at a time as are there."""
    stdin = cast(BufferedReader, sys.stdin.buffer)
    rest = b""
    while piece := stdin.read1(BATCH_BYTES):
        *lines, rest = (rest + piece).split(b"\n")
        if lines:
            yield [line.removesuffix(b"\r") for line in lines]
    if rest:
        yield [rest]


def _split(line: bytes, key: str | None, separator: str | None) -> tuple[bytes | None, bytes]:
    if separator is None:
        return (None if key is None else key.encode()), line
    before, found, after = line.partition(separator.encode())
    if not found:
        from ister.gateway.kafka_client.errors import ClientError

        raise ClientError(f"a line has no {separator!r} in it: {line[:80]!r}")
    return before, after
