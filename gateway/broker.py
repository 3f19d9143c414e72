"""A broker: storage, groups, parked reads and the server, wired and taken down in order.

Opening: storage (recovery first), cursors and groups, then the listeners. Closing: stop
accepting, wake who waits, answer what is in hand, then close the log and the stores.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ister.dispatch.attribution import Attribution
from ister.dispatch.cursors import CursorService
from ister.dispatch.delivery import Delivery
from ister.dispatch.events import GROUP_RESUMED, Events
from ister.dispatch.heartbeat import Heartbeat
from ister.dispatch.notifier import Notifier
from ister.dispatch.parked import Call as Step
from ister.dispatch.parked import ParkedReads
from ister.dispatch.passed import PassedCursors
from ister.dispatch.receipts import Receipts
from ister.dispatch.sent import Sent
from ister.dispatch.subscriptions import Subscriptions
from ister.gateway.app import TICK_S, Options, Report, Storage
from ister.gateway.coordinator.holdings import holdings
from ister.gateway.coordinator.offsets import OffsetService
from ister.gateway.coordinator.service import GroupService
from ister.gateway.fetch_sessions import FetchSessions
from ister.gateway.handlers.context import Context
from ister.gateway.internal_topics import InternalIds, ReceiptTopic
from ister.gateway.key_checks import KeyChecks
from ister.gateway.listeners import Address, Listener
from ister.gateway.producer_ids import ProducerIds
from ister.gateway.request_stats import RequestStats
from ister.gateway.router import Router
from ister.gateway.server import Server
from ister.gateway.settings import BrokerSettings, coordinator_settings, topic_defaults
from ister.gateway.topic_admin import TopicAdmin
from ister.metadata.catalog import Tombstone
from ister.wal.log import Listener as Hints
from ister.wal.log import Log
from ister.wal.partition import Partition

# Cursors that one line of the log names when a group goes on.
RESUMED_TOLD_MAX = 100
# How long clients may take to be answered when the broker stops.
SETTLE_S = 5.0
_SETTLE_STEP_S = 0.005


class LoopTimer:
    """The loop as `dispatch` wants it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def soon(self, call: Step) -> None:
        self._loop.call_soon(call)

    def later(self, delay_s: float, call: Step) -> None:
        self._loop.call_later(delay_s, call)


