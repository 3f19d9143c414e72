"""Power cuts on a real process: whatever it had said before it died is still so afterwards.

kill -9 alone proves nothing about syncs, because the page cache survives it; so the process runs
under the preload shim, and after the kill everything that no sync covered is taken back: journal,
checkpoints, the directory bucket and the metadata, all below one data directory.
"""

from __future__ import annotations

import os
import random
import select
import sys
from pathlib import Path

import pytest

from ister.gateway.tests.writer_process import SMALL, Known, WriterProcess, check, look
from ister.wal.tests.powercut import PowerCut

LONG = os.environ.get("ISTER_LONG") == "1"
ROUNDS = 60 if LONG else 5
SEEDS = range(10 if LONG else 1)
ACKED_MAX = 3_000  # records before a cut
CUT_EARLY = 0.3  # share of the rounds that are cut while opening, or soon after

pytestmark = [
    pytest.mark.fault,
    pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD and /proc"),
]


@pytest.mark.timeout(120 * (30 if LONG else 1))
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("survivors", ["nothing", "a part"])
def test_nothing_acked_or_seen_is_lost(tmp_path: Path, survivors: str, seed: int) -> None:
    """Append, cut, open, append, cut ...: with no unsynced byte left, or with some of them."""
    rng = random.Random(f"{survivors} {seed}")
    cut = PowerCut(tmp_path)
    known = Known()
    for _ in range(ROUNDS):
        one_life(cut, known, rng)
        cut.restore(rng if survivors == "a part" else None)
        if known.created:  # else it may have died before it founded anything
            check(look(cut.data), known)
    assert known.acked
    assert known.seen
    assert any((cut.data / "bucket" / "objects").rglob("*@")), "nothing was handed off"


def one_life(cut: PowerCut, known: Known, rng: random.Random) -> None:
    """Run under load until a moment that the seed says."""
    early = rng.random() < CUT_EARLY
    with WriterProcess(
        cut.data, known=known, environment=cut.environment(), seed=rng.getrandbits(32)
    ) as process:
        process.tell("load")
        if early:
            wait_for_log(cut, process, rng.randint(1, 20_000))
        else:
            process.until("acked", rng.randint(1, ACKED_MAX))


def wait_for_log(cut: PowerCut, process: WriterProcess, size: int) -> None:
    """Until it has done that much to the disk, by the size of the undo log."""
    log = cut.undo / "log"
    said = process.said
    while not log.exists() or log.stat().st_size < size:
        if select.select([said], [], [], 0.001)[0]:  # a full pipe would stop it
            assert process.next(), f"it ended by itself: {process.end()}"


def test_a_kill_alone_loses_nothing_either(tmp_path: Path) -> None:
    """Without the shim: the page cache survives, and what was written is simply there."""
    known = Known()
    data = tmp_path / "data"
    for seed in range(2):
        with WriterProcess(data, known=known, seed=seed, settings=SMALL) as process:
            process.until("opened")
            process.tell("load")
            process.until("acked", 500)
        check(look(data), known)
