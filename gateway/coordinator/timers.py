"""One heap of deadlines for all groups.

A name has at most one deadline that counts; setting it again replaces it. The old
entry stays in the heap until it comes up and is skipped, so setting costs a push
and nothing is searched. Heartbeats do not come here at all: a group is woken at the
earliest deadline it knew of, looks, and sets the next one (see `Rounds.wake_ms`).
"""

from __future__ import annotations

import heapq


class Timers:
    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []
        self._deadlines: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._deadlines)

    def set(self, name: str, deadline_ms: int | None) -> None:
        """None: no deadline."""
        if deadline_ms is None:
            self._deadlines.pop(name, None)
        elif self._deadlines.get(name) != deadline_ms:
            self._deadlines[name] = deadline_ms
            heapq.heappush(self._heap, (deadline_ms, name))
            self._tidy()

    def next_deadline(self) -> int | None:
        while self._heap:
            deadline_ms, name = self._heap[0]
            if self._deadlines.get(name) == deadline_ms:
                return deadline_ms
            heapq.heappop(self._heap)
        return None

    def due(self, now_ms: int) -> list[str]:
        """The names whose time has come, earliest first; their deadlines are gone."""
        found: list[str] = []
        while True:
            deadline_ms = self.next_deadline()
            if deadline_ms is None or deadline_ms > now_ms:
                return found
            _, name = heapq.heappop(self._heap)
            del self._deadlines[name]
            found.append(name)

    def _tidy(self) -> None:
        """Skipped entries never outnumber the living by more than this."""
        if len(self._heap) > 64 + 4 * len(self._deadlines):
            self._heap = [(deadline_ms, name) for name, deadline_ms in self._deadlines.items()]
            heapq.heapify(self._heap)
