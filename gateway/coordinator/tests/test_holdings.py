"""Assignments of consumers, and bytes that are none."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from ister.gateway.coordinator.holdings import assigned


@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=9),
        st.lists(st.integers(0, 99), max_size=5),
        max_size=4,
    )
)
def test_reads_what_a_client_wrote(content: dict[str, list[int]]) -> None:
    """In every version the beginning is the same."""
    out = struct.pack(">hi", 3, len(content))
    for topic, partitions in content.items():
        name = topic.encode()
        out += struct.pack(">h", len(name)) + name + struct.pack(">i", len(partitions))
        out += struct.pack(f">{len(partitions)}i", *partitions)
    out += struct.pack(">i", -1)
    expected = [(topic, each) for topic, partitions in content.items() for each in partitions]
    assert assigned(out) == tuple(expected)


@given(st.binary(max_size=60))
def test_anything_else_holds_nothing_and_raises_nothing(data: bytes) -> None:
    assert isinstance(assigned(data), tuple)


def test_lying_counts() -> None:
    assert assigned(struct.pack(">hi", 0, 2**31 - 1)) == ()
    assert assigned(struct.pack(">hih1si", 0, 1, 1, b"a", 2**31 - 1)) == ()
