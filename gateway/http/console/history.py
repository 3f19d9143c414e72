"""The last minutes in numbers, for small plots: one sample every few seconds, then forgotten.

Bounded in every direction: so many samples, so many groups. A group that is not sampled
has no plot, and nothing else is lost.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ister.gateway.broker import Broker
from ister.gateway.coordinator.views import GroupListing
from ister.gateway.http.views_groups import total_lag

INTERVAL_S = 5.0
SAMPLES_MAX = 120  # ten minutes
GROUPS_MAX = 200
PLOT_WIDTH, PLOT_HEIGHT = 240, 40


class Sample(NamedTuple):
    at_s: float
    records: int
    requests: int
    connections: int
    backlog_bytes: int


class History:
    def __init__(self, core: Broker) -> None:
        self._core = core
        self._samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)
        self._lags: dict[str, deque[int]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self.take()
        self._timer = asyncio.get_running_loop().call_later(INTERVAL_S, self.start)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def take(self) -> None:
        """One sample, now."""
        core = self._core
        partitions = core.storage.log.partitions.values()
        self._samples.append(
            Sample(
                core.storage.clock.monotonic(),
                sum(each.high_watermark for each in partitions),
                sum(stats.seconds.count for stats in core.context.requests.by_api.values()),
                len(core.server.clients),
                core.storage.handoff.backlog_bytes,
            )
        )
        self._take_lags()

    def _take_lags(self) -> None:
        names = [each.id for each in core_groups(self._core)]
        for gone in self._lags.keys() - set(names):
            del self._lags[gone]
        for name in names:
            lags = self._lags.get(name)
            if lags is None:
                lags = self._lags[name] = deque(maxlen=SAMPLES_MAX)
            lags.append(total_lag(self._core, name))

    # -- what it tells -----------------------------------------------------------------

    def records_per_second(self) -> list[float]:
        return _rates((each.at_s, each.records) for each in self._samples)

    def requests_per_second(self) -> list[float]:
        return _rates((each.at_s, each.requests) for each in self._samples)

    def connections(self) -> list[float]:
        return [each.connections for each in self._samples]

    def backlog_bytes(self) -> list[float]:
        return [each.backlog_bytes for each in self._samples]

    def lag(self, group: str) -> list[float]:
        return list(self._lags.get(group, ()))


def core_groups(core: Broker) -> list[GroupListing]:
    """The first groups by name."""
    return sorted(core.groups.list_groups(), key=lambda each: each.id)[:GROUPS_MAX]


def plot(values: Sequence[float]) -> str:
    """Points of an SVG polyline, from the left to the right; empty with less than two values."""
    if len(values) < 2:
        return ""
    top = max(values) or 1
    step = PLOT_WIDTH / (len(values) - 1)
    room = PLOT_HEIGHT - 4
    return " ".join(
        f"{number * step:.1f},{2 + room * (1 - value / top):.1f}"
        for number, value in enumerate(values)
    )


def _rates(points: Iterable[tuple[float, int]]) -> list[float]:
    """Per second between neighbours; what went down (a topic was deleted) counts as nothing."""
    found = []
    before: tuple[float, int] | None = None
    for at, value in points:
        if before is not None and at > before[0]:
            found.append(max(0, value - before[1]) / (at - before[0]))
        before = (at, value)
    return found
