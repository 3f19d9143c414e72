"""The catalog: the cluster id, topics and tombstones, and the counters that never go back.

The catalog is in memory, on the owner's thread; the store has the truth. A
method that changes something does not change it: it checks what can be checked,
and returns a `Change`, a transaction with the step that brings memory up to it.
The caller commits the transaction wherever it may block and applies the change
on the owner once it is durable, so that memory is never ahead of the store.
(`CommitService.commit_change` does both; `Catalog.commit` does it on the spot.)

Changes expect the versions they were planned on: of two that were planned
at a time on one thing the second is a `Conflict`, to be planned anew. After
`StoreUnavailable` memory may be behind: `catalog.adopt(Catalog.load(store))`,
with the load in the lane of the commits.

Rules for names and settings are not here: they are Kafka's, and the gateway's.
Leader epochs are not here: they live in the log's checkpoint.
"""

from __future__ import annotations

import base64
import random
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Generic, TypeVar

from ister.metadata import records
from ister.metadata.cursors import cursors_prefix
from ister.metadata.errors import InvalidPartitions, StoreDamaged, TopicExists, UnknownTopic
from ister.metadata.store import ABSENT, PRESENT, Entry, Store, Transaction

PRODUCER_ID_BLOCK = 1000  # ids reserved at a time, as in Kafka

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    id: bytes  # 16 bytes, random, never zero, never used again
    partitions: int
    configs: Mapping[str, str]
    created_ms: int
    offset_floor: int = 0  # see `Catalog.reserved_offsets`


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A deleted topic, kept until nothing on disk or in the bucket holds its id."""

    id: bytes
    name: str
    partitions: int
    deleted_ms: int


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """To be committed, then applied; `result` counts only from then on."""

    transaction: Transaction
    result: T
    _apply: Callable[[Transaction, int], None] = field(repr=False)

    def apply(self, revision: int) -> None:
        """Bring memory up to the store, where the transaction got this revision."""
        self._apply(self.transaction, revision)


class Catalog:
    """What the store says under `catalog/`. The maps are for reading only."""

    def __init__(self) -> None:
        self.cluster_id = ""  # 22 characters, url-safe base64, as Kafka's; "" before `found`
        self.topics_by_name: dict[str, Topic] = {}
        self.topics_by_id: dict[bytes, Topic] = {}
        self.tombstones: dict[bytes, Tombstone] = {}
        self.next_producer_id = 0  # everything below is reserved
        self.wall_time_ms = 0  # the last time stored
        self._offsets: dict[tuple[bytes, int], int] = {}
        self._versions: dict[str, int] = {}

    @classmethod
    def load(cls, store: Store) -> Catalog:
        catalog = cls()
        names: dict[str, str] = {}
        for key, entry in store.scan(records.CATALOG):
            catalog._versions[key] = entry.version
            if key.startswith(records.NAMES):
                record = records.decode(records.NameRecord, key, entry.value)
                names[key.removeprefix(records.NAMES)] = record.topic_id
            else:
                catalog._take(key, entry)
        if names != {topic.name: topic.id.hex() for topic in catalog.topics_by_id.values()}:
            raise StoreDamaged(
                "the names in the catalog do not match its topics: restore the metadata store"
                " from a backup, or rebuild the broker with `ister archive restore`"
            )
        return catalog

    @classmethod
    def open(cls, store: Store, randomness: random.Random) -> Catalog:
        """Load it, and found the cluster if this is the first time."""
        catalog = cls.load(store)
        if not catalog.cluster_id:
            catalog.commit(store, catalog.found(randomness))
        return catalog

    def adopt(self, other: Catalog) -> None:
        """Take over what a fresh load found."""
        self.__dict__.update(other.__dict__)

    def commit(self, store: Store, change: Change[T]) -> T:
        """Commit and apply on the spot: for tools and tests, it blocks."""
        change.apply(store.commit(change.transaction))
        return change.result

    # -- the cluster -----------------------------------------------------------

    def found(self, randomness: random.Random, cluster_id: str | None = None) -> Change[str]:
        """Give the cluster its id, once."""
        if self.cluster_id:
            raise ValueError(f"the cluster has the id {self.cluster_id} already")
        chosen = cluster_id or encode_id(new_id(randomness))

        def apply() -> None:
            self.cluster_id = chosen

        record = records.ClusterRecord(cluster_id=chosen)
        return self._set(records.CLUSTER, record, chosen, apply)

    # -- topics ----------------------------------------------------------------

    def create(
        self,
        name: str,
        partitions: int,
        configs: Mapping[str, str],
        now_ms: int,
        randomness: random.Random,
    ) -> Change[Topic]:
        if name in self.topics_by_name:
            raise TopicExists(name)
        if partitions < 1:
            raise InvalidPartitions(f"{partitions} partitions: at least one is needed")
        topic = Topic(name, new_id(randomness), partitions, _frozen(configs), now_ms)
        transaction = Transaction(
            # The id too, and its tombstone: an id that came twice must not meet its former life.
            expect={
                records.name_key(name): ABSENT,
                records.topic_key(topic.id): ABSENT,
                records.tombstone_key(topic.id): ABSENT,
            },
            put={
                records.name_key(name): records.encode(records.NameRecord(topic_id=topic.id.hex())),
                records.topic_key(topic.id): _encode_topic(topic),
            },
        )
        return self._change(transaction, topic, lambda: self._hold(topic))

    def grow(self, topic_id: bytes, partitions: int) -> Change[Topic]:
        """To `partitions` in all."""
        topic = self._topic(topic_id)
        if partitions <= topic.partitions:
            raise InvalidPartitions(
                f"topic {topic.name!r} has {topic.partitions} partitions already;"
                f" {partitions} would not be more"
            )
        return self._replace(_changed(topic, partitions=partitions))

    def configure(self, topic_id: bytes, configs: Mapping[str, str]) -> Change[Topic]:
        """`configs` is all that the topic has from then on."""
        return self._replace(_changed(self._topic(topic_id), configs=configs))

    def delete(self, topic_id: bytes, now_ms: int) -> Change[Tombstone]:
        """One transaction: the record goes, a tombstone stays, cursors and offset blocks go."""
        topic = self._topic(topic_id)
        tombstone = Tombstone(topic.id, topic.name, topic.partitions, now_ms)
        key = records.topic_key(topic.id)
        record = records.TombstoneRecord(
            name=topic.name, partitions=topic.partitions, deleted_ms=now_ms
        )
        transaction = Transaction(
            expect={key: self._versions[key]},
            put={records.tombstone_key(topic.id): records.encode(record)},
            delete=[key, records.name_key(topic.name)],
            delete_prefix=[cursors_prefix(topic.id), records.offsets_prefix(topic.id)],
        )

        def apply() -> None:
            del self.topics_by_id[topic.id]
            del self.topics_by_name[topic.name]
            self._forget_offsets(topic.id)
            self.tombstones[topic.id] = tombstone

        return self._change(transaction, tombstone, apply)

    def forget(self, topic_id: bytes) -> Change[None]:
        """Remove a tombstone: nothing holds the id any more."""
        if topic_id not in self.tombstones:
            raise UnknownTopic(topic_id)
        key = records.tombstone_key(topic_id)
        transaction = Transaction(expect={key: self._versions[key]}, delete=[key])
        return self._change(transaction, None, lambda: self._drop_tombstone(topic_id))

    # -- counters --------------------------------------------------------------

    def reserve_producer_ids(self, count: int = PRODUCER_ID_BLOCK) -> Change[range]:
        """Ids that nobody else ever gets; to be used only once the change is durable."""
        if count < 1:
            raise ValueError("at least one producer id is to be reserved")
        block = range(self.next_producer_id, self.next_producer_id + count)

        def apply() -> None:
            self.next_producer_id = block.stop

        record = records.NumberRecord(value=block.stop)
        return self._set(records.PRODUCER_IDS, record, block, apply)

    def reserved_offsets(self, topic_id: bytes, partition: int) -> int:
        """Offsets of a non-reliable topic below this may have been used: go on here."""
        reserved = self._offsets.get((topic_id, partition))
        return self._topic(topic_id).offset_floor if reserved is None else reserved

    def reserve_offsets(self, topic_id: bytes, partition: int, up_to: int) -> Change[range]:
        """Offsets below `up_to` may be used once the change is durable."""
        if not 0 <= partition < self._topic(topic_id).partitions:
            raise InvalidPartitions(f"there is no partition {partition}")
        block = range(self.reserved_offsets(topic_id, partition), up_to)
        if not block:
            raise ValueError(f"offsets up to {block.start} are reserved already, asked for {up_to}")
        key = records.offsets_key(topic_id, partition)

        def apply() -> None:
            self._offsets[topic_id, partition] = up_to

        expect = {records.topic_key(topic_id): PRESENT}
        return self._set(key, records.NumberRecord(value=up_to), block, apply, expect)

    def store_wall_time(self, now_ms: int) -> Change[None]:
        def apply() -> None:
            self.wall_time_ms = now_ms

        return self._set(records.WALL_TIME, records.NumberRecord(value=now_ms), None, apply)

    # -- inside ----------------------------------------------------------------

    def _take(self, key: str, entry: Entry) -> None:
        """One stored record other than a name."""
        if key.startswith(records.TOPICS):
            topic_id = records.topic_id_of(key, key.removeprefix(records.TOPICS))
            self._hold(_decode_topic(topic_id, key, entry.value))
        elif key.startswith(records.TOMBSTONES):
            topic_id = records.topic_id_of(key, key.removeprefix(records.TOMBSTONES))
            found = records.decode(records.TombstoneRecord, key, entry.value)
            self.tombstones[topic_id] = Tombstone(
                topic_id, found.name, found.partitions, found.deleted_ms
            )
        elif key.startswith(records.OFFSETS):
            number = records.decode(records.NumberRecord, key, entry.value)
            self._offsets[records.split_offsets_key(key)] = number.value
        elif key == records.CLUSTER:
            cluster = records.decode(records.ClusterRecord, key, entry.value)
            self.cluster_id = cluster.cluster_id
        elif key == records.PRODUCER_IDS:
            number = records.decode(records.NumberRecord, key, entry.value)
            self.next_producer_id = number.value
        elif key == records.WALL_TIME:
            number = records.decode(records.NumberRecord, key, entry.value)
            self.wall_time_ms = number.value
        # Anything else is an addition of a later version that left the format alone.

    def _set(
        self,
        key: str,
        record: records.Record,
        result: T,
        apply: Callable[[], None],
        expect: Mapping[str, int] | None = None,
    ) -> Change[T]:
        """Replace one record, expecting it as it is in memory."""
        transaction = Transaction(
            expect={key: self._versions.get(key, ABSENT), **(expect or {})},
            put={key: records.encode(record)},
        )
        return self._change(transaction, result, apply)

    def _replace(self, topic: Topic) -> Change[Topic]:
        key = records.topic_key(topic.id)
        transaction = Transaction(
            expect={key: self._versions[key]}, put={key: _encode_topic(topic)}
        )
        return self._change(transaction, topic, lambda: self._hold(topic))

    def _change(self, transaction: Transaction, result: T, apply: Callable[[], None]) -> Change[T]:
        def apply_all(transaction: Transaction, revision: int) -> None:
            apply()
            for key in transaction.put:
                self._versions[key] = revision
            for key in transaction.delete:
                self._versions.pop(key, None)

        return Change(transaction, result, apply_all)

    def _hold(self, topic: Topic) -> None:
        self.topics_by_id[topic.id] = topic
        self.topics_by_name[topic.name] = topic

    def _drop_tombstone(self, topic_id: bytes) -> None:
        del self.tombstones[topic_id]

    def _forget_offsets(self, topic_id: bytes) -> None:
        for known_id, partition in [place for place in self._offsets if place[0] == topic_id]:
            del self._offsets[known_id, partition]
            self._versions.pop(records.offsets_key(known_id, partition), None)

    def _topic(self, topic_id: bytes) -> Topic:
        topic = self.topics_by_id.get(topic_id)
        if topic is None:
            raise UnknownTopic(topic_id)
        return topic


def new_id(randomness: random.Random) -> bytes:
    """A random version 4 UUID, as raw bytes (hence never zero, nor one of Kafka's reserved ids)."""
    while True:
        chosen = uuid.UUID(int=randomness.getrandbits(128), version=4).bytes
        if not encode_id(chosen).startswith("-"):  # Kafka's tools would take it for an option
            return chosen


def encode_id(value: bytes) -> str:
    """As Kafka writes ids: 22 characters of url-safe base64."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def _frozen(configs: Mapping[str, str]) -> Mapping[str, str]:
    return MappingProxyType(dict(configs))


def _changed(
    topic: Topic, *, partitions: int | None = None, configs: Mapping[str, str] | None = None
) -> Topic:
    return Topic(
        topic.name,
        topic.id,
        topic.partitions if partitions is None else partitions,
        topic.configs if configs is None else _frozen(configs),
        topic.created_ms,
        topic.offset_floor,
    )


def _encode_topic(topic: Topic) -> bytes:
    record = records.TopicRecord(
        name=topic.name,
        partitions=topic.partitions,
        configs=dict(topic.configs),
        created_ms=topic.created_ms,
        offset_floor=topic.offset_floor,
    )
    return records.encode(record)


def _decode_topic(topic_id: bytes, key: str, value: bytes) -> Topic:
    record = records.decode(records.TopicRecord, key, value)
    return Topic(
        record.name,
        topic_id,
        record.partitions,
        _frozen(record.configs),
        record.created_ms,
        record.offset_floor,
    )
