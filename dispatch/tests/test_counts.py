"""Counting within bounds."""

from __future__ import annotations

from ister.dispatch.counts import OTHER, Counted, Counts


def test_rows_are_bounded() -> None:
    """What comes above the limit is counted together, and nothing is lost."""
    counts = Counts(rows_max=2)
    for number in range(10):
        counts.row(f"g{number}", bytes(16), 0).lag_detected += 1
    assert len(counts.rows) == 3
    assert counts.rows[Counted(OTHER, b"", -1)].lag_detected == 8


def test_the_rows_of_a_topic_go_with_it() -> None:
    counts = Counts()
    counts.row("g", bytes(16), 0)
    counts.row("g", b"x" * 16, 0)
    counts.forget_topic(bytes(16))
    assert [key.topic_id for key in counts.rows] == [b"x" * 16]
