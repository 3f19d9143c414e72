"""`python -m compat_tests.tools start` makes missing tools in the background; `make` waits.

`start` returns at once. What the background run says is in `make.log` of the cache; if it
fails, the test that needs the tool tries again and fails with the reason. `lock` renews a
list of Java archives (see `jars.py`).
"""

from __future__ import annotations

import os
import subprocess
import sys

from compat_tests.fixture import environments
from compat_tests.tools import (
    cache,
    compiler,
    emulator,
    go_clients,
    jars,
    kafka,
    node_clients,
)

JAVA_ARCHIVES = ("kafka-clients-3.4.1", "kafka-clients-3.9.1", "kafka-platforms-4.3.1")
USAGE = "usage: python -m compat_tests.tools start|make|lock NAME COORDINATES..."


def main(arguments: list[str]) -> int:
    if arguments == ["start"]:
        start()
    elif arguments == ["make"]:
        make()
    elif len(arguments) > 2 and arguments[0] == "lock":
        print(jars.lock(arguments[1], arguments[2:]))
    else:
        print(USAGE, file=sys.stderr)
        return 2
    return 0


def start() -> None:
    """Begin `make` in a process of its own, unless everything is there."""
    made = [
        compiler.present(),
        emulator.present(),
        environments.present(),
        go_clients.present(),
        kafka.present(),
        node_clients.present(),
        *(jars.present(name) for name in JAVA_ARCHIVES),
    ]
    if all(made):
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
    print(kafka.kafka_class_path())
    for name in JAVA_ARCHIVES:
        print(jars.class_path(name))
    print(node_clients.node(), node_clients.node_packages())
    for program in go_clients.PROGRAMS:
        print(go_clients.go_client(program))
    for client in environments.CLIENTS:
        print(environments.base(client))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
