"""Settings of the whole process, for `ister serve` alone: never in somebody else's process.

Measured reasons: a lane that comes back from a system call waits for the
interpreter lock at most one switch interval, and 5 ms is far too long beside a
sync of 0.2 ms; fresh memory costs more than the copying, so the allocator keeps
what it has; a full collection over a large heap stops every client, so what
start-up made is frozen and collections are rare. Every connection is an open file, and the
usual limit of 1,024 is there for programs that use select.
"""

from __future__ import annotations

import ctypes
import gc
import resource
import sys

SWITCH_INTERVAL_S = 0.0005
GC_THRESHOLDS = (50_000, 20, 100)
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_MALLOC = (
    (_M_MMAP_THRESHOLD, 32 << 20),  # its maximum: frames come from the heap and are reused
    (_M_TRIM_THRESHOLD, 512 << 20),
    (_M_TOP_PAD, 16 << 20),
)


def raise_file_limit() -> None:
    """Before opening: as many files, that is connections, as the system allows this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):  # macOS has a lower limit that it does not tell
            return


def tune() -> None:
    """Before serving."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    _tune_malloc()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def _tune_malloc() -> None:
    """glibc only; elsewhere the allocator's own defaults stay."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    for parameter, value in _MALLOC:
        mallopt(parameter, value)
