"""The runners of the clients written in Go: built once per machine and state of their sources."""

from __future__ import annotations

import hashlib
from pathlib import Path

from compat_tests.tools import cache
from compat_tests.tools.emulator import go_command

SOURCES = Path(__file__).parent.parent / "go"
PROGRAMS = ("franz", "sarama", "kafkago")


def go_client(program: str) -> Path:
    """The program. Minutes on a machine's first call, nothing afterwards."""
    return cache.obtain(_name(program), lambda path: _build(program, path))


def present() -> bool:
    """Whether nothing would have to be built."""
    return all((cache.folder() / _name(program)).exists() for program in PROGRAMS)


def _name(program: str) -> str:
    digest = hashlib.sha256()
    for path in sorted(SOURCES.glob("go.*")) + sorted(SOURCES.glob("harness/*.go")):
        digest.update(path.read_bytes())
    for path in sorted((SOURCES / program).glob("*.go")):
        digest.update(path.read_bytes())
    return f"bin/{program}-{digest.hexdigest()[:12]}"


def _build(program: str, path: Path) -> None:
    cache.run([go_command(), "build", "-C", str(SOURCES), "-o", str(path), f"./{program}"])
