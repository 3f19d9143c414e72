"""The checker of queries finds what it is there to find."""

from __future__ import annotations

import pytest

from deploy.tests import promql

pytestmark = pytest.mark.product


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("ister_connections > 5", []),
        ('up{job="ister"} == 0', []),
        ("sum by (le) (rate(ister_dispatch_stall_seconds_bucket[5m]))", []),
        ("ister_conections > 5", ["ister_conections is not promised"]),
        (
            "rate(ister_dispatch_stall_seconds[5m])",
            ["ister_dispatch_stall_seconds is not promised"],
        ),
        ('ister_connections{topic="t"}', ["ister_connections has no label topic"]),
        ("sum by (tpoic) (ister_connections)", ["no label tpoic to sum by"]),
        ("1 - (ister_a or -ister_b)", ["ister_a is not promised", "ister_b is not promised"]),
    ],
)
def test_problems(query: str, found: list[str]) -> None:
    """Unknown series, unknown labels, a histogram without its suffix, anywhere in the tree."""
    assert promql.problems(query) == found


def test_a_query_that_does_not_parse() -> None:
    with pytest.raises(ValueError, match="unclosed left parenthesis"):
        promql.problems("sum by (le (ister_connections)")
