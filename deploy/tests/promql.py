"""Which series and labels a query uses, by its syntax tree."""

from __future__ import annotations

from collections.abc import Iterator

import promql_parser

from deploy import metrics

TARGET_LABELS = ("job", "instance")  # Prometheus adds them to everything
OTHER_SERIES = {"up": ()}  # Prometheus' own


def problems(query: str) -> list[str]:
    """What of a query is not promised; empty: all of it is. A query that does not parse raises."""
    allowed = metrics.series() | OTHER_SERIES
    found: list[str] = []
    labels: set[str] = set(TARGET_LABELS)
    for node in _nodes(promql_parser.parse(query)):
        if isinstance(node, promql_parser.VectorSelector):
            if node.name not in allowed:
                found.append(f"{node.name} is not promised")
                continue
            own = {*allowed[node.name], *TARGET_LABELS}
            labels |= own
            names = {matcher.name for matcher in node.matchers.matchers}
            found += [f"{node.name} has no label {name}" for name in names - own]
    for node in _nodes(promql_parser.parse(query)):
        if isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
            found += [f"no label {name} to sum by" for name in set(node.modifier.labels) - labels]
    return found


def _nodes(tree: promql_parser.Expr) -> Iterator[object]:
    nodes: list[object] = []

    def visit(node: object) -> None:
        nodes.append(node)

    promql_parser.walk(tree, visit)
    yield from nodes
