"""Two answers side by side: what differs, less what `differences.md` says on purpose."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from compat_tests.brokers import Both
from compat_tests.differential.play import Player
from compat_tests.differential.rules import Rules
from compat_tests.differential.steps import Step

ABSENT = "<absent>"


class Mismatch(NamedTuple):
    path: str
    kafka: Any
    ister: Any

    def __str__(self) -> str:
        return f"{self.path}: Kafka {self.kafka!r}, Ister {self.ister!r}"


class Disagreement(Exception):
    """The two do not agree; which step it was, and what differs."""

    def __init__(self, number: int, step: Step, mismatches: Sequence[Mismatch]) -> None:
        self.number = number
        self.step = step
        self.mismatches = mismatches
        lines = "\n".join(f"  {each}" for each in mismatches)
        super().__init__(f"step {number}, {step!r}:\n{lines}")


def play_to_both(both: Both, steps: Sequence[Step], rules: Rules) -> None:
    """Play all steps; Disagreement at the first answer that differs."""
    with Player(both.kafka) as kafka, Player(both.ister) as ister:
        for number, step in enumerate(steps):
            answers = kafka.play(step), ister.play(step)
            mismatches = compare(step, *answers, rules)
            if mismatches:
                raise Disagreement(number, step, mismatches)


def compare(step: Step, kafka: Any, ister: Any, rules: Rules) -> list[Mismatch]:
    return [
        Mismatch(*each)
        for each in _differences("", kafka, ister)
        if not rules.allow(step, each[0], each[1], each[2])
    ]


def _differences(path: str, kafka: Any, ister: Any) -> list[tuple[str, Any, Any]]:
    if isinstance(kafka, dict) and isinstance(ister, dict):
        names = dict.fromkeys((*kafka, *ister))
        return [
            each
            for name in names
            for each in _differences(
                f"{path}.{name}" if path else str(name),
                kafka.get(name, ABSENT),
                ister.get(name, ABSENT),
            )
        ]
    if isinstance(kafka, list) and isinstance(ister, list):
        return [
            each
            for label, one, other in _paired(kafka, ister)
            for each in _differences(f"{path}[{label}]", one, other)
        ]
    same = kafka == ister and type(kafka) is type(ister)  # 1 is not true
    return [] if same else [(path, kafka, ister)]


_NAMES = ("name", "group_id", "resource_name", "api_key", "topic", "partition_index")


def _paired(kafka: list[Any], ister: list[Any]) -> list[tuple[str, Any, Any]]:
    """Items by name where each has one of its own, else by place."""
    for name in _NAMES:
        both = [{str(_get(each, name)): each for each in side} for side in (kafka, ister)]
        if all(
            len(found) == len(side) and None not in (_get(each, name) for each in side)
            for found, side in zip(both, (kafka, ister), strict=True)
        ):
            if [k for k in both[0] if k in both[1]] != [k for k in both[1] if k in both[0]]:
                break  # the order itself differs
            return [
                (key, both[0].get(key, ABSENT), both[1].get(key, ABSENT))
                for key in dict.fromkeys((*both[0], *both[1]))
            ]
    return [
        (str(number), one, other)
        for number, (one, other) in enumerate(itertools.zip_longest(kafka, ister, fillvalue=ABSENT))
    ]


def _get(item: Any, name: str) -> Any:
    return item.get(name) if isinstance(item, dict) else None
