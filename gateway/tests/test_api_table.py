"""README's table of APIs is what the handlers declare."""

from __future__ import annotations

from pathlib import Path

import pytest

from ister.gateway.api_table import table, updated

README = Path(__file__).parents[2] / "README.md"


def test_the_readme_is_not_stale():
    """`python -m ister.gateway.api_table` writes it anew."""
    text = README.read_text()
    assert updated(text) == text


def test_the_table_has_a_row_for_each_api():
    """Key, name and versions; one API is told wider than it is served."""
    rows = table().splitlines()
    assert "| 19 | CreateTopics | 2-7 |" in rows
    assert "| 47 | OffsetDelete | 0 |" in rows
    assert "| 0 | Produce | 3-13 (told as 0-13) |" in rows


def test_a_document_without_marks_is_refused():
    """Nothing is written where it is not wanted."""
    with pytest.raises(ValueError, match="marks"):
        updated("# no table here\n")
