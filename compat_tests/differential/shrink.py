"""A sequence on which the two disagree, and the shortest one that still shows it.

First everything behind the mismatch goes, then one move after another, from the end, as long
as the same field of the same API still differs. Each trial uses names of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from compat_tests.differential.compare import Disagreement

TRIALS_MAX = 60


class Failure(NamedTuple):
    seed: int
    kept: list[int]  # the moves that are needed
    disagreement: Disagreement

    def report(self, moves: Sequence[object]) -> str:
        lines = [f"seed {self.seed}; the shortest sequence found has {len(self.kept)} moves:"]
        lines += [f"  {moves[each]!r}" for each in self.kept]
        return "\n".join([*lines, str(self.disagreement)])


def shrink(
    seed: int,
    first: Disagreement,
    kept: list[int],
    play: Callable[[list[int]], Disagreement | None],
) -> Failure:
    """`kept` are the moves up to the mismatch; `play` plays some of them under new names."""
    best = first
    for move in reversed(kept[:-1][-TRIALS_MAX:]):
        fewer = [each for each in kept if each != move]
        found = play(fewer)
        if found is not None and _same(found, first):
            kept, best = fewer, found
    return Failure(seed, kept, best)


def _same(one: Disagreement, other: Disagreement) -> bool:
    return one.step.api == other.step.api and _fields(one) & _fields(other) != set()


def _fields(disagreement: Disagreement) -> set[str]:
    return {each.path.rpartition(".")[2] for each in disagreement.mismatches}