class Broker:
    """On a running loop. `start` listens, `tick` every TICK_S, `close` ends it."""

    def __init__(self, options: Options, settings: BrokerSettings, report: Report) -> None:
        options.topic_defaults = {**topic_defaults(settings), **options.topic_defaults}
        self.settings = settings
        self.closing = False
        self.storage = Storage(options, report)
        storage = self.storage
        timer = LoopTimer(asyncio.get_running_loop())
        self.attribution = Attribution()
        self.delivery = Delivery(storage.catalog, self.attribution)
        self.parked = ParkedReads(storage.clock, timer, settings.parked_fetches_max, self.delivery)
        self.notifier = Notifier(
            self.parked.wake, self.parked.waiting, storage.clock, timer, storage.rng
        )
        self.hints: Hints = self.notifier.notify  # a seam for faults
        began = storage.clock.monotonic()
        self.cursors = CursorService(storage.store, storage.commits, storage.catalog)
        self.delivery.hydrations.observe(storage.clock.monotonic() - began)
        self.groups = GroupService(
            storage.store,
            storage.commits,
            self.cursors,
            storage.clock,
            storage.rng,
            coordinator_settings(settings),
        )
        self.events = Events(storage.clock)
        self.sent = Sent(self.attribution, storage.catalog, storage.clock)
        self.passed = PassedCursors(
            self.cursors,
            storage.log.partitions,
            storage.catalog,
            storage.clock,
            self.events,
            self.groups.is_live,
        )
        self.subscriptions = Subscriptions(
            self.cursors,
            storage.log.partitions,
            storage.catalog,
            self.attribution,
            self.sent,
            self.passed,
            self.parked,
            self.delivery.counts,
            self.events,
            storage.clock,
        )
        self.heartbeat = Heartbeat(self.parked, storage.clock, timer, self.subscriptions.compare)
        self.topic_admin = TopicAdmin(storage.topics, storage.catalog, storage.log, timer)
        internal = InternalIds(storage.catalog)
        self.receipt_topic = ReceiptTopic(self.topic_admin, storage.catalog, storage.log)
        self.receipts = Receipts(storage.catalog, storage.clock, self.receipt_topic.write, internal)
        offsets = OffsetService(self.groups, self.cursors, storage.clock)
        if settings.receipts_enable:
            self.sent.on_closed = self.receipts.sent
            offsets.on_committed = self.receipts.committed
        self.resumed: set[str] = set()  # groups whose members hold something
        self.fetch_sessions = FetchSessions(
            settings.fetch_session_slots,
            settings.fetch_session_partitions_max,
            storage.rng,
            self._topic_id,
        )
        self.context = Context(
            settings=settings,
            log=storage.log,
            reader=storage.reader,
            times=storage.times,
            catalog=storage.catalog,
            topics=self.topic_admin,
            producer_ids=ProducerIds(storage.catalog, storage.commits),
            key_checks=KeyChecks(storage.driver),
            parked=self.parked,
            fetch_sessions=self.fetch_sessions,
            delivery=self.delivery,
            sent=self.sent,
            internal=internal,
            groups=self.groups,
            offsets=offsets,
            cursors=self.cursors,
            clock=storage.clock,
            driver=storage.driver,
            requests=RequestStats(),
            timer=timer,
        )
        journal = storage.log.journal
        self.server = Server(
            settings, Router(self.context), storage.clock, lambda: journal.overloaded
        )
        self.subscriptions.begin(self.heartbeat)
        self.passed.hydrate()
        self.groups.on_members_changed = self._members_changed
        for group in self.groups.list_groups():
            self._members_changed(group.id)
        storage.log.listener = self._moved
        storage.topics.on_deleted = self._deleted(storage.topics.on_deleted)

    async def start(self) -> None:
        """Listen; OSError if an address cannot be had."""
        await self.server.listen(self.settings.parsed_listeners())

    @property
    def log(self) -> Log:
        return self.storage.log

    @property
    def listeners(self) -> list[Listener]:
        return self.server.listeners

    @property
    def bootstrap(self) -> Address:
        """Where a client on this machine begins."""
        return self.server.listeners[0].endpoint

    def tick(self) -> None:
        self.storage.tick()
        self.groups.tick(self.groups.now_ms())
        self.notifier.watch()
        self.sent.tick()
        self.receipts.tick()
        minutes = self.settings.offsets_retention_minutes
        self.passed.tick(
            self.storage.housekeeping.clock.now_ms() if minutes else None, minutes * 60_000
        )
        self.server.tick()

    async def run(self) -> None:
        """Tick until cancelled."""
        while True:
            self.tick()
            await asyncio.sleep(TICK_S)

    async def close(self) -> None:
        self.closing = True
        self.server.stop_accepting()
        self.groups.close()
        self.heartbeat.close()
        self.parked.wake_all()
        await self._settle()
        self.server.close()
        await asyncio.sleep(0)
        self.server.abort()
        self.receipt_topic.closing = True
        self.sent.close_all()
        self.receipts.flush()
        await self.storage.close()

    async def _settle(self) -> None:
        """Wait until everything that was asked is answered and gone, but not for ever."""
        until = self.storage.clock.monotonic() + SETTLE_S
        while self.storage.clock.monotonic() < until:
            if all(client.has_told_all for client in self.server.clients):
                return
            await asyncio.sleep(_SETTLE_STEP_S)
            self.parked.wake_all()

    def _topic_id(self, name: str) -> bytes | None:
        topic = self.storage.catalog.topics_by_name.get(name)
        return None if topic is None else topic.id

    def _moved(self, partitions: list[Partition]) -> None:
        """A commit is durable: hints, nothing more; who is woken is woken later."""
        try:
            self.parked.moved(partitions)
            self.passed.moved(partitions)
        except Exception as error:  # whatever is wrong with delivery, the commit is a commit
            self.storage.report(error)
        self.hints(partitions)
        self.server.committed()

    def _members_changed(self, group_id: str) -> None:
        group = self.groups.group(group_id)
        held = holdings(group)
        self.attribution.set_group(group_id, held, self.storage.clock.monotonic())
        self.passed.group_changed(group_id)
        if not held:
            self.resumed.discard(group_id)
        elif group is not None and group_id not in self.resumed:
            self.resumed.add(group_id)
            self._resumed(group_id, group.generation)

    def _resumed(self, group_id: str, generation: int) -> None:
        """A group goes on from its cursors: say where."""
        topics = self.storage.catalog.topics_by_id
        offsets = {}
        for place in sorted(self.cursors.places(group_id))[:RESUMED_TOLD_MAX]:
            cursor = self.cursors.known(group_id, place)
            if cursor is not None and place.topic_id in topics:
                offsets[f"{topics[place.topic_id].name}-{place.partition}"] = cursor.offset
        if offsets:
            self.events.tell(GROUP_RESUMED, group=group_id, generation=generation, offsets=offsets)

    def _deleted(self, following: Callable[[Tombstone], None]) -> Callable[[Tombstone], None]:
        def deleted(tombstone: Tombstone) -> None:
            self.cursors.forget_topic(tombstone.id)
            for part in (self.delivery, self.subscriptions, self.passed, self.sent):
                part.forget_topic(tombstone.id)
            self.parked.wake_topic(tombstone.id)
            following(tombstone)

        return deleted
