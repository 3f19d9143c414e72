"""Files and directories in memory that know what a power cut would leave of them.

A file or directory holds what everybody sees now, plus the list of changes since
it was last synced, each with what it replaced. So syncing costs nothing (the list
is dropped), memory holds one copy of the data, and the durable state is found by
undoing the list. `survivor` is the state after a power cut:

- of a file any subset of the unsynced changes, in any order, each one whole or
  torn at bytes or sectors; where the size grew without its data there are zeros;
- of a directory a prefix of the unsynced name changes. Directories are independent
  of each other, but a rename never loses both names.

Paths, handles, locks and faults are `memory_fs.py`.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Iterator
from dataclasses import dataclass

SECTOR_BYTES = 512
CUTS_MAX = 5  # a torn write falls into at most this many pieces plus one


class Survivors(enum.Enum):
    """What is left of the unsynced changes; a `random.Random` in its place chooses a part."""

    NOTHING = "nothing"
    EVERYTHING = "everything"


Survival = random.Random | Survivors


class State(enum.Enum):
    DIRTY = "dirty"  # waits for a sync
    LOST = "lost"  # a sync of it failed: seen by readers, perhaps never on the platter
    SYNCED = "synced"  # synced behind a lost one (otherwise a synced change is forgotten)


@dataclass(slots=True, eq=False)
class Change:
    """A write, or a truncate (`new` is empty)."""

    position: int
    old: bytes
    new: bytes
    size_before: int
    size_after: int
    state: State = State.DIRTY


class Inode:
    """A file without its names."""

    __slots__ = ("changes", "data", "handles", "links")

    def __init__(self, data: bytearray | None = None) -> None:
        self.data = bytearray() if data is None else data
        self.changes: list[Change] = []
        self.links = 0
        self.handles = 0

    def write(self, new: bytes, position: int) -> None:
        size = len(self.data)
        end = position + len(new)
        old = bytes(memoryview(self.data)[position:end])
        if position > size:
            self.data.extend(bytes(position - size))
        self.data[position:end] = new
        self.changes.append(Change(position, old, new, size, len(self.data)))

    def truncate(self, size: int) -> None:
        before = len(self.data)
        old = bytes(memoryview(self.data)[size:])
        _resize(self.data, size)
        self.changes.append(Change(size, old, b"", before, size))

    def sync(self) -> None:
        if all(change.state is State.DIRTY for change in self.changes):
            self.changes.clear()
            return
        for change in self.changes:
            if change.state is State.DIRTY:
                change.state = State.SYNCED

    def sync_half(self) -> None:
        """What a sync has done when it is cut in the middle."""
        if any(change.state is not State.DIRTY for change in self.changes):
            return
        if len(self.changes) == 1:
            self.changes = _split(self.changes[0])
        del self.changes[: len(self.changes) // 2]

    def lose(self) -> None:
        """A sync failed: Linux marks the pages clean, so no later sync writes them again."""
        for change in self.changes:
            if change.state is State.DIRTY:
                change.state = State.LOST

    def platter(self) -> bytearray:
        """The state before the first change that is still remembered."""
        image = bytearray(self.data)
        for change in reversed(self.changes):
            _resize(image, change.size_before)
            image[change.position : change.position + len(change.old)] = change.old
        return image

    def survivor(self, survival: Survival) -> bytearray:
        if not self.changes:
            return bytearray(self.data)
        image = self.platter()
        synced = [i for i, change in enumerate(self.changes) if change.state is State.SYNCED]
        settled = synced[-1] + 1 if synced else 0
        for change in self.changes[:settled]:
            if change.state is State.SYNCED:
                _apply(image, change)
            elif isinstance(survival, random.Random):
                _apply_part(image, change, survival)
        open_changes = self.changes[settled:]
        if isinstance(survival, random.Random):
            _apply_some(image, open_changes, survival)
        elif survival is Survivors.EVERYTHING:
            for change in open_changes:
                if change.state is State.DIRTY:
                    _apply(image, change)
        return image


def _resize(image: bytearray, size: int) -> None:
    if size < len(image):
        del image[size:]
    else:
        image.extend(bytes(size - len(image)))


def _split(change: Change) -> list[Change]:
    half = len(change.new) // 2
    if not half:
        return [change]
    middle = change.position + half
    size = max(change.size_before, middle)
    return [
        Change(change.position, change.old[:half], change.new[:half], change.size_before, size),
        Change(middle, change.old[half:], change.new[half:], size, change.size_after),
    ]


def _apply(image: bytearray, change: Change) -> None:
    if change.new:
        _place(image, change.position, change.new)
    elif change.size_after < change.size_before:
        del image[change.size_after :]
    else:
        _resize(image, max(len(image), change.size_after))


def _place(image: bytearray, position: int, piece: bytes) -> None:
    if position > len(image):
        image.extend(bytes(position - len(image)))
    image[position : position + len(piece)] = piece


def _apply_some(image: bytearray, changes: list[Change], rng: random.Random) -> None:
    """Often a mixture, but the two pure cases too: they catch what a mixture hides."""
    dice = rng.random()
    if dice < 0.15:
        return
    if dice < 0.3:
        for change in changes:
            if change.state is State.DIRTY:
                _apply(image, change)
        return
    order = list(changes)
    if dice < 0.65:
        rng.shuffle(order)
    for change in order:
        _apply_part(image, change, rng)


def _apply_part(image: bytearray, change: Change, rng: random.Random) -> None:
    dice = rng.random()
    if dice < 0.3:
        return
    if dice < 0.65 or not change.new:
        _apply(image, change)
        return
    for start, stop in _pieces(change, rng):
        _place(image, change.position + start, change.new[start:stop])
    if rng.random() < 0.5:  # the new size got there although not all of its data did
        _resize(image, max(len(image), change.position + len(change.new)))


def _pieces(change: Change, rng: random.Random) -> Iterator[tuple[int, int]]:
    """The parts of a torn write that are there, as ranges of its bytes."""
    size = len(change.new)
    if rng.random() < 0.4:
        yield 0, rng.randrange(size)
        return
    first = change.position // SECTOR_BYTES + 1  # the first sector border inside the write
    last = (change.position + size - 1) // SECTOR_BYTES
    cuts = {
        rng.randint(first, last) * SECTOR_BYTES - change.position
        for _ in range(rng.randint(1, CUTS_MAX))
        if first <= last
    }
    borders = [0, *sorted(cuts), size]
    for index in range(rng.randint(0, 1), len(borders) - 1, 2):
        yield borders[index], borders[index + 1]


# -- names ---------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class NameChange:
    """What one operation did to the names of one directory, as (name, before, after)."""

    names: tuple[tuple[str, Node | None, Node | None], ...]
    # The change of another directory without which this one cannot survive: where a
    # rename takes a name away, the one that gives the new name.
    needs: tuple[Directory, NameChange] | None = None


class Directory:
    __slots__ = ("changes", "entries")

    def __init__(self) -> None:
        self.entries: dict[str, Node] = {}
        self.changes: list[NameChange] = []

    def change(self, *names: tuple[str, Node | None]) -> NameChange:
        """Give each name its new node (None: take it away), all at once."""
        change = NameChange(tuple((name, self.entries.get(name), node) for name, node in names))
        for name, before, after in change.names:
            _set(self.entries, name, after)
            if isinstance(before, Inode):
                before.links -= 1
            if isinstance(after, Inode):
                after.links += 1
        self.changes.append(change)
        return change

    def sync(self, through: NameChange | None = None) -> None:
        """All changes are durable, or those up to `through`."""
        count = len(self.changes)
        if through is not None:
            count = self.changes.index(through) + 1 if through in self.changes else 0
        done = self.changes[:count]
        del self.changes[:count]
        for change in done:
            if change.needs is not None:
                change.needs[0].sync(change.needs[1])

    def entries_after(self, kept: int) -> dict[str, Node]:
        """The entries if only the first `kept` of the unsynced changes survive."""
        entries = dict(self.entries)
        for change in reversed(self.changes[kept:]):
            for name, before, _after in change.names:
                _set(entries, name, before)
        return entries

    def nodes(self) -> Iterator[Node]:
        """Every node that a survivor of this directory may hold."""
        yield from self.entries.values()
        for change in self.changes:
            for _name, before, _after in change.names:
                if before is not None:
                    yield before


Node = Inode | Directory


def _set(entries: dict[str, Node], name: str, node: Node | None) -> None:
    if node is None:
        entries.pop(name, None)
    else:
        entries[name] = node


def survivor(root: Directory, survival: Survival) -> Directory:
    """A copy of the whole tree as a power cut leaves it, everything in it synced."""
    kept = _kept_changes(root, survival)
    copies: dict[int, Node] = {}

    def copy(node: Node) -> Node:
        if (known := copies.get(id(node))) is not None:
            return known
        if isinstance(node, Inode):
            copies[id(node)] = inode = Inode(node.survivor(survival))
            return inode
        copies[id(node)] = directory = Directory()
        for name, child in node.entries_after(kept[node]).items():
            directory.entries[name] = twin = copy(child)
            if isinstance(twin, Inode):
                twin.links += 1
        return directory

    result = copy(root)
    assert isinstance(result, Directory)
    return result


def _kept_changes(root: Directory, survival: Survival) -> dict[Directory, int]:
    """How many name changes survive in each directory."""
    kept: dict[Directory, int] = {}
    waiting: list[Node] = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Directory) and node not in kept:
            kept[node] = _count(len(node.changes), survival)
            waiting.extend(node.nodes())
    while _drop_dependent(kept):
        pass
    return kept


def _count(changes: int, survival: Survival) -> int:
    if survival is Survivors.NOTHING:
        return 0
    if survival is Survivors.EVERYTHING:
        return changes
    return survival.randint(0, changes)


def _drop_dependent(kept: dict[Directory, int]) -> bool:
    """Take back changes whose other half did not survive; True if there was one."""
    for directory, count in kept.items():
        for index, change in enumerate(directory.changes[:count]):
            if change.needs is None:
                continue
            other, twin = change.needs
            if twin in other.changes[kept.get(other, 0) :]:
                kept[directory] = index
                return True
    return False
