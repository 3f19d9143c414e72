"""Metrics of delivery: subscriptions, wake-ups, stalls, rings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from ister.dispatch.attribution import Certainty
from ister.dispatch.counts import OTHER, Counted
from ister.dispatch.cursors import Place
from ister.gateway.broker import Broker
from ister.gateway.http.families import COUNTER, GAUGE, Family, counter, histograms, rows

_SUBSCRIPTION = ("group", "topic", "partition")
_COUNTED = (
    (
        "ister_subscription_lag_detected_total",
        "lag_detected",
        "Times that the heartbeat found a reader behind a durable head it had not been told of.",
    ),
    (
        "ister_subscription_fallback_polls_total",
        "fallback_polls",
        "Answers that a reader owes to the heartbeat.",
    ),
    (
        "ister_subscription_offset_gaps_total",
        "offset_gaps",
        "Reads that did not continue where they should have; never delivered past.",
    ),
    (
        "ister_subscription_creation_races_detected_total",
        "creation_races",
        "Heads that moved while a reader was being parked.",
    ),
)
_POLLS = (
    ("ister_dispatcher_notifier_polls_total", "notifier_polls", "Parked fetches woken by it."),
    ("ister_dispatcher_heartbeat_polls_total", "heartbeat_polls", "Parked fetches asked by it."),
)


def collect(core: Broker) -> Iterator[Family]:
    yield from _subscriptions(core)
    for name, attribute, help in _COUNTED:
        counted = (
            ((key.group, _topic(core, key), _partition(key)), float(getattr(row, attribute)))
            for key, row in core.delivery.counts.rows.items()
        )
        yield rows(name, COUNTER, help, _SUBSCRIPTION, counted)
    for name, attribute, help in _POLLS:
        polls: Counter[tuple[str, ...]] = Counter()
        for key, row in core.delivery.counts.rows.items():
            polls[key.group, _topic(core, key)] += getattr(row, attribute)
        yield rows(name, COUNTER, help, ("group", "topic"), polls.items())
    notifier = core.notifier
    yield counter(
        "ister_notifier_notifications_total",
        "Commits that moved a head somebody waits at.",
        notifier.notifications,
    )
    yield counter(
        "ister_notifier_task_deaths_total",
        "Times that the notifier ended and was started again.",
        notifier.deaths,
    )
    yield histograms(
        "ister_dispatch_stall_seconds",
        "From the moment a batch is durable to the answer of the reader that waited for it.",
        (),
        [((), core.delivery.stalls)],
    )
    yield counter(
        "ister_dispatch_unattributed_total",
        "Sent ranges that could not be given to one group.",
        core.sent.unattributed,
    )
    yield from _rings(core)
    yield histograms(
        "ister_cursor_hydration_seconds",
        "Time to load the cursors at the start.",
        (),
        [((), core.delivery.hydrations)],
    )
    yield counter(
        "ister_cursor_retention_adjustments_total",
        "Cursors that the log start has passed.",
        core.passed.adjustments,
    )


def _subscriptions(core: Broker) -> Iterator[Family]:
    yield rows(
        "ister_subscription_lag_messages",
        GAUGE,
        "Durable records that the subscription has not committed.",
        _SUBSCRIPTION,
        core.subscriptions.lags(),
    )
    yield rows(
        "ister_cursor_persisted_lag",
        GAUGE,
        "Records between what was sent and what is committed durably.",
        _SUBSCRIPTION,
        _unpersisted(core),
    )
    yield rows(
        "ister_subscription_last_dispatched_offset",
        GAUGE,
        "Last offset that was sent.",
        _SUBSCRIPTION,
        _last_sent(core),
    )


def _last_sent(core: Broker) -> Iterable[tuple[tuple[str, ...], float]]:
    found: dict[tuple[str, ...], float] = {}
    for row in core.sent.rows():
        if row.last_sent is not None:
            known = row.attributed.certainty is Certainty.GROUP
            group = row.attributed.group if known else ""
            labels = (group, row.topic, str(row.partition.index))
            found[labels] = max(found.get(labels, -1.0), float(row.last_sent))
    return found.items()


def _unpersisted(core: Broker) -> Iterator[tuple[tuple[str, ...], float]]:
    for row in core.sent.rows():
        last, partition = row.last_sent, row.partition
        if last is not None and row.attributed.certainty is Certainty.GROUP:
            group = row.attributed.group
            cursor = core.cursors.known(group, Place(partition.topic_id, partition.index))
            labels = (group, row.topic, str(partition.index))
            yield labels, float(max(0, last + 1 - (0 if cursor is None else cursor.offset)))


def _rings(core: Broker) -> Iterator[Family]:
    dropped: Counter[tuple[str, ...]] = Counter()
    kept: Counter[tuple[str, ...]] = Counter()
    topics = core.storage.catalog.topics_by_id
    for partition in core.log.partitions.values():
        ring = partition.ring
        if ring is not None and partition.topic_id in topics:
            labels = (topics[partition.topic_id].name,)
            dropped[labels] += ring.dropped_records
            kept[labels] += ring.head - ring.oldest
    yield rows(
        "ister_dispatch_dropped_total",
        COUNTER,
        "Records of non-reliable topics that left the ring before a reader asked for them.",
        ("topic",),
        dropped.items(),
    )
    yield rows(
        "ister_dispatch_ring_records",
        GAUGE,
        "Records in the ring of a non-reliable topic.",
        ("topic",),
        kept.items(),
    )


def _topic(core: Broker, key: Counted) -> str:
    if not key.topic_id:
        return OTHER
    topic = core.storage.catalog.topics_by_id.get(key.topic_id)
    return "" if topic is None else topic.name


def _partition(key: Counted) -> str:
    return OTHER if key.partition < 0 else str(key.partition)
