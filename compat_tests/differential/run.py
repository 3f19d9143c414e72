"""Play a seed to both brokers; what comes back is the shortest sequence on which they differ."""

from __future__ import annotations

import os

from compat_tests.brokers import Both
from compat_tests.differential.compare import Disagreement, play_to_both
from compat_tests.differential.generator import MOVES, Generator
from compat_tests.differential.rules import Rules
from compat_tests.differential.shrink import Failure, shrink


def run_seed(both: Both, seed: int, rules: Rules, count: int = MOVES) -> str | None:
    """None if they agree, else the report."""
    every = list(range(len(Generator(seed, "x").moves(count))))

    def play(kept: list[int]) -> Disagreement | None:
        moves = Generator(seed, os.urandom(6).hex()).moves(count)
        steps = [step for move in kept for step in moves[move]]
        try:
            play_to_both(both, steps, rules)
        except Disagreement as found:
            return found
        except (AssertionError, OSError):
            if kept == every:
                raise
        return None  # a sequence that waits in vain shows nothing

    found = play(every)
    if found is None:
        return None
    moves = Generator(seed, "x").moves(count)
    kept: list[int] = []
    steps = 0
    for number, move in enumerate(moves):
        if steps > found.number:
            break
        kept.append(number)
        steps += len(move)
    failure: Failure = shrink(seed, found, kept, play)
    return failure.report(moves)
