"""The folders, the environment and the switches of one process under the shim."""

from __future__ import annotations

import os
import random
from pathlib import Path

from ister.wal.tests.powercut.build import build_shim
from ister.wal.tests.powercut.restore import Restored, restore

FAULTS = frozenset({"fsync_delay_ms", "fsync_fail_at", "fsync_pattern", "enospc_after_bytes"})


class PowerCut:
    """`data` is the directory under test; its undo log and switches lie beside it.

    Faults by name: fsync_delay_ms, fsync_fail_at (n-th sync from 1, or from the change),
    fsync_pattern (fnmatch on the whole path, for the two before), enospc_after_bytes
    (how much files may grow in all; negative: no limit).
    """

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.undo = folder / "undo"
        self.control = folder / "control"
        self.data.mkdir(exist_ok=True)
        self.undo.mkdir(exist_ok=True)

    def environment(self, **faults: int | str) -> dict[str, str]:
        """What the process needs in its environment, on top of ours."""
        _check(faults)
        return {
            **os.environ,
            "LD_PRELOAD": str(build_shim()),
            "ISTER_POWERCUT_DIR": str(self.data),
            "ISTER_POWERCUT_UNDO": str(self.undo),
            "ISTER_POWERCUT_CONTROL": str(self.control),
            **{f"ISTER_{name.upper()}": str(value) for name, value in faults.items()},
        }

    def set(self, **faults: int | str) -> None:
        """Change faults of the running process; seen by its next write or sync."""
        _check(faults)
        aside = self.control.with_suffix(".new")
        aside.write_text("".join(f"{name}={value}\n" for name, value in faults.items()))
        aside.replace(self.control)

    def restore(self, rng: random.Random | None = None) -> Restored:
        """After the kill: nothing unsynced survives, or with `rng` a part of it."""
        self.control.unlink(missing_ok=True)
        return restore(self.data, self.undo, rng)


def _check(faults: dict[str, int | str]) -> None:
    if unknown := faults.keys() - FAULTS:
        raise ValueError(f"no such fault: {', '.join(sorted(unknown))}")
