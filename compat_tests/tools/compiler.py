"""A C compiler for the preload shims of fault tests.

The machine's own one if there is any; otherwise Zig from PyPI, which is one.
"""

from __future__ import annotations

from compat_tests.tools import cache

ZIG = "ziglang==0.17.0"


def c_compiler() -> list[str]:
    """The command to put before a compiler's arguments."""
    found = cache.on_path("cc", "gcc", "clang")
    return [found] if found else zig()


def zig() -> list[str]:
    """Zig as a C compiler, from PyPI."""
    return [str(cache.python_package(ZIG) / "ziglang" / "zig"), "cc"]


def present() -> bool:
    """Whether nothing would have to be fetched."""
    found = cache.on_path("cc", "gcc", "clang")
    return bool(found) or (cache.folder() / "python" / ZIG).exists()
