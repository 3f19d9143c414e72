"""`ister receipts TOPIC PARTITION OFFSET`: was it sent, to whom, when, how often, when committed.

Reads the receipts that a broker keeps in `__ister_receipts` (`dispatch/receipts.py`), over
the wire like any consumer. Two kinds of evidence stay apart: *sent* names a client and a
peer, and a group only where that was certain; *committed* names group and member. No receipt
proves nothing, and this says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ister.gateway.cli.common import BOOTSTRAP, Bootstrap, Json, Progress, print_json, run

if TYPE_CHECKING:
    from ister.dispatch.receipts import CommittedReceipt, Receipt, SentReceipt
    from ister.gateway.kafka_client.cluster import Cluster

_WAIT_MS = 500
_NOTHING = "No receipt. That does not prove that it was not delivered."


def receipts(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    partition: Annotated[int, typer.Argument(metavar="PARTITION", min=0)],
    offset: Annotated[int, typer.Argument(metavar="OFFSET", min=0)],
    as_json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP,
) -> None:
    """Show the evidence that a record was sent and committed."""

    def command() -> None:
        from ister.gateway.kafka_client.cluster import Cluster

        with Cluster(bootstrap) as cluster:
            topic_id = bytes(cluster.topic(topic).topic_id).hex()
            found = Evidence(topic, topic_id, partition, offset)
            progress = Progress("receipts read")
            for number, receipt in enumerate(_read(cluster)):
                found.add(receipt)
                if number % 1000 == 0:
                    progress.at(number)
            progress.end()
        if as_json:
            print_json(found.plain())
        else:
            for line in found.lines():
                print(line)

    run(command)


class Evidence:
    """What receipts say of one record."""

    def __init__(self, topic: str, topic_id: str, partition: int, offset: int) -> None:
        self._topic = topic
        self._key = (topic_id, partition)
        self._offset = offset
        self.sent: list[SentReceipt] = []
        self.committed: dict[str, CommittedReceipt] = {}  # by group, the first that covers it

    def add(self, receipt: Receipt) -> None:
        from ister.dispatch.receipts import SentReceipt

        if (receipt.topic_id, receipt.partition) != self._key:
            return
        if isinstance(receipt, SentReceipt):
            if receipt.first <= self._offset <= receipt.last:
                self.sent.append(receipt)
        elif receipt.offset > self._offset:
            self.committed.setdefault(receipt.group, receipt)

    def plain(self) -> dict[str, Any]:
        import msgspec

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
            yield _NOTHING
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


def _read(cluster: Cluster) -> Iterator[Receipt]:
    """All receipts there are now, oldest first; what cannot be read is passed over."""
    import msgspec

    from ister.dispatch.receipts import decode
    from ister.gateway.internal_topics import RECEIPTS
    from ister.gateway.kafka_client import data

    (there,) = cluster.metadata([RECEIPTS]).topics
    if there.error_code:
        return  # nobody has read anything yet, or receipts are off
    ((connection, indexes),) = cluster.by_leader(RECEIPTS, [0]).items()
    at = data.list_offsets_of(connection, RECEIPTS, indexes, data.EARLIEST)[0]
    end = data.list_offsets_of(connection, RECEIPTS, indexes, data.LATEST)[0]
    while at < end:
        fetched = data.fetch(connection, RECEIPTS, {0: at}, max_wait_ms=_WAIT_MS)[0]
        at = fetched.next_offset
        for record in fetched.records:
            try:
                yield decode(record.value or b"")
            except msgspec.MsgspecError:
                continue


def _when(since_ms: int, until_ms: int) -> str:
    first = datetime.fromtimestamp(since_ms / 1000, UTC)
    text = first.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return text if until_ms == since_ms else f"{text} +{until_ms - since_ms} ms"
