"""The bound on requests to the bucket is wired as the setting says."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from ister.gateway.app import Options, Storage
from ister.wal.settings import LogSettings
from ister.wal.tier.limits import RateLimited
from ister.wal.tier.memory import MemoryStore


@pytest.mark.parametrize("limit", [0, 50])
def test_the_bucket_is_bounded_by_the_setting(tmp_path: Path, limit: int) -> None:
    """Zero: no bound; else everything that talks to the bucket goes through one."""
    bucket = MemoryStore()
    settings = replace(
        LogSettings(), bucket_requests_per_second=limit, journal_first_file_bytes=65536
    )

    async def check() -> None:
        storage = Storage(Options(data=str(tmp_path), bucket=bucket, log=settings), _raise)
        assert isinstance(storage.bucket, RateLimited) == bool(limit)
        assert (storage.bucket is bucket) == (not limit)
        await storage.close()

    asyncio.run(check())


def test_a_ring_is_there_after_a_restart(tmp_path: Path) -> None:
    """Opening asks for offsets before there is anybody to ask: it gets them soon after."""
    settings = replace(LogSettings(), journal_first_file_bytes=65536)

    async def run(made: bool) -> int:
        storage = Storage(Options(data=str(tmp_path), log=settings), _raise)
        if not made:
            done = asyncio.get_running_loop().create_future()
            configs = {"ister.dispatch.mode": "non-reliable"}
            storage.topics.create("news", 1, configs, done.set_result)
            assert await done is None
        (topic,) = storage.catalog.topics_by_id.values()
        partition = storage.log.partition(topic.id, 0)
        while partition.ring is None:  # noqa: ASYNC110  nothing tells: the ring is there or not
            await asyncio.sleep(0)
        head = partition.high_watermark
        await storage.close()
        return head

    first, second = asyncio.run(run(False)), asyncio.run(run(True))
    assert first == 0 < second


def _raise(error: BaseException) -> None:
    raise error
