"""What the options mean in a bucket as it is now: partitions, and from where to where.

Offsets travel as Kafka's source writes them, {topic: {partition: offset}} with partitions as
strings, so that a checkpoint can be read by people who know the other source.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import NamedTuple

from ister.archive.ranges import Loss, OnLoss, offset_at
from ister.spark.options import EARLIEST, LATEST, BadOption, Position, Request
from ister.wal.tier.archive import Archive
from ister.wal.tier.chunk_cache import TierReader
from ister.wal.tier.manifest import Manifest

Offsets = dict[str, dict[str, int]]


class Partition(NamedTuple):
    topic: str
    number: int


Manifests = dict[Partition, Manifest]


def find(archive: Archive, request: Request) -> Manifests:
    """The manifests of the partitions that the request means; a topic must be there by name."""
    found = archive.manifests()
    names = {manifest.topic_name for manifest in found}
    if request.pattern is not None:
        wanted = {name for name in names if re.search(request.pattern, name)}
    else:
        wanted = set(request.topics) | set(request.assigned)
        if missing := sorted(wanted - names):
            raise BadOption(f"{', '.join(missing)} is not in {archive.store.url}")
    chosen: Manifests = {}
    for manifest in found:
        place = Partition(manifest.topic_name, manifest.partition)
        if place.topic not in wanted:
            continue
        if request.assigned and place.number not in request.assigned[place.topic]:
            continue
        if place in chosen:
            raise BadOption(f"several topics in {archive.store.url} are called {place.topic}")
        chosen[place] = manifest
    return chosen


def resolve(
    position: Position, manifests: Manifests, reader: TierReader, *, no_time: int | None, name: str
) -> dict[Partition, int]:
    """An offset for each partition. `no_time`: what a time without a record means (None: error)."""
    if position.offsets is not None:
        _check_same(position.offsets, manifests, name)
    return {
        place: _resolve(position, place, manifest, reader, no_time, name)
        for place, manifest in manifests.items()
    }


def clip(
    manifest: Manifest, start: int, end: int, on_loss: OnLoss, wanted_end: bool
) -> tuple[int, int]:
    """start..end inside of what is there; what is not goes to `on_loss`."""
    name, number = manifest.topic_name, manifest.partition
    last = manifest.tiered_end
    if start < min(end, manifest.log_start):
        gone = min(end, manifest.log_start)
        reason = f"retention has removed what was below {manifest.log_start}"
        on_loss(Loss(name, number, start, gone, reason))
    if wanted_end and end > last:
        reason = f"not in the archive, which ends at {last}: it was not handed over yet"
        on_loss(Loss(name, number, max(start, last), end, reason))
    start = min(max(start, manifest.log_start), last)
    return start, max(start, min(end, last))


def to_json(offsets: Mapping[Partition, int]) -> Offsets:
    result: Offsets = {}
    for place in sorted(offsets):
        result.setdefault(place.topic, {})[str(place.number)] = offsets[place]
    return result


def from_json(offsets: Offsets | str) -> dict[Partition, int]:
    if isinstance(offsets, str):
        offsets = json.loads(offsets)
    assert isinstance(offsets, dict)
    return {
        Partition(topic, int(number)): offset
        for topic, numbers in offsets.items()
        for number, offset in numbers.items()
    }


def share(
    start: Mapping[Partition, int], end: Mapping[Partition, int], limit: int
) -> dict[Partition, int]:
    """How far to go with at most `limit` records: in proportion to what each partition has.

    As the Kafka source does it: each partition that has something gets at least one, so that
    none starves; then the sum may pass the limit by less than the number of partitions.
    """
    sizes = {place: max(0, last - start.get(place, 0)) for place, last in end.items()}
    total = sum(sizes.values())
    if total <= limit:
        return dict(end)
    return {
        place: min(end[place], start.get(place, 0) + max(1, limit * size // total))
        if size
        else end[place]
        for place, size in sizes.items()
    }


def _resolve(
    position: Position,
    place: Partition,
    manifest: Manifest,
    reader: TierReader,
    no_time: int | None,
    name: str,
) -> int:
    if position.times is not None:
        return _at_time(position.times, place, manifest, reader, no_time, name)
    offset = position.everywhere
    if position.offsets is not None:
        offset = position.offsets[place.topic][place.number]
    if offset == EARLIEST:
        return manifest.log_start
    if offset == LATEST:
        return manifest.tiered_end
    assert offset is not None
    return offset


def _at_time(
    times: int | Mapping[str, Mapping[int, int]],
    place: Partition,
    manifest: Manifest,
    reader: TierReader,
    no_time: int | None,
    name: str,
) -> int:
    if isinstance(times, int):
        time = times
    else:
        try:
            time = times[place.topic][place.number]
        except KeyError:
            raise BadOption(f"{name} has no time for {place.topic}/{place.number}") from None
    found = offset_at(manifest, time, reader)
    if found is not None:
        return found
    if no_time is None:
        raise BadOption(
            f"{name}: no record of {place.topic}/{place.number} in the archive has the time "
            f"{time} or a later one (startingOffsetsByTimestampStrategy=latest starts at the end)"
        )
    return manifest.tiered_end


def _check_same(given: Mapping[str, Mapping[int, int]], manifests: Manifests, name: str) -> None:
    """Offsets by partition must name all partitions and no other, as in the Kafka source."""
    named = {Partition(topic, number) for topic, numbers in given.items() for number in numbers}
    there = set(manifests)
    if named != there:
        odd = sorted(named ^ there)
        what = ", ".join(
            f"{place.topic}/{place.number} is {'not there' if place in named else 'missing'}"
            for place in odd
        )
        raise BadOption(f"{name} must name exactly the partitions that are read: {what}")
