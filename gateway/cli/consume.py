"""`ister consume TOPIC`: what is in a topic, to stdout; with `--follow` also what comes.

No group: nothing is committed, and nobody else is disturbed. Without `--json` a record is
its value and a line end; with it, one JSON object a line. Bytes that are no UTF-8 come as
base64 there, in `value_base64` (`key_base64`).
"""

from __future__ import annotations

import base64
import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ister.gateway.cli.common import BOOTSTRAP, Bootstrap, Progress, run

if TYPE_CHECKING:
    from ister.gateway.kafka_client.cluster import Cluster
    from ister.gateway.kafka_client.connection import Connection
    from ister.wal.records import Record

_WAIT_MS = 500


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    start: Annotated[
        str,
        typer.Option(
            "--from", metavar="earliest|latest|OFFSET|-N", help="-N: the last N of each partition."
        ),
    ] = "earliest",
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", help="Only these; may be repeated.")
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="Stop after so many.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for more, until interrupted.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a line, with offset, key, headers.")
    ] = False,
    bootstrap: Bootstrap = BOOTSTRAP,
) -> None:
    """Read records, from the first one to the end there is now."""

    def command() -> None:
        from ister.gateway.kafka_client.cluster import Cluster

        with Cluster(bootstrap) as cluster:
            reader = _Reader(cluster, topic, partition, start, follow)
            printer = _Printer(as_json, count)
            while reader.goes_on and not printer.full:
                for index, record in reader.read():
                    if not printer.full:
                        printer.print(index, record)
                sys.stdout.flush()
            printer.progress.end()

    run(command)


class _Reader:
    def __init__(
        self, cluster: Cluster, topic: str, only: list[int] | None, start: str, follow: bool
    ) -> None:
        found = cluster.topic(topic)
        known = sorted(each.partition_index for each in found.partitions)
        self._leaders = cluster.by_leader(topic, known if only is None else sorted(set(only)))
        self._topic = topic
        self._follow = follow
        self._offsets: dict[int, int] = {}
        self._ends: dict[int, int] = {}  # where to stop; none when following
        for connection, indexes in self._leaders.items():
            self._begin(connection, indexes, start)

    @property
    def goes_on(self) -> bool:
        return self._follow or any(
            offset < self._ends[index] for index, offset in self._offsets.items()
        )

    def read(self) -> list[tuple[int, Record]]:
        """What comes next; empty if nothing came for a moment."""
        from ister.gateway.kafka_client import data

        found: list[tuple[int, Record]] = []
        for connection, indexes in self._leaders.items():
            wanted = {
                index: self._offsets[index]
                for index in indexes
                if self._follow or self._offsets[index] < self._ends[index]
            }
            if not wanted:
                continue
            answer = data.fetch(connection, self._topic, wanted, max_wait_ms=_WAIT_MS)
            for index, fetched in sorted(answer.items()):
                self._offsets[index] = fetched.next_offset
                end = self._ends[index]
                found += [
                    (index, each) for each in fetched.records if self._follow or each.offset < end
                ]
        return found

    def _begin(self, connection: Connection, indexes: list[int], start: str) -> None:
        from ister.gateway.kafka_client.data import EARLIEST, LATEST, list_offsets_of

        earliest = list_offsets_of(connection, self._topic, indexes, EARLIEST)
        latest = list_offsets_of(connection, self._topic, indexes, LATEST)
        self._ends |= latest
        for index in indexes:
            wanted = _start(start, earliest[index], latest[index])
            self._offsets[index] = min(max(wanted, earliest[index]), latest[index])


def _start(text: str, earliest: int, latest: int) -> int:
    if text == "earliest":
        return earliest
    if text == "latest":
        return latest
    try:
        number = int(text)
    except ValueError:
        from ister.gateway.kafka_client.errors import ClientError

        raise ClientError(f"--from {text}: earliest, latest, an offset or -N is wanted") from None
    return latest + number if number < 0 else number


class _Printer:
    def __init__(self, as_json: bool, count_max: int | None) -> None:
        self._as_json = as_json
        self._count_max = count_max
        self._count = 0
        # On a terminal the records themselves are progress enough.
        self.progress = Progress("records read")
        self._counts = not sys.stdout.isatty()

    @property
    def full(self) -> bool:
        return self._count_max is not None and self._count >= self._count_max

    def print(self, partition: int, record: Record) -> None:
        if self._as_json:
            print(json.dumps(_plain(partition, record), ensure_ascii=False))
        else:
            sys.stdout.buffer.write((record.value or b"") + b"\n")
        self._count += 1
        if self._counts and self._count % 1000 == 0:
            self.progress.at(self._count)


def _plain(partition: int, record: Record) -> dict[str, Any]:
    return {
        "partition": partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        **_field("key", record.key),
        **_field("value", record.value),
        "headers": [
            {"name": name.decode("utf-8", "replace"), **_field("value", value)}
            for name, value in record.headers
        ],
    }


def _field(name: str, value: bytes | None) -> dict[str, str | None]:
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}
