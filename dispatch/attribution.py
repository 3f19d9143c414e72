"""Whose fetch was it? A Fetch names no group, so this says so only where it is certain.

A member holds partitions, and has a client id and an address. A fetch is given to a group
only if exactly one live member of one group has its client id and address and holds the
partition; two of them make it ambiguous, none of them means no group, as with a reader
that assigns partitions to itself (Spark's does). Never a guess.

Pure: whoever knows the groups tells what their members hold. `version` changes whenever an
answer may.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple


class Certainty(Enum):
    GROUP = "group"
    AMBIGUOUS = "ambiguous"
    NO_GROUP = "no group"


class Attributed(NamedTuple):
    """Group and member are empty unless it is certain."""

    certainty: Certainty
    group: str = ""
    member_id: str = ""


class Holding(NamedTuple):
    """A live member and what it holds: (topic name, partition)."""

    member_id: str
    client_id: str
    host: str
    places: Iterable[tuple[str, int]]


class Holder(NamedTuple):
    """Who holds a partition, and since when it is known (monotonic clock)."""

    member_id: str
    client_id: str
    host: str
    since: float


AMBIGUOUS = Attributed(Certainty.AMBIGUOUS)
NO_GROUP = Attributed(Certainty.NO_GROUP)

_Key = tuple[str, str, str, int]  # client id, host, topic, partition


class Attribution:
    """All that members hold."""

    def __init__(self) -> None:
        self._held: dict[_Key, dict[tuple[str, str], None]] = {}  # by (group, member)
        self._of_group: dict[str, list[tuple[_Key, str]]] = {}
        self._since: dict[str, float] = {}
        self.version = 0

    def set_group(self, group: str, holdings: Iterable[Holding], now: float = 0.0) -> None:
        """What the members of a group hold from now on."""
        self.remove_group(group)
        kept: list[tuple[_Key, str]] = []
        for member_id, client_id, host, places in holdings:
            for topic, partition in places:
                key = (client_id, host, topic, partition)
                self._held.setdefault(key, {})[group, member_id] = None
                kept.append((key, member_id))
        if kept:
            self._of_group[group] = kept
            self._since[group] = now

    def remove_group(self, group: str) -> None:
        self.version += 1
        self._since.pop(group, None)
        for key, member_id in self._of_group.pop(group, ()):
            holders = self._held[key]
            holders.pop((group, member_id), None)
            if not holders:
                del self._held[key]

    def find(self, client_id: str, host: str, topic: str, partition: int) -> Attributed:
        holders = self._held.get((client_id, host, topic, partition))
        if not holders:
            return NO_GROUP
        if len(holders) > 1:
            return AMBIGUOUS
        [(group, member_id)] = holders
        return Attributed(Certainty.GROUP, group, member_id)

    def groups(self) -> list[str]:
        """Those whose members hold something."""
        return list(self._of_group)

    def holders(self, group: str) -> dict[tuple[str, int], Holder]:
        """(topic, partition) to the member that holds it."""
        return {
            (topic, partition): Holder(member, client_id, host, self._since[group])
            for (client_id, host, topic, partition), member in self._of_group.get(group, ())
        }

    def check(self) -> None:
        """What must hold; for tests."""
        assert all(self._held.values())
        held = {(key, *holder) for key, holders in self._held.items() for holder in holders}
        assert held == {
            (key, group, member) for group, kept in self._of_group.items() for key, member in kept
        }
