"""`IsterContainer`: the broker of an image, with the interface of `Broker`.

For tests that want a process of its own, or the image that they will deploy. Needs Docker
and the package `testcontainers`. Stopping and crashing keep the container's data; only
leaving the `with` removes it. Faults other than a crash need the broker in this process.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Protocol

from ister.gateway.kafka_client.connection import Connection
from ister.gateway.kafka_client.errors import ClientError
from ister.gateway.listeners import Address
from ister.testing.broker import BrokerError, setting_text

IMAGE = "ister"
DATA = "/var/lib/ister"
KAFKA_PORT, HTTP_PORT = 9092, 9644  # inside
START_SECONDS_MAX = 60
_STEP_S = 0.05


class Engine(Protocol):
    """One container, as this needs it."""

    host: str  # where its ports are published

    def create(self, image: str, command: list[str], ports: Mapping[int, int]) -> None:
        """Make and start it; `ports` from inside to outside."""

    def start(self) -> None: ...

    def stop(self) -> None:
        """As SIGTERM."""

    def kill(self) -> None:
        """As SIGKILL."""

    def remove(self) -> None: ...

    def logs(self) -> str: ...


class IsterContainer:
    def __init__(
        self,
        image: str = IMAGE,
        *,
        settings: Mapping[str, object] | None = None,
        engine: Callable[[], Engine] | None = None,
    ) -> None:
        self._image = image
        self._settings = dict(settings or {})
        self._make_engine = engine or Docker
        self._engine: Engine | None = None
        self._running = False
        self._ports: dict[int, int] = {}

    # -- life --------------------------------------------------------------------------

    def start(self) -> IsterContainer:
        """Serving when this returns; after a stop, with everything that was there."""
        if self._running:
            raise BrokerError("the broker is running already")
        if self._engine is None:
            engine = self._make_engine()
            self._ports = dict(zip((KAFKA_PORT, HTTP_PORT), _free_ports(2), strict=True))
            self._engine = engine
            engine.create(self._image, self._command(engine.host), self._ports)
        else:
            self._engine.start()
        self._running = True
        self._wait()
        return self

    def stop(self) -> None:
        """As SIGTERM does; fine if it is stopped."""
        if self._running and self._engine is not None:
            self._running = False
            self._engine.stop()

    def restart(self) -> None:
        self.stop()
        self.start()

    def crash(self) -> None:
        """kill -9, and start again."""
        self._address()
        assert self._engine is not None
        self._running = False
        self._engine.kill()
        self.start()

    def remove(self) -> None:
        """The container and its data."""
        self._running = False
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.remove()

    def __enter__(self) -> IsterContainer:
        try:
            return self.start()
        except BaseException:
            self.remove()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.remove()

    async def __aenter__(self) -> IsterContainer:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.remove)

    # -- what there is -----------------------------------------------------------------

    @property
    def running(self) -> bool:
        return self._running

    @property
    def bootstrap(self) -> str:
        """For `bootstrap.servers`."""
        return str(self._address())

    @property
    def port(self) -> int:
        return self._address().port

    @property
    def http_url(self) -> str:
        return f"http://{self._address().host}:{self._ports[HTTP_PORT]}"

    # -- inside ------------------------------------------------------------------------

    def _address(self) -> Address:
        if not self._running or self._engine is None:
            raise BrokerError("the broker is not running")
        return Address(self._engine.host, self._ports[KAFKA_PORT])

    def _command(self, host: str) -> list[str]:
        command = ["serve", "--data", DATA]
        command += ["--listen", f"0.0.0.0:{KAFKA_PORT}", "--http", f"0.0.0.0:{HTTP_PORT}"]
        command += ["--advertise", str(Address(host, self._ports[KAFKA_PORT]))]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={setting_text(value)}"]
        return command

    def _wait(self) -> None:
        """Until a client gets an answer."""
        problem = ""
        for _ in range(int(START_SECONDS_MAX / _STEP_S)):
            try:
                Connection(self._address(), START_SECONDS_MAX, START_SECONDS_MAX).close()
            except ClientError as error:
                problem = str(error)
                time.sleep(_STEP_S)
            else:
                return
        assert self._engine is not None
        raise BrokerError(f"the container does not answer: {problem}\n{self._engine.logs()}")


class Docker:
    """An `Engine` of testcontainers."""

    def __init__(self) -> None:
        try:
            from testcontainers.core.container import DockerContainer
        except ImportError:
            raise BrokerError("IsterContainer needs the package testcontainers") from None
        self._kind: Any = DockerContainer
        self._container: Any = None
        # Asked of a container that is never started: it only knows the engine.
        self.host = str(DockerContainer(IMAGE).get_container_host_ip())

    def create(self, image: str, command: list[str], ports: Mapping[int, int]) -> None:
        container = self._kind(image).with_command(command)
        for inside, outside in ports.items():
            container.with_bind_ports(inside, outside)
        self._container = container
        container.start()

    def start(self) -> None:
        self._container.get_wrapped_container().start()

    def stop(self) -> None:
        self._container.get_wrapped_container().stop()

    def kill(self) -> None:
        self._container.get_wrapped_container().kill()

    def remove(self) -> None:
        if self._container is not None:
            self._container.stop()

    def logs(self) -> str:
        out, errors = self._container.get_logs()
        return str(out + errors, "utf-8", "replace")


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
