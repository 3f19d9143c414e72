"""What receipts say of one record: was it sent, to whom, when, how often, when committed.

Two kinds of evidence stay apart: *sent* names a client and a peer, and a group only where
that was certain; *committed* names group and member. No receipt proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from ister.dispatch.receipts import CommittedReceipt, Receipt, SentReceipt

NOTHING = "No receipt. That does not prove that it was not delivered."


class Evidence:
    """What receipts say of one record."""

    def __init__(self, topic: str, topic_id: str, partition: int, offset: int) -> None:
        self._topic = topic
        self._key = (topic_id, partition)
        self._offset = offset
        self.sent: list[SentReceipt] = []
        self.committed: dict[str, CommittedReceipt] = {}  # by group, the first that covers it

    def add(self, receipt: Receipt) -> None:
        if (receipt.topic_id, receipt.partition) != self._key:
            return
        if isinstance(receipt, SentReceipt):
            if receipt.first <= self._offset <= receipt.last:
                self.sent.append(receipt)
        elif receipt.offset > self._offset:
            self.committed.setdefault(receipt.group, receipt)

    def plain(self) -> dict[str, Any]:
        return {
            "topic": self._topic,
            "partition": self._key[1],
            "offset": self._offset,
            "times_sent": len(self.sent),
            "sent": [msgspec.to_builtins(each) for each in self.sent],
            "committed": [msgspec.to_builtins(each) for each in self.committed.values()],
        }

    def lines(self) -> Iterator[str]:
        yield f"{self._topic}-{self._key[1]} offset {self._offset}"
        if not self.sent and not self.committed:
            yield NOTHING
            return
        yield f"sent {len(self.sent)} times" if len(self.sent) != 1 else "sent once"
        for sent in self.sent:
            who = f"group {sent.group}" if sent.attribution == "group" else sent.attribution
            yield (
                f"  {_when(sent.since_ms, sent.until_ms)}  client {sent.client_id or '-'} at "
                f"{sent.peer}  ({who})  in {sent.first}..{sent.last}"
            )
        yield "committed" if self.committed else "not committed, as far as receipts tell"
        for each in self.committed.values():
            yield (
                f"  {_when(each.since_ms, each.until_ms)}  group {each.group}  member "
                f"{each.member or '-'}  generation {each.generation}  up to {each.offset}"
            )


def _when(since_ms: int, until_ms: int) -> str:
    first = datetime.fromtimestamp(since_ms / 1000, UTC)
    text = first.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return text if until_ms == since_ms else f"{text} +{until_ms - since_ms} ms"
