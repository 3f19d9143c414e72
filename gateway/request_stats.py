"""What requests cost: how many, how long, and how they ended. Plain integers, read by a scrape.

One row per API and broker. A request counts once, under the first error in its answer;
control answers are searched for it within `STRUCTS_MAX` structs, so that the answer to a
question about ten thousand partitions is not walked for a counter.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import Any, Final

from ister.gateway.protocol.codec import Message
from ister.wal.histogram import Histogram

STRUCTS_MAX: Final = 32


class ApiStats:
    __slots__ = ("errors", "seconds")

    def __init__(self) -> None:
        self.seconds = Histogram()  # from complete request to answer, waiting included
        self.errors: Counter[int] = Counter()  # by error code; those without are the rest


class RequestStats:
    def __init__(self) -> None:
        self.by_api: dict[int, ApiStats] = {}

    def answered(self, api_key: int, seconds: float, error: int) -> None:
        stats = self.by_api.get(api_key)
        if stats is None:
            stats = self.by_api[api_key] = ApiStats()
        histogram = stats.seconds  # `observe`, in place: every request comes by
        histogram.counts[bisect_left(histogram.bounds, seconds)] += 1
        histogram.sum += seconds
        if error:
            stats.errors[error] += 1


def first_error(message: Any) -> int:
    """The first error code in an answer of the generated codec; 0: none was found."""
    waiting = [message]
    for _ in range(STRUCTS_MAX):
        if not waiting:
            break
        each = waiting.pop()
        code = getattr(each, "error_code", 0)
        if code:
            return int(code)
        for name in each.__slots__:
            value = getattr(each, name)
            if type(value) is tuple and value and isinstance(value[0], Message):
                waiting.extend(value[: STRUCTS_MAX - len(waiting)])
    return 0
