"""Subscriptions as plain values, for the JSON and the pages."""

from __future__ import annotations

from itertools import islice
from typing import Any

from ister.gateway.broker import Broker

SUBSCRIPTIONS_MAX = 1_000  # of one listing; `after` asks for the next ones


def subscription_list(
    core: Broker, after: str = "", limit: int = SUBSCRIPTIONS_MAX, group: str | None = None
) -> dict[str, Any]:
    """In order of group, topic and partition; `next` is what to ask for next."""
    subscriptions = core.subscriptions
    views = subscriptions.views() if group is None else subscriptions.of_group(group)
    found = [view for view in islice((v for v in views if v.path_key > after), limit + 1)]
    more = len(found) > limit
    found = found[:limit]
    return {
        "subscriptions": [view._asdict() for view in found],
        "next": found[-1].path_key if more else None,
    }
