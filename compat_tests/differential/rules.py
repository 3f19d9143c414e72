"""Differences on purpose: the rules of `differences.md`, each with both answers.

A row of the table is a rule: API, when, field, Kafka's answer, Ister's answer, why. *When*
is a list of conditions that all have to hold: `version>=3`, or a path into the request and a
value that one of the values there has to be (`topics.name=a|b`, `resources.configs=null`).
*Field* is a path into the answer as a mismatch prints it; `[*]` is any item, `[a|b]` those of
these names. Answers are JSON; `absent` and `present` speak of the field or item itself. A
rule excuses a difference only if both brokers answered exactly as it says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from compat_tests.differential.steps import Step, at

LIST = Path(__file__).parents[1] / "differences.md"
_ABSENT, _PRESENT = "absent", "present"
_CONDITION = re.compile(r"([\w.]+)(>=|<=|=)(.*)")


class Rule(NamedTuple):
    api: str
    when: str
    field: str
    kafka: str
    ister: str
    why: str

    def holds(self, step: Step) -> bool:
        if step.api != self.api:
            return False
        return all(_condition(each.strip(), step) for each in self.when.split(",") if each.strip())

    def covers(self, path: str) -> bool:
        parts = re.split(r"\[([^\]]*)\]", self.field)
        pattern = ""
        for number, part in enumerate(parts):
            if number % 2 == 0:
                pattern += re.escape(part)
            elif part == "*":
                pattern += r"\[[^\]]*\]"
            else:
                pattern += r"\[(?:" + "|".join(map(re.escape, part.split("|"))) + r")\]"
        return re.fullmatch(pattern, path) is not None

    def answers(self, kafka: Any, ister: Any) -> bool:
        return _is(self.kafka, kafka) and _is(self.ister, ister)


class Rules:
    """All rules, and which of them were met."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = list(rules)
        self.met: set[Rule] = set()

    @classmethod
    def load(cls, path: Path = LIST) -> Rules:
        return cls(read_rules(path.read_text()))

    def allow(self, step: Step, path: str, kafka: Any, ister: Any) -> bool:
        for rule in self.rules:
            if rule.holds(step) and rule.covers(path) and rule.answers(kafka, ister):
                self.met.add(rule)
                return True
        return False


def read_rules(text: str) -> list[Rule]:
    """Rows of the table with code in their first five cells."""
    rules = []
    for line in text.splitlines():
        # A bar between alternatives stands inside a code cell.
        cells = [cell.strip() for cell in re.split(r"\|(?=(?:[^`]*`[^`]*`)*[^`]*$)", line)][1:-1]
        if len(cells) == 6 and cells[0].startswith("`"):
            api, when, field, kafka, ister = (cell.strip("`") for cell in cells[:5])
            rules.append(Rule(api, when, field, kafka, ister, cells[5]))
    return rules


def _condition(text: str, step: Step) -> bool:
    found = _CONDITION.fullmatch(text)
    assert found is not None, f"no condition: {text}"
    path, operator, wanted = found.groups()
    if path == "version":
        number = int(wanted)
        return {">=": step.version >= number, "<=": step.version <= number}.get(
            operator, step.version == number
        )
    if wanted == "null":
        return _last(step.values, path)
    return any(str(value) in wanted.split("|") for value in at(step.values, path))


def _last(values: dict[str, Any], path: str) -> bool:
    """Whether the request has null there."""
    parent, _, name = path.rpartition(".")
    holders = at(values, parent) if parent else [values]
    return any(isinstance(each, dict) and each.get(name) is None for each in holders)


def _is(told: str, answer: Any) -> bool:
    if told == _ABSENT:
        return bool(answer == "<absent>")
    if told == _PRESENT:
        return bool(answer != "<absent>")
    return json.loads(told) in (answer, str(answer))
