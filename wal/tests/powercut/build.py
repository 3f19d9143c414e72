"""Compiles the preload shim, once for each version of its source."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

from compat_tests.tools.compiler import c_compiler

SOURCE = Path(__file__).with_name("shim.c")
OPTIONS = ("-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
LIBRARIES = ("-ldl", "-lpthread")  # part of the C library itself where that is new enough


def build_shim() -> Path:
    """The shared library, from the user's cache if this source was compiled before."""
    compiler = c_compiler()
    digest = hashlib.sha256(SOURCE.read_bytes() + repr((compiler, OPTIONS)).encode())
    target = _cache() / f"powercut-{digest.hexdigest()[:16]}.so"
    if target.exists():
        return target
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        made = Path(folder) / target.name
        command = [*compiler, *OPTIONS, "-o", str(made), str(SOURCE), *LIBRARIES]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
        made.replace(target)  # two runs at once both end with a whole file
    return target


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    for folder in (Path(base) / "ister", Path(tempfile.gettempdir()) / f"ister-{os.getuid()}"):
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    raise RuntimeError("no writable folder for the compiled shim")
