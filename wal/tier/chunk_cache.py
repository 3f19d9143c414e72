"""Cold reads: batches out of the bucket through a byte-bounded cache.

What is cached are *chunks*: runs of whole blocks of one section, about a mebibyte,
fetched with one request and checked once, block by block and batch by batch, before
anybody sees a byte of them; and the tables of sections. Both count for their bytes in
one LRU. Of several threads that want the same thing one fetches and the others wait;
a failure reaches all that waited and is not kept. When a reader gets to a chunk, the
next one is fetched through `spawn`, so that a sequential reader finds it there.

`TierReader` answers from a manifest. An object that should be there and is not is a
storage error: never out of range, never an empty success. It trusts nothing that it
fetched: the footer must be the one of the manifest entry (a batch does not name its
partition), every block has its checksum, each batch has its own and continues the one
before it.

All calls block and may be made from any thread. Buffers that are handed out are views
into a chunk and keep it alive, whether it is still cached or not.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from crc32c import crc32c

from ister.wal.batch import BatchHeader, walk
from ister.wal.errors import CorruptBatch, Damaged, OffsetOutOfRange, StorageError
from ister.wal.tier.manifest import Entry, Manifest
from ister.wal.tier.object_store import Missing, ObjectStore
from ister.wal.tier.segment import BatchEntry, Section, read_section

CHUNK_BYTES = 1024 * 1024  # one request: long enough to be worth its latency
CACHE_BYTES = 32 * 1024 * 1024  # for all cold readers together
_BATCH_CRC_FROM = 21

Spawn = Callable[[Callable[[], None]], None]


class TierBatch(NamedTuple):
    """One batch, whole, as it was appended."""

    base_offset: int
    last_offset: int
    max_timestamp: int
    data: memoryview


class Chunk(NamedTuple):
    """Checked blocks `first`..`last` of a section."""

    first_block: int
    last_block: int
    size: int
    batches: list[TierBatch]


class ChunkCache:
    """A byte-bounded LRU in which every value is made once, however many ask for it."""

    def __init__(self, bytes_max: int = CACHE_BYTES) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._making: dict[Hashable, Future[Any]] = {}
        self.bytes = 0
        self.hits = 0
        self.misses = 0

    def get(self, key: Hashable, make: Callable[[], tuple[Any, int]]) -> Any:
        """The value of `key`; `make` gives (value, bytes) and may raise, which nobody remembers."""
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None:
                self._kept.move_to_end(key)
                self.hits += 1
                return kept[0]
            future = self._making.get(key)
            if future is None:
                mine: Future[Any] = Future()
                self._making[key] = mine
                self.misses += 1
        if future is not None:
            return future.result()
        try:
            value, size = make()
        except BaseException as error:
            with self._lock:
                del self._making[key]
            mine.set_exception(error)
            raise
        with self._lock:
            del self._making[key]
            self._keep(key, value, size)
        mine.set_result(value)
        return value

    def __contains__(self, key: Hashable) -> bool:
        with self._lock:
            return key in self._kept or key in self._making

    def forget(self, objects: frozenset[str]) -> None:
        """Drop everything of these objects (keys are tuples that start with the object)."""
        with self._lock:
            for key in [key for key in self._kept if key[0] in objects]:  # type: ignore[index]
                self.bytes -= self._kept.pop(key)[1]

    def _keep(self, key: Hashable, value: Any, size: int) -> None:
        self._kept[key] = (value, size)
        self.bytes += size
        while self.bytes > self._bytes_max and self._kept:
            _, (_, dropped) = self._kept.popitem(last=False)
            self.bytes -= dropped


class TierReader:
    """Batches, times and producer state of what a manifest names."""

    def __init__(
        self, store: ObjectStore, cache: ChunkCache | None = None, spawn: Spawn | None = None
    ) -> None:
        self._store = store
        self.cache = ChunkCache() if cache is None else cache
        self._spawn = spawn

    def read(self, manifest: Manifest, offset: int, max_bytes: int) -> list[TierBatch]:
        """Whole batches from the one with `offset` on (in a hole: from the next one behind it).

        The first one comes even when it is larger than `max_bytes`. At least one comes;
        an offset that the manifest does not reach is OffsetOutOfRange.
        """
        index = manifest.find(offset)
        if index is None:
            raise OffsetOutOfRange(offset, manifest.log_start, manifest.tiered_end)
        found: list[TierBatch] = []
        room = max_bytes
        while index < len(manifest.entries):
            entry = manifest.entries[index]
            room = self._read_entry(manifest, entry, max(offset, entry.first_offset), room, found)
            if room <= 0:
                break
            index += 1
            if index < len(manifest.entries):  # the next seam: contiguous or a hole, see `check`
                offset = manifest.entries[index].first_offset
        return found

    def find_time(self, manifest: Manifest, timestamp_ms: int, start: int) -> TierBatch | None:
        """The first batch from offset `start` on whose max timestamp is not below; None: none."""
        for entry in manifest.entries:
            if entry.last_offset < start or entry.max_timestamp < timestamp_ms:
                continue
            section = self.section(manifest, entry)
            block = section.locate_time(timestamp_ms)
            block = max(0 if block is None else block, section.locate(start))
            while block < section.footer.block_count:
                chunk = self._chunk(entry, section, block)
                for batch in chunk.batches:
                    if batch.last_offset >= start and batch.max_timestamp >= timestamp_ms:
                        return batch
                block = chunk.last_block + 1
        return None

    def find_max_time(self, manifest: Manifest, start: int) -> TierBatch | None:
        """The first batch from `start` on with the largest max timestamp."""
        times = [entry.max_timestamp for entry in manifest.entries if entry.last_offset >= start]
        if not times:
            return None
        first = manifest.entries[len(manifest.entries) - len(times)]
        if first.first_offset >= start:
            return self.find_time(manifest, max(times), start)
        # The largest of the first entry may lie below `start`: look at what is left of it.
        best = max(
            (
                batch
                for batches in self.stream(manifest, first)
                for batch in batches
                if batch.last_offset >= start
            ),
            key=lambda batch: batch.max_timestamp,
        )
        rest = max(times[1:], default=best.max_timestamp)
        if rest <= best.max_timestamp:
            return best
        return self.find_time(manifest, rest, first.last_offset + 1)

    def section(self, manifest: Manifest, entry: Entry) -> Section:
        """Table and producer state of an entry, found to be the ones that the manifest means."""
        section: Section = self.cache.get(
            (entry.object, entry.start, -1), lambda: self._load_section(manifest, entry)
        )
        return section

    def stream(
        self, manifest: Manifest, entry: Entry, from_offset: int = 0
    ) -> Iterator[list[TierBatch]]:
        """The batches of an entry, chunk by chunk, past the cache: for who reads it once.

        Begins with the chunk that holds `from_offset`.
        """
        section, _ = self._load_section(manifest, entry)
        block = section.locate(from_offset)
        while block < section.footer.block_count:
            first, last = chunk_of(section, block)
            chunk, _ = self._load_chunk(entry, section, first, last)
            yield chunk.batches
            block = last + 1

    def _read_entry(
        self, manifest: Manifest, entry: Entry, offset: int, room: int, found: list[TierBatch]
    ) -> int:
        section = self.section(manifest, entry)
        block = section.locate(offset)
        while block < section.footer.block_count:
            chunk = self._chunk(entry, section, block)
            self._read_ahead(manifest, entry, section, chunk.last_block + 1)
            for batch in chunk.batches:
                if batch.last_offset < offset:
                    continue
                if found and len(batch.data) > room:
                    return 0
                found.append(batch)
                room -= len(batch.data)
            if room <= 0:
                return 0
            block = chunk.last_block + 1
        return room

    def _read_ahead(self, manifest: Manifest, entry: Entry, section: Section, block: int) -> None:
        if self._spawn is None:
            return
        if block < section.footer.block_count:
            key = (entry.object, entry.start, chunk_of(section, block)[0])
            if key not in self.cache:
                self._spawn(lambda: _quietly(lambda: self._chunk(entry, section, block)))
            return
        index = manifest.find(entry.last_offset + 1)
        if index is None:
            return
        following = manifest.entries[index]
        if (following.object, following.start, 0) not in self.cache:

            def open_next() -> None:
                self._chunk(following, self.section(manifest, following), 0)

            self._spawn(lambda: _quietly(open_next))

    def _chunk(self, entry: Entry, section: Section, block: int) -> Chunk:
        first, last = chunk_of(section, block)
        chunk: Chunk = self.cache.get(
            (entry.object, entry.start, first),
            lambda: self._load_chunk(entry, section, first, last),
        )
        return chunk

    def _load_section(self, manifest: Manifest, entry: Entry) -> tuple[Section, int]:
        tail_start = entry.start + entry.data_size
        tail = self._get(entry.object, tail_start, entry.size - entry.data_size)
        section = read_section(tail, entry.object, entry.start + entry.size)
        check_footer(section, manifest, entry)
        return section, section.memory_bytes

    def _load_chunk(
        self, entry: Entry, section: Section, first: int, last: int
    ) -> tuple[Chunk, int]:
        position = section.position(first)
        size = section.position(last + 1) - position
        data = self._get(entry.object, entry.start + position, size)
        section.check_blocks(first, last, data, entry.object, entry.start)
        blocks = len(section.offsets)
        end = section.offsets[last + 1] if last + 1 < blocks else entry.last_offset + 1
        batches = check_batches(
            data, section.offsets[first], end, entry.object, entry.start + position
        )
        return Chunk(first, last, size, batches), size + 120 * len(batches)

    def _get(self, name: str, start: int, size: int) -> bytes:
        try:
            data = self._store.get(name, start, size)
        except Missing as error:
            raise StorageError(f"{name} is in a manifest but not in {self._store.url}") from error
        if len(data) != size:
            raise Damaged(name, start, f"{len(data)} bytes came back instead of {size}")
        return data


def chunk_of(section: Section, block: int) -> tuple[int, int]:
    """First and last block of the chunk that `block` is in.

    Chunks are cut where the start of a block passes a multiple of CHUNK_BYTES, so the
    answer is the same for every block of a chunk.
    """
    number = section.position(block) // CHUNK_BYTES
    first = last = block
    while first and section.position(first - 1) // CHUNK_BYTES == number:
        first -= 1
    while last + 1 < len(section.offsets) and section.position(last + 1) // CHUNK_BYTES == number:
        last += 1
    return first, last


def check_footer(section: Section, manifest: Manifest, entry: Entry) -> None:
    """Damaged unless the section is the one that the entry of this manifest means."""
    footer = section.footer
    found = (
        footer.topic_id,
        footer.partition,
        footer.first_offset,
        footer.last_offset,
        footer.records,
        footer.data_size,
        footer.section_size,
    )
    meant = (
        manifest.topic_id,
        manifest.partition,
        entry.first_offset,
        entry.last_offset,
        entry.records,
        entry.data_size,
        entry.size,
    )
    if found != meant:
        raise Damaged(
            entry.object,
            entry.start,
            f"holds {footer.topic_id.hex()}/{footer.partition} "
            f"{footer.first_offset}..{footer.last_offset}, the manifest says "
            f"{manifest.topic_hex}/{manifest.partition} {entry.first_offset}..{entry.last_offset}",
        )


def check_batches(
    data: bytes, first_offset: int, end_offset: int, where: str, start: int
) -> list[TierBatch]:
    """The batches in `data`, each sound and each behind the other from first to end."""
    view = memoryview(data)
    batches: list[TierBatch] = []
    expected = first_offset
    reached = 0
    for position, size, header in _walk(view, where, start):
        if header.base_offset != expected:
            what = f"batch of offset {header.base_offset} where {expected} should be"
            raise Damaged(where, start + position, what)
        batch = view[position : position + size]
        if crc32c(batch[_BATCH_CRC_FROM:]) != header.crc:
            what = f"the checksum of the batch of offset {expected} does not hold"
            raise Damaged(where, start + position, what)
        last_offset = expected + header.last_offset_delta
        batches.append(TierBatch(expected, last_offset, header.max_timestamp, batch))
        expected = last_offset + 1
        reached = position + size
    if expected != end_offset or reached != len(data):
        raise Damaged(where, start + reached, f"batches end at {expected}, not at {end_offset}")
    return batches


def batch_entries(batches: Sequence[TierBatch]) -> list[BatchEntry]:
    """What `SectionWriter.add` wants to know of them."""
    return [
        (base, last - base + 1, len(data), max_timestamp)
        for base, last, max_timestamp, data in batches
    ]


def _walk(view: memoryview, where: str, start: int) -> Iterator[tuple[int, int, BatchHeader]]:
    try:
        yield from walk(view)
    except CorruptBatch as error:
        raise Damaged(where, start, str(error)) from error


def _quietly(work: Callable[[], object]) -> None:
    """Reading ahead is a hint: whoever needs the bytes meets the error himself."""
    with contextlib.suppress(Exception):
        work()
