"""`/api/v1/subscriptions`: every (group, topic, partition), in pages."""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.messages import offset_commit
from ister.gateway.tests.wire_kit import Wire
from ister.testing import Broker
from ister.wal.tests.batches import make_batch

pytestmark = pytest.mark.slow

GROUPS = ("a", "b/ü", "c")


def commit(wire: Wire, group: str, offset: int) -> None:
    """As a consumer does that manages its partitions itself."""
    asked = offset_commit.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=(
            offset_commit.OffsetCommitRequestTopic(
                name="t",
                partitions=tuple(
                    offset_commit.OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offset, committed_metadata=""
                    )
                    for index in (0, 1)
                ),
            ),
        ),
    )
    answer = wire.request(offset_commit, ApiKey.OFFSET_COMMIT, 8, asked)
    assert all(each.error_code == 0 for each in answer.topics[0].partitions)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(http=True) as running:
        with Wire(running.port) as wire:
            wire.create("t", 2)
            wire.produce("t", make_batch([b"v"] * 10))
            for number, group in enumerate(GROUPS):
                commit(wire, group, number)
        yield running


def ask(broker: Broker, **query: str) -> dict[str, Any]:
    url = f"{broker.http_url}/api/v1/subscriptions?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 our own broker
        found: dict[str, Any] = json.load(answer)
    return found


def test_every_subscription_is_there(broker: Broker) -> None:
    """Groups that nobody has joined too: their cursors are all there is of them."""
    found = ask(broker)
    assert found["next"] is None
    keys = [(each["group"], each["partition"]) for each in found["subscriptions"]]
    assert keys == [(group, index) for group in GROUPS for index in (0, 1)]
    first, empty = found["subscriptions"][:2]
    assert (first["head"], first["committed"], first["lag"]) == (10, 0, 10)
    assert (empty["head"], empty["lag"]) == (0, 0)
    assert first["path"] == "/topics/default/t/0/subscriptions/a/cursor"
    assert (first["member"], first["sent"], first["sent_to"]) == (None, None, "no group")


def test_pages_lead_from_one_to_the_next(broker: Broker) -> None:
    seen: list[tuple[str, int]] = []
    after = ""
    for _ in range(10):
        page = ask(broker, limit="2", after=after)
        seen += [(each["group"], each["partition"]) for each in page["subscriptions"]]
        if page["next"] is None:
            break
        after = page["next"]
    assert seen == [(group, index) for group in GROUPS for index in (0, 1)]


def test_one_group_alone(broker: Broker) -> None:
    found = ask(broker, group="b/ü")["subscriptions"]
    assert [(each["group"], each["lag"]) for each in found] == [("b/ü", 9), ("b/ü", 0)]
    assert ask(broker, group="nobody")["subscriptions"] == []
