"""The cache of test tools: where it is, who makes a tool, how a finished one appears.

A tool is made aside and renamed into place, so a path that exists is whole. The maker
holds a lock on a file; the kernel lets go of it when the maker dies, so no lock is ever
stale. Whoever comes second waits, then finds the tool there. Names carry the version.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


class ToolMissing(Exception):
    """A tool cannot be had on this machine; the message says why and what would help."""


def folder() -> Path:
    """Where tools are kept: `ister-tests` in the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    path = Path(base) / "ister-tests"
    path.mkdir(parents=True, exist_ok=True)
    return path


def obtain(name: str, make: Callable[[Path], None]) -> Path:
    """The file or folder `name` of the cache; `make(path)` makes it under another path first."""
    final = folder() / name
    if final.exists():
        return final
    with _locked(name):
        if final.exists():
            return final
        with tempfile.TemporaryDirectory(dir=folder(), prefix="making-") as aside:
            made = Path(aside) / "made"
            make(made)
            final.parent.mkdir(parents=True, exist_ok=True)
            made.rename(final)
    return final


def python_package(requirement: str) -> Path:
    """A folder with `requirement` from PyPI in it, apart from every environment."""

    def make(path: Path) -> None:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(path)]
        run([*command, requirement])

    return obtain(f"python/{requirement}", make)


def run(command: list[str], **environment: str) -> None:
    """Run to the end; a failure is a `ToolMissing` with the last lines of what was said."""
    result = subprocess.run(  # noqa: S603 - commands of this package only
        command,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        last_lines = "\n".join(result.stdout.splitlines()[-20:])
        raise ToolMissing(f"{' '.join(command)} ended with {result.returncode}:\n{last_lines}")


def on_path(*names: str) -> str | None:
    """The first of these commands that the machine has."""
    return next((found for name in names if (found := shutil.which(name))), None)


@contextmanager
def _locked(name: str) -> Iterator[None]:
    path = folder() / "locks" / f"{name.replace('/', '-')}.lock"
    path.parent.mkdir(exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
