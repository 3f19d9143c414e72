"""Which clients a case is for; `conftest.py` says how."""

from __future__ import annotations

import pytest

needs = pytest.mark.needs
choices = pytest.mark.choices
