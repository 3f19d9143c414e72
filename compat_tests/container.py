"""Apache Kafka in a container, where Docker runs: the same settings as the local process.

An engine that is there but cannot fetch the image gives None, and the process is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from testcontainers.core.container import DockerContainer

from compat_tests import brokers
from compat_tests.tools.kafka import VERSION
from compat_tests.waiting import wait_for

IMAGE = f"apache/kafka:{VERSION}"
_CONTROLLER_PORT = 29_093  # inside the container


@contextmanager
def kafka_container(
    folder: Path, settings: dict[str, str]
) -> Iterator[brokers.RunningBroker | None]:
    (port,) = brokers.free_ports(1)
    container = DockerContainer(IMAGE).with_bind_ports(port, port)
    listeners = f"PLAINTEXT://0.0.0.0:{port},CONTROLLER://localhost:{_CONTROLLER_PORT}"
    values = {
        **settings,
        "listeners": listeners,
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.quorum.voters": f"{settings['node.id']}@localhost:{_CONTROLLER_PORT}",
    }
    for name, value in values.items():
        container.with_env("KAFKA_" + name.upper().replace(".", "_"), value)
    log_path = folder / "kafka.log"
    with ExitStack() as stack:
        try:
            stack.enter_context(container)
        except Exception as error:  # whatever the engine says: no rights, no image, no network
            log_path.write_text(f"no container: {error}\n")
            yield None
            return
        try:
            ready = lambda: brokers.metadata_answers("127.0.0.1", port)  # noqa: E731
            wait_for(ready, "Apache Kafka answers", brokers.START_S)
            yield brokers.RunningBroker("kafka", "127.0.0.1", port, log_path, 0)
        finally:
            out, errors = container.get_logs()
            log_path.write_bytes(out + errors)
