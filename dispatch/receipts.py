"""Receipts: evidence of what was sent and what was committed, kept apart, as records.

*Sent* comes from the fetch path (`sent.py`): client id, peer, offset range, time, and the
group where that is certain. *Committed* comes from OffsetCommit and is exact: group, member,
generation, offset. Commits of one member to one partition are gathered between two
flushes: the first and the last of them bound the time.

A receipt is a JSON object, its key `topic/partition`; the log of them is an internal topic,
so that the archive and Spark can answer too. A receipt that is missing never proves that
something was not delivered: what waits here is bounded (`PENDING_MAX`), what is above it
or lost with the process is not written, and nothing says otherwise.

Receipts of receipts are never made. `write` is given by whoever has the topic.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import NamedTuple

import msgspec

from ister.dispatch.cursors import Place
from ister.dispatch.sent import SentRange
from ister.metadata.catalog import Catalog
from ister.metadata.cursors import Cursor
from ister.wal.clock import Clock

PENDING_MAX = 10_000
FLUSH_EVERY_S = 1.0


class SentReceipt(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="sent"):
    topic: str
    topic_id: str  # hex
    partition: int
    first: int
    last: int
    fetches: int
    client_id: str
    peer: str
    attribution: str  # "group", "ambiguous" or "no group"
    group: str
    member: str
    since_ms: int
    until_ms: int


class CommittedReceipt(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="committed"
):
    topic: str
    topic_id: str
    partition: int
    group: str
    member: str
    generation: int
    before: int | None  # the cursor there was; None: none
    offset: int  # everything below it is committed
    commits: int
    since_ms: int
    until_ms: int


Receipt = SentReceipt | CommittedReceipt


class ReceiptRecord(NamedTuple):
    key: bytes
    value: bytes
    time_ms: int


Write = Callable[[list[ReceiptRecord]], None]

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Receipt] = msgspec.json.Decoder(SentReceipt | CommittedReceipt)


def decode(value: bytes) -> Receipt:
    """msgspec.MsgspecError if it is none."""
    return _decoder.decode(value)


class _Commits:
    __slots__ = ("before", "commits", "offset", "since_ms", "until_ms")

    def __init__(self, before: int | None, now_ms: int) -> None:
        self.before = before
        self.since_ms = now_ms
        self.commits = 0
        self.offset = 0
        self.until_ms = now_ms


class Receipts:
    def __init__(
        self, catalog: Catalog, clock: Clock, write: Write, internal: Container[bytes]
    ) -> None:
        self._catalog = catalog
        self._clock = clock
        self._write = write
        self._internal = internal  # topics of which no receipts are made
        self._pending: list[ReceiptRecord] = []
        self._commits: dict[tuple[str, str, int, Place], _Commits] = {}
        self._flushed_at = clock.monotonic()
        self.made = 0
        self.dropped = 0

    def sent(self, told: SentRange) -> None:
        """For `Sent.on_closed`."""
        if told.topic_id in self._internal:
            return
        certainty, group, member_id = told.attributed
        self._add(
            SentReceipt(
                topic=told.topic,
                topic_id=told.topic_id.hex(),
                partition=told.partition,
                first=told.first,
                last=told.last,
                fetches=told.fetches,
                client_id=told.client_id,
                peer=told.host,
                attribution=certainty.value,
                group=group,
                member=member_id,
                since_ms=told.since_ms,
                until_ms=told.until_ms,
            )
        )

    def committed(
        self,
        group: str,
        member_id: str,
        generation: int,
        cursors: Mapping[Place, tuple[int | None, Cursor]],
    ) -> None:
        """These are durable; each with the offset that was there before."""
        now_ms = self._clock.wall_ms()
        for place, (before, cursor) in cursors.items():
            if place.topic_id in self._internal:
                continue
            key = (group, member_id, generation, place)
            commits = self._commits.get(key)
            if commits is None:
                if len(self._commits) + len(self._pending) >= PENDING_MAX:
                    self.dropped += 1
                    continue
                commits = self._commits[key] = _Commits(before, now_ms)
            commits.commits += 1
            commits.offset = cursor.offset
            commits.until_ms = now_ms

    def tick(self) -> None:
        now = self._clock.monotonic()
        if now - self._flushed_at >= FLUSH_EVERY_S:
            self._flushed_at = now
            self.flush()

    def flush(self) -> None:
        """Write what there is."""
        for (group, member_id, generation, place), commits in self._commits.items():
            topic = self._catalog.topics_by_id.get(place.topic_id)
            if topic is None:
                continue
            self._add(
                CommittedReceipt(
                    topic=topic.name,
                    topic_id=place.topic_id.hex(),
                    partition=place.partition,
                    group=group,
                    member=member_id,
                    generation=generation,
                    before=commits.before,
                    offset=commits.offset,
                    commits=commits.commits,
                    since_ms=commits.since_ms,
                    until_ms=commits.until_ms,
                )
            )
        self._commits.clear()
        pending, self._pending = self._pending, []
        if pending:
            self._write(pending)

    def _add(self, receipt: Receipt) -> None:
        if len(self._pending) >= PENDING_MAX:
            self.dropped += 1
            return
        self.made += 1
        key = f"{receipt.topic}/{receipt.partition}".encode()
        self._pending.append(ReceiptRecord(key, _encoder.encode(receipt), receipt.until_ms))
