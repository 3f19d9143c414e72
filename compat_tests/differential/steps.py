"""Requests of a scenario, as values: what is asked, on which connection, what is kept of it.

What only a broker knows (the id of a topic, of a member) stands in a request as `Saved` or
`TopicId`; each player puts its own broker's value there. A scenario is therefore a plain
list that can be played to any broker, printed and shortened.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ister.wal.tests.batches import make_batch


class Saved(NamedTuple):
    """A value that an earlier answer brought; `otherwise`, or `nobody-NAME`, if it never came."""

    name: str
    otherwise: Any = None


class TopicId(NamedTuple):
    """The id of a topic as the broker last told it; an id that nobody has if it did not."""

    topic: str


class Records(NamedTuple):
    """A batch whose producer id is the broker's own."""

    values: tuple[bytes | None, ...]
    producer: Saved
    epoch: int
    sequence: int

    def build(self, producer_id: Any) -> bytes:
        known = producer_id if isinstance(producer_id, int) else 1_000_000
        return make_batch(
            list(self.values),
            producer_id=known,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
        )


class Until(NamedTuple):
    """Ask again until the answer has nothing but this at `path`: what is soon, not at once.

    `0|53` is either of the two.
    """

    path: str
    value: Any


@dataclass(frozen=True)
class Step:
    api: str
    version: int
    values: dict[str, Any] = field(default_factory=dict)
    on: str = "main"  # the connection; each name is one of its own
    send: bool = True
    receive: bool = True  # False: the answer is taken by a later step, or never comes
    save: dict[str, str] = field(default_factory=dict)  # name -> path in the answer
    until: Until | None = None
    own: str = ""  # of an answer that lists everything, only names with this in them count

    def __repr__(self) -> str:
        parts = [f"{self.api!r}, {self.version}, {self.values!r}"]
        if self.on != "main":
            parts.append(f"on={self.on!r}")
        if not self.receive:
            parts.append("receive=False")
        if not self.send:
            parts.append("send=False")
        return f"Step({', '.join(parts)})"


def at(tree: Any, path: str) -> list[Any]:
    """All values at a path such as `topics.partitions.leader_epoch`."""
    found = [tree]
    for name in path.split("."):
        found = [
            each[name]
            for item in found
            for each in map(_fields, item if isinstance(item, list) else [item])
            if name in each
        ]
    return [each for item in found for each in (item if isinstance(item, list) else [item])]


def _fields(item: Any) -> dict[str, Any]:
    if isinstance(item, Records):
        return item._asdict()
    return item if isinstance(item, dict) else {}
