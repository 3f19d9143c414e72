"""What a name in the bucket may look like: the same rule for every backend.

A name is one or more words joined by `/`. A word has letters, digits, `.`, `_`,
`-` and `=`, and does not begin with a dot, so that no name climbs out of its
folder (`..`), hides, or is absolute. `@` is left to the directory backend, which
marks its leaves with it. The bounds are those of file systems (255 bytes a word,
less the mark) and of Google Cloud Storage (1024 bytes in all, less a prefix).
"""

from __future__ import annotations

import re

WORD_BYTES_MAX = 200
NAME_BYTES_MAX = 800

_WORD = r"[A-Za-z0-9_=-][A-Za-z0-9._=-]*"
_NAME = re.compile(rf"{_WORD}(/{_WORD})*")
_PREFIX = re.compile(rf"({_WORD}/)*({_WORD})?")


class BadName(ValueError):
    """Not a name that every backend can hold: a mistake of the caller."""


def check_name(name: str) -> None:
    """BadName unless `name` may be the name of an object or a register."""
    if not _NAME.fullmatch(name) or not _sizes_hold(name):
        raise BadName(f"not a name for a bucket: {name[:NAME_BYTES_MAX]!r}")


def check_prefix(prefix: str) -> None:
    """BadName unless some name could start with `prefix` (the empty one is fine)."""
    if not _PREFIX.fullmatch(prefix) or not _sizes_hold(prefix):
        raise BadName(f"no name in a bucket starts with {prefix[:NAME_BYTES_MAX]!r}")


def _sizes_hold(name: str) -> bool:
    return len(name) <= NAME_BYTES_MAX and max(map(len, name.split("/"))) <= WORD_BYTES_MAX
