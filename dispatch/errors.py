"""What can go wrong in delivery; a class exists where a caller acts differently.

No Kafka numbers here: `gateway/errors.py` has the one table.
"""

from __future__ import annotations


class DispatchError(Exception):
    """Base of all errors that delivery raises on purpose."""


class TooManyCursors(DispatchError):
    """There are as many cursors as the limit allows; an operator deletes groups that are over."""
