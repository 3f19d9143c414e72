"""The promised metrics, from `metrics.toml`, for whoever checks against them or lists them.

`python -m deploy.metrics` writes docs/metrics.md. What a broker exports beyond the list is
not promised, so nothing here or in a dashboard may use it.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
PAGE = FOLDER.parent / "docs" / "metrics.md"
_HISTOGRAM_SUFFIXES = ("_bucket", "_sum", "_count")

_HEAD = """\
# Metrics

<!-- Made by `python -m deploy.metrics`; edit deploy/metrics.toml instead. -->

Prometheus reads them from `http://HOST:9644/metrics`. These names and labels are promised; what
else is there may change. A group that cannot be told is the label value `""`: a Fetch names no
group. Rules and a dashboard are in `deploy/`, and each alert has a page in the
[runbook](runbook/index.md)."""


class Metric(NamedTuple):
    name: str
    kind: str  # counter, gauge or histogram
    labels: tuple[str, ...]
    section: str
    help: str


def promised() -> list[Metric]:
    """In the order of the file."""
    with (FOLDER / "metrics.toml").open("rb") as file:
        rows = tomllib.load(file)["metric"]
    return [Metric(**{**row, "labels": tuple(row["labels"])}) for row in rows]


def series() -> dict[str, tuple[str, ...]]:
    """Labels by the name that a query uses: a histogram has three, one of them with `le`."""
    found: dict[str, tuple[str, ...]] = {}
    for metric in promised():
        if metric.kind != "histogram":
            found[metric.name] = metric.labels
            continue
        for suffix in _HISTOGRAM_SUFFIXES:
            bounds = ("le",) if suffix == "_bucket" else ()
            found[metric.name + suffix] = metric.labels + bounds
    return found


def page() -> str:
    """docs/metrics.md."""
    lines = [_HEAD]
    section = ""
    for metric in promised():
        if metric.section != section:
            section = metric.section
            lines += [f"\n## {section}\n"]
            lines += ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
