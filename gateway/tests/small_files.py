"""A broker whose journal files are small, for tests in which they fill and are taken again."""

from __future__ import annotations

from dataclasses import replace

from ister.gateway.settings import BrokerSettings
from ister.testing import Broker
from ister.wal.settings import LogSettings


class SmallFiles(Broker):
    """Its journal files are small, so that a test fills, hands over and recycles several."""

    def _log_settings(self, settings: BrokerSettings) -> LogSettings:
        return replace(
            super()._log_settings(settings),
            journal_file_bytes=1 << 20,
            journal_first_file_bytes=1 << 20,
            handoff_bytes=1 << 20,
            handoff_ms=50,
            cache_bytes=1 << 20,
        )
