"""A disk that is slow, broken or full, under a real process: what it says, and how it ends.

The faults come from the preload shim, so they strike the system calls of this very process;
after each of them the power goes too, and what was acked must be there.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ister.gateway.cli.exits import DISK_FAILED
from ister.gateway.tests.writer_process import SMALL, Known, WriterProcess, check, look
from ister.wal.tests.powercut import PowerCut

DELAY_MS = 1000
FULL_AFTER_BYTES = 1_500_000
REFUSALS = 20  # one after the other, one a tick: no file is on its way any more
JOURNAL = "*/journal/*.log"

pytestmark = [
    pytest.mark.fault,
    pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD and /proc"),
]


@pytest.fixture
def cut(tmp_path: Path) -> PowerCut:
    return PowerCut(tmp_path)


def started(cut: PowerCut, known: Known, **options: object) -> WriterProcess:
    return WriterProcess(cut.data, known=known, environment=cut.environment(), **options)  # type: ignore[arg-type]


def test_acks_and_readers_wait_for_the_sync(cut: PowerCut) -> None:
    """A sync takes a second: so do the durable answer, the high watermark and the reader."""
    with started(cut, Known()) as process:
        process.until("opened")
        cut.set(fsync_delay_ms=DELAY_MS, fsync_pattern=JOURNAL)
        process.tell("time")
        moments: dict[str, float] = {}
        early: list[str] = []
        while moments.keys() != {"written", "durable", "head", "read"}:
            words = process.next()
            if words[0] == "at":
                moments.setdefault(words[1], float(words[2]))
            elif words[0] == "early":
                early = words
    assert early == ["early", "0"]  # in the file, and no reader was given it
    for moment in ("durable", "head", "read"):
        assert moments[moment] >= DELAY_MS / 1000
        assert moments["written"] < moments[moment]


def test_a_failed_sync_ends_the_process_and_loses_nothing(cut: PowerCut) -> None:
    """EIO: appends fail, durable records can still be read, then exit 5; a restart goes on."""
    known = Known()
    with started(cut, known, clock_speed=1e-3) as process:
        process.until("opened")
        process.tell("load")
        process.until("acked", 200)
        cut.set(fsync_fail_at=3, fsync_pattern=JOURNAL)
        assert process.until("refused")[1] == "JournalFailed"
        process.tell("append")
        assert process.until("refused")[1] == "JournalFailed"
        process.tell("dump")
        process.until("dumped")
        readable = {(p, at): v for (t, p, at), v in process.dumped.records.items() if t == "t"}
        assert known.acked.items() <= readable.items()
        process.tell("hurry")  # the time is over that people and probes are given
        assert process.end() == DISK_FAILED
    cut.restore()
    check(look(cut.data), known)


def test_a_full_disk_refuses_and_goes_on_when_there_is_room(cut: PowerCut) -> None:
    """Nothing is torn, the process lives, and no restart is needed."""
    known = Known()
    settings = {**SMALL, "disk_limit_bytes": 1 << 40, "spare_bytes": 64 * 1024}
    with started(cut, known, settings=settings) as process:
        process.until("opened")
        cut.set(enospc_after_bytes=FULL_AFTER_BYTES)
        process.tell("load")
        in_a_row = 0
        while in_a_row < REFUSALS:
            words = process.next()
            assert words, "it ended by itself"
            in_a_row = in_a_row + 1 if words == ["refused", "StorageFull"] else 0
        before = len(known.acked)
        cut.set(enospc_after_bytes=-1)
        process.until("acked", 500)
        assert len(known.acked) > before
    cut.restore()
    check(look(cut.data), known)
