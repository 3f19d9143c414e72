"""Throughput and lag out of samples of heads and committed offsets; pure arithmetic.

A sample is what one partition looked like at one time. Samples may be missing: rates divide
by the time that really passed. A head that went back means that the topic was made again:
what it has then counts from 0. Lag in seconds is how long ago the head was where the group
is now, read off the line between two samples; before the first sample it is "at least".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

HOT_SHARES = 2.0  # a partition with more than this many times its fair share is hot


class Sample(NamedTuple):
    time_ms: int
    topic: str
    partition: int
    head: int
    committed: Mapping[str, int] = {}  # by group


class Flow(NamedTuple):
    """What one partition took in."""

    topic: str
    partition: int
    records: int
    seconds: float
    per_second: float
    hot: bool


class Lag(NamedTuple):
    group: str
    topic: str
    partition: int
    records: int
    seconds: float
    at_least: bool  # older than the first sample
    drain_seconds: float | None  # None: it does not get less


def by_partition(samples: Iterable[Sample]) -> dict[tuple[str, int], list[Sample]]:
    """Samples of each partition in order of time, of one time the last."""
    found: dict[tuple[str, int], dict[int, Sample]] = {}
    for sample in samples:
        found.setdefault((sample.topic, sample.partition), {})[sample.time_ms] = sample
    return {place: [by[at] for at in sorted(by)] for place, by in sorted(found.items())}


def flows(samples: Iterable[Sample]) -> list[Flow]:
    places = by_partition(samples)
    counts = {place: _grown([s.head for s in history]) for place, history in places.items()}
    fair = sum(counts.values()) / max(1, len(counts))
    result = []
    for (topic, partition), history in places.items():
        records, seconds = counts[topic, partition], _seconds(history)
        rate = records / seconds if seconds else 0.0
        hot = len(counts) > 1 and records > HOT_SHARES * fair
        result.append(Flow(topic, partition, records, seconds, rate, hot))
    return result


def lags(samples: Iterable[Sample]) -> list[Lag]:
    """Of each group where its last sample has it."""
    result = []
    for (topic, partition), history in by_partition(samples).items():
        last = history[-1]
        for group, committed in sorted(last.committed.items()):
            records = max(0, last.head - committed)
            seconds, at_least = _behind(history, committed) if records else (0.0, False)
            drain = _drain(history, group, records)
            result.append(Lag(group, topic, partition, records, seconds, at_least, drain))
    return result


def percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that at least this share is not above (nearest rank)."""
    if not values:
        return None
    ordered = sorted(values)
    rank = -(-len(ordered) * int(share * 1000) // 1000)
    return ordered[max(0, rank - 1)]


def _grown(counter: Sequence[int]) -> int:
    return sum(after - before if after >= before else after for before, after in pairwise(counter))


def _seconds(history: Sequence[Sample]) -> float:
    return (history[-1].time_ms - history[0].time_ms) / 1000


def _behind(history: Sequence[Sample], committed: int) -> tuple[float, bool]:
    """How long ago the head passed `committed`; whether it is longer than we have looked."""
    now = history[-1].time_ms
    for before, after in reversed(list(pairwise(history))):
        if before.head > after.head:  # made again: what was before is another topic
            return (now - after.time_ms) / 1000, True
        if before.head <= committed < after.head:
            part = (committed - before.head) / (after.head - before.head)
            passed = before.time_ms + part * (after.time_ms - before.time_ms)
            return (now - passed) / 1000, False
    return _seconds(history), True


def _drain(history: Sequence[Sample], group: str, records: int) -> float | None:
    if not records:
        return 0.0
    known = [sample for sample in history if group in sample.committed]
    seconds = _seconds(known)
    if not seconds:
        return None
    consumed = _grown([sample.committed[group] for sample in known])
    gained = (consumed - _grown([sample.head for sample in known])) / seconds
    return records / gained if gained > 0 else None
