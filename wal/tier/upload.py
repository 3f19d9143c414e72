"""An object goes up: streamed, under a name that is never used twice.

A name that is taken (412) is a success only if what is there is byte for byte what was
to be written: then it is our own upload whose reply was lost. Anything else gets a new
attempt number. What was started and not finished is *given up*: the name is never used
again, no manifest ever names it, and the sweep may take what is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from crc32c import crc32c

from ister.wal.fs import Buffer
from ister.wal.tier.manifest import Entry
from ister.wal.tier.object_store import AlreadyThere, Missing, ObjectStore, StoreUnavailable
from ister.wal.tier.segment import BatchEntry, SectionWriter

TRIES = 2  # under one name: the second one finds out whether only the reply was lost
_READ_BACK_BYTES = 4 * 1024 * 1024

Source = Callable[[], Iterable[tuple[Buffer, Iterable[BatchEntry]]]]


class Body:
    """The content of an object: sections, one behind the other; can be streamed again."""

    def __init__(self) -> None:
        self._sections: list[tuple[bytes, int, int, Source, bytes]] = []
        self.entries: list[Entry] = []  # of the last stream that ran to its end
        self.size = 0
        self.crc = 0  # of all bytes, after `measure`

    def add(
        self, topic_id: bytes, partition: int, sealed_ms: int, source: Source, producers: bytes
    ) -> None:
        self._sections.append((topic_id, partition, sealed_ms, source, producers))

    def stream(self, name: str) -> Iterator[bytes | memoryview]:
        """All bytes; afterwards `entries` and `size` tell what went by."""
        self.entries = []
        self.size = 0
        for topic_id, partition, sealed_ms, source, producers in self._sections:
            writer = SectionWriter(topic_id, partition, sealed_ms)
            start = self.size
            for buffer, entries in source():
                yield self._count(writer.add(buffer, list(entries)))
            yield self._count(writer.finish(producers))
            self.entries.append(
                Entry(
                    object=name,
                    start=start,
                    size=writer.size,
                    first_offset=writer.first_offset,
                    last_offset=writer.next_offset - 1,
                    records=writer.records,
                    data_size=writer.data_size,
                    max_timestamp=writer.max_timestamp,
                    sealed_ms=sealed_ms,
                    crc=writer.crc,
                )
            )

    def measure(self, name: str) -> None:
        """Stream into nothing: only who doubts an upload needs `crc`, one pass over all bytes."""
        self.crc = 0
        for chunk in self.stream(name):
            self.crc = crc32c(chunk, self.crc)

    def _count(self, chunk: Buffer) -> bytes | memoryview:
        self.size += len(chunk)
        return memoryview(chunk) if isinstance(chunk, bytearray) else chunk


class Uploader:
    """Names and attempts of one run of one owner."""

    def __init__(self, store: ObjectStore, owner_epoch: int) -> None:
        self._store = store
        self._owner_epoch = owner_epoch
        self._attempt = 0
        self.objects = 0
        self.bytes = 0

    def own_name(self, topic_id: bytes, partition: int, first: int, last: int) -> Callable[[], str]:
        prefix = f"segments/{topic_id.hex()}/{partition:010d}/{first:020d}-{last:020d}"
        return lambda: f"{prefix}-{self._owner_epoch}-{self._next_attempt()}"

    def shared_name(self) -> str:
        return f"shared/{self._owner_epoch:010d}-{self._next_attempt():010d}"

    def upload(self, make_name: Callable[[], str], body: Body) -> str:
        """Put the object; its name. `body.entries` tell where its sections are."""
        while True:
            name = make_name()
            if self._put(name, body):
                self.objects += 1
                self.bytes += body.size
                return name

    def put_bytes(self, prefix: str, content: bytes) -> str:
        """A small object that is all in memory, under the same rules; its name."""
        while True:
            name = f"{prefix}{self._owner_epoch:010d}-{self._next_attempt():010d}"
            for tries_left in reversed(range(TRIES)):
                try:
                    self._store.put(name, [content])
                except AlreadyThere:
                    if self._store.get(name) != content:
                        break
                except StoreUnavailable:
                    if not tries_left:
                        raise
                    continue
                return name

    def _put(self, name: str, body: Body) -> bool:
        """False if the name is taken by something else."""
        for tries_left in reversed(range(TRIES)):
            try:
                self._store.put(name, body.stream(name))
            except AlreadyThere:
                body.measure(name)
                return self._is_there(name, body)
            except StoreUnavailable:
                if not tries_left:
                    raise
            else:
                return True
        return False

    def _next_attempt(self) -> int:
        self._attempt += 1
        return self._attempt

    def _is_there(self, name: str, body: Body) -> bool:
        """Whether the object has exactly the bytes that `body` measured."""
        position = crc = 0
        while position <= body.size:  # one byte more than expected is also a difference
            try:
                data = self._store.get(name, position, _READ_BACK_BYTES)
            except Missing:
                return False
            if not data:
                break
            crc = crc32c(data, crc)
            position += len(data)
        return position == body.size and crc == body.crc


def owner_epoch_of(name: str) -> int | None:
    """The owner epoch in the name of an object; None if the name is not one of ours."""
    kind, _, rest = name.partition("/")
    parts = rest.rsplit("/", 1)[-1].split("-")
    try:
        if kind in ("shared", "snapshots") and len(parts) == 2:
            return int(parts[0])
        if kind == "segments" and len(parts) == 4:
            return int(parts[2])
    except ValueError:
        return None
    return None
