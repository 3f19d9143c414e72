"""Prometheus and promtool: the machine's own, else out of Debian's package.

The package is downloaded and unpacked into the cache, never installed: that needs no root
and starts no service. Where neither is possible the caller hears why.
"""

from __future__ import annotations

from pathlib import Path

from compat_tests.tools import cache

PACKAGE = "prometheus"
NAME = "prometheus-debian"


def prometheus() -> Path:
    """The server; ToolMissing where it cannot be had."""
    return _program("prometheus")


def promtool() -> Path:
    """What checks and tests its rules; ToolMissing where it cannot be had."""
    return _program("promtool")


def _program(name: str) -> Path:
    found = cache.on_path(name)
    return Path(found) if found else cache.obtain(NAME, _unpack) / "usr" / "bin" / name


def _unpack(path: Path) -> None:
    if not cache.on_path("apt-get") or not cache.on_path("dpkg-deb"):
        raise cache.ToolMissing("Prometheus is not on this machine, and neither is apt-get")
    folder = path.parent
    try:
        _download(folder)
    except cache.ToolMissing:  # a machine without lists of packages: fetch them, beside its own
        _update(folder)
        _download(folder, *_own_lists(folder))
    package = next(folder.glob(f"{PACKAGE}_*.deb"))
    cache.run(["dpkg-deb", "-x", str(package), str(path)])


def _download(folder: Path, *options: str) -> None:
    """Into the folder that apt-get runs in; it has no option for that."""
    cache.run(["env", f"--chdir={folder}", "apt-get", *options, "download", PACKAGE])


def _update(folder: Path) -> None:
    (folder / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    (folder / "archives" / "partial").mkdir(parents=True, exist_ok=True)
    cache.run(["apt-get", *_own_lists(folder), "update"])


def _own_lists(folder: Path) -> list[str]:
    return ["-o", f"Dir::State::lists={folder}/lists", "-o", f"Dir::Cache={folder}"]
