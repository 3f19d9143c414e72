"""Names of topics and groups that only one case uses."""

from __future__ import annotations

import itertools


class Names:
    """Topics and groups of one case: no other case, run or broker has them."""

    def __init__(self, stem: str) -> None:
        self._stem = stem
        self._numbers = itertools.count(1)

    def __call__(self, kind: str) -> str:
        """A new name such as `topic-1-5f3a`."""
        return f"{kind}-{next(self._numbers)}-{self._stem}"
