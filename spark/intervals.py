"""Ranges of offsets, first included and end not, as sorted lists without overlap."""

from __future__ import annotations

from collections.abc import Iterable

Range = tuple[int, int]


def union(ranges: Iterable[Range]) -> list[Range]:
    """The same offsets, each once; ranges that touch become one."""
    result: list[Range] = []
    for first, end in sorted(r for r in ranges if r[0] < r[1]):
        if result and first <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((first, end))
    return result


def subtract(ranges: Iterable[Range], taken: Iterable[Range]) -> list[Range]:
    """What of `ranges` is not in `taken`."""
    result: list[Range] = []
    holes = union(taken)
    for first, end in union(ranges):
        for low, high in holes:
            if high <= first or low >= end:
                continue
            if first < low:
                result.append((first, low))
            first = high
            if first >= end:
                break
        if first < end:
            result.append((first, end))
    return result


def overlaps(ranges: Iterable[Range]) -> list[Range]:
    """Offsets that are in more than one of the ranges."""
    result: list[Range] = []
    reached: int | None = None
    for first, end in sorted(r for r in ranges if r[0] < r[1]):
        if reached is not None and first < reached:
            result.append((first, min(end, reached)))
        reached = end if reached is None else max(reached, end)
    return union(result)


def size(ranges: Iterable[Range]) -> int:
    return sum(end - first for first, end in ranges)
