"""Random sequences of requests: Ister answers as Kafka does.

A failure prints its seed and the shortest sequence that shows it; `run_seed(both, SEED, ...)`
plays it again.
"""

from __future__ import annotations

import os

import pytest

from compat_tests.brokers import Both
from compat_tests.differential.rules import Rules
from compat_tests.differential.run import run_seed

SEEDS = range(3_000 if os.environ.get("ISTER_LONG") == "1" else 8)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_sequence_has_the_same_answers(both: Both, seed: int):
    """Step by step, after the masks, less the rules of differences.md."""
    report = run_seed(both, seed, Rules.load())
    assert report is None, report
