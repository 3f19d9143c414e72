"""`python -m compat_tests.tools start` makes missing tools in the background; `make` waits.

`start` returns at once. What the background run says is in `make.log` of the cache; if it
fails, the test that needs the tool tries again and fails with the reason.
"""

from __future__ import annotations

import os
import subprocess
import sys

from compat_tests.tools import cache, compiler, emulator

USAGE = "usage: python -m compat_tests.tools start|make"


def main(arguments: list[str]) -> int:
    if arguments == ["start"]:
        start()
    elif arguments == ["make"]:
        make()
    else:
        print(USAGE, file=sys.stderr)
        return 2
    return 0


def start() -> None:
    """Begin `make` in a process of its own, unless everything is there."""
    if compiler.present() and emulator.present():
        return
    log_path = cache.folder() / "make.log"
    print(f"making test tools in the background; see {log_path}")
    with log_path.open("ab") as log:
        subprocess.Popen(
            [sys.executable, "-m", "compat_tests.tools", "make"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def make() -> None:
    os.nice(10)  # whatever runs meanwhile comes first
    print(" ".join(compiler.c_compiler()))
    print(emulator.fake_gcs_server())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
