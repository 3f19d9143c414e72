"""The container's interface, against an engine that runs the image's command as a process."""

from __future__ import annotations

import asyncio
import http.client
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from ister.gateway.tests.wire_kit import Wire
from ister.testing import BrokerError, IsterContainer
from ister.testing.container import DATA, HTTP_PORT, KAFKA_PORT
from ister.testing.tests.test_broker import fill, values

pytestmark = pytest.mark.slow

SECONDS_MAX = 60


class Processes:
    """An engine: what a container would do, done by `python -m ister.gateway` on this machine."""

    host = "127.0.0.1"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._command: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None

    def create(self, image: str, command: list[str], ports: Mapping[int, int]) -> None:
        assert image == "ister"
        inside = {
            DATA: str(self._folder / "data"),
            f"0.0.0.0:{KAFKA_PORT}": f"127.0.0.1:{ports[KAFKA_PORT]}",
            f"0.0.0.0:{HTTP_PORT}": f"127.0.0.1:{ports[HTTP_PORT]}",
        }
        self._command = [inside.get(word, word) for word in command]
        self.start()

    def start(self) -> None:
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "ister.gateway", *self._command], stdout=log, stderr=log
            )

    def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(SECONDS_MAX)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(SECONDS_MAX)

    def remove(self) -> None:
        if self._process is not None:
            self.kill()

    def logs(self) -> str:
        return (self._folder / "log").read_text()


@pytest.fixture
def engine(tmp_path: Path) -> Callable[[], Processes]:
    return lambda: Processes(tmp_path)


def test_it_is_used_like_a_broker(engine: Callable[[], Processes]) -> None:
    """Records survive a stop and kill -9; settings arrive; HTTP answers."""
    with IsterContainer(settings={"num.partitions": 3}, engine=engine) as broker:
        address = broker.bootstrap
        fill(broker, b"a")  # type: ignore[arg-type]
        broker.restart()
        broker.crash()
        assert broker.bootstrap == address
        assert values(broker) == [b"a"]  # type: ignore[arg-type]
        with Wire(broker.port) as wire:
            (made,) = wire.metadata("auto", create=True).topics
            assert len(made.partitions) == 3
        address = broker.http_url.removeprefix("http://")
        connection = http.client.HTTPConnection(address, timeout=SECONDS_MAX)
        connection.request("GET", "/readyz")
        assert connection.getresponse().read() == b"ready\n"
        connection.close()
        with pytest.raises(BrokerError, match="already"):
            broker.start()
    with pytest.raises(BrokerError, match="not running"):
        _ = broker.bootstrap


def test_it_is_an_asynchronous_context_manager_too(engine: Callable[[], Processes]) -> None:
    """As `Broker` is."""

    async def use() -> bool:
        async with IsterContainer(engine=engine) as broker:
            return broker.running

    assert asyncio.run(use())
