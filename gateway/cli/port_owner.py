"""Who has a port: for the one message that everybody gets once.

Linux only (it reads /proc), and only as far as the user may look; None otherwise.
"""

from __future__ import annotations

import contextlib
import os

_LISTEN = "0A"


def port_owner(port: int) -> str | None:
    """`name (pid N)` of the process that listens on `port`."""
    inodes = _listening_inodes(port)
    if not inodes:
        return None
    with contextlib.suppress(OSError):
        for pid in filter(str.isdecimal, os.listdir("/proc")):
            if _has_socket(pid, inodes):
                return f"{process_name(pid)} (pid {pid})"
    return None


def _listening_inodes(port: int) -> set[str]:
    found: set[str] = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError), open(table) as file:
            for line in file.readlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                    found.add(f"socket:[{fields[9]}]")
    return found


def _has_socket(pid: str, inodes: set[str]) -> bool:
    with contextlib.suppress(OSError):
        for descriptor in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{pid}/fd/{descriptor}") in inodes:
                    return True
    return False


def process_name(pid: str) -> str:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm") as file:
        return file.read().strip()
    return "a process"
