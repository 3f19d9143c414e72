"""`ister receipts TOPIC PARTITION OFFSET`: was it sent, to whom, when, how often, when committed.

Reads the receipts that a broker keeps in `__ister_receipts` (`dispatch/receipts.py`), over
the wire like any consumer. Two kinds of evidence stay apart: *sent* names a client and a
peer, and a group only where that was certain; *committed* names group and member. No receipt
proves nothing, and this says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from ister.gateway.cli.common import BOOTSTRAP, Bootstrap, Json, Progress, print_json, run

if TYPE_CHECKING:
    from ister.dispatch.receipts import Receipt
    from ister.gateway.kafka_client.cluster import Cluster

_WAIT_MS = 500


def receipts(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    partition: Annotated[int, typer.Argument(metavar="PARTITION", min=0)],
    offset: Annotated[int, typer.Argument(metavar="OFFSET", min=0)],
    as_json: Json = False,
    bootstrap: Bootstrap = BOOTSTRAP,
) -> None:
    """Show the evidence that a record was sent and committed."""

    def command() -> None:
        from ister.gateway.evidence import Evidence
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
