"""Who has a data directory: for the message that refuses a second broker on it.

Linux only (it reads /proc/locks), and only where that file's devices, inodes and process ids
are those that we see, which in a container they may not be; None otherwise.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from ister.gateway.cli.port_owner import process_name


def lock_owner(path: str) -> str | None:
    """`name (pid N)` of the process that holds a flock on the file."""
    with contextlib.suppress(OSError):
        found = os.stat(path)
        device = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}"
        with open("/proc/locks") as locks:
            pid = holder(locks, f"{device}:{found.st_ino}")
        if pid is not None and os.path.exists(f"/proc/{pid}"):
            return f"{process_name(pid)} (pid {pid})"
    return None


def holder(lines: Iterable[str], file: str) -> str | None:
    """The process that has a flock on `file`; those that wait for it have an arrow first."""
    for line in lines:
        fields = line.split()  # 1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF
        if fields[1] == "FLOCK" and fields[5] == file:
            return fields[4]
    return None
