"""What handlers work with: the log, metadata, groups, and the small services between.

Put together by `broker.py`; handlers take from it what they need and keep nothing.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from ister.dispatch.cursors import CursorService
from ister.dispatch.delivery import Delivery
from ister.dispatch.parked import ParkedReads, Timer
from ister.dispatch.sent import Sent
from ister.gateway.coordinator.offsets import OffsetService
from ister.gateway.coordinator.service import GroupService
from ister.gateway.fetch_sessions import FetchSessions
from ister.gateway.key_checks import KeyChecks
from ister.gateway.producer_ids import ProducerIds
from ister.gateway.request_stats import RequestStats
from ister.gateway.settings import BrokerSettings
from ister.gateway.topic_admin import TopicAdmin
from ister.metadata.catalog import Catalog, Topic
from ister.wal.clock import Clock
from ister.wal.cold import ColdReader
from ister.wal.driver import Driver
from ister.wal.log import Log
from ister.wal.partition import Partition
from ister.wal.times import TimeIndex


@dataclass(slots=True, kw_only=True, eq=False)
class Context:
    settings: BrokerSettings
    log: Log
    reader: ColdReader
    times: TimeIndex
    catalog: Catalog
    topics: TopicAdmin
    producer_ids: ProducerIds
    key_checks: KeyChecks
    parked: ParkedReads
    fetch_sessions: FetchSessions
    delivery: Delivery
    sent: Sent
    internal: Container[bytes]  # ids of the broker's own topics
    groups: GroupService
    offsets: OffsetService
    cursors: CursorService
    clock: Clock
    driver: Driver
    requests: RequestStats
    timer: Timer

    def topic(self, name_or_id: str | bytes) -> Topic | None:
        if isinstance(name_or_id, str):
            return self.catalog.topics_by_name.get(name_or_id)
        return self.catalog.topics_by_id.get(name_or_id)

    def partition(self, topic: Topic, index: int) -> Partition | None:
        return self.log.partitions.get((topic.id, index))
