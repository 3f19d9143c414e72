"""Metrics of cursors."""

from __future__ import annotations

from collections.abc import Iterator

from ister.gateway.broker import Broker
from ister.gateway.http.families import Family, counter, gauge


def collect(core: Broker) -> Iterator[Family]:
    cursors = core.cursors
    yield gauge("ister_cursors", "Cursors of all groups.", len(cursors))
    yield counter(
        "ister_cursor_write_errors_total",
        "Commits and deletions that the store did not confirm.",
        cursors.write_errors,
    )
    yield counter(
        "ister_cursor_rewinds_total", "Commits below the cursor there was.", cursors.rewinds
    )
