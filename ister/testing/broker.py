"""`Broker`: a real broker on a free port of 127.0.0.1, in this process.

Without `data` it lives in memory and leaves nothing behind; with `data` it is as durable
as any. It may be stopped and started again, keeps its port, and may be crashed. Every
client works with it; it has its own thread and touches nothing of the process.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, TypeVar

from ister.gateway.broker import Broker as Core
from ister.gateway.http.listen import OFF
from ister.gateway.settings import BrokerSettings, Given, build, log_settings
from ister.testing.faults import Faults
from ister.testing.life import Life
from ister.testing.machine import machine_for
from ister.wal.memory_image import Survival, Survivors
from ister.wal.settings import LogSettings

T = TypeVar("T")
HOST = "127.0.0.1"


class BrokerError(Exception):
    """The broker is not in a state for that: not running, or running already."""


class Broker:
    """`with` or `async with`; or `start` and `stop` by hand.

    `settings` has the names of `ister config` ("num.partitions": 3). `seed` is for
    the faults. `bucket` is a bucket's URL; by default it is beside the data. `http` serves
    probes, metrics and the console too, at `http_url`."""

    def __init__(
        self,
        data: str | os.PathLike[str] | None = None,
        *,
        settings: Mapping[str, object] | None = None,
        bucket: str | None = None,
        port: int = 0,
        http: bool = False,
        seed: int = 0,
    ) -> None:
        self._settings = {
            name: Given(setting_text(value), "settings") for name, value in (settings or {}).items()
        }
        self._port = port
        self._http_port = 0 if http else None
        self._machine = machine_for(data, bucket)
        self._life: Life | None = None
        self.faults = Faults(seed, self._machine.bucket(), self.call)

    # -- life --------------------------------------------------------------------------

    def start(self) -> Broker:
        """Serving when this returns; after a stop, with everything that was there."""
        if self.running:
            raise BrokerError("the broker is running already")
        settings = self._build_settings()
        self.faults.new_life(self._machine.bucket())
        options = self._machine.options(
            self.faults.files, self.faults.bucket, self._log_settings(settings)
        )
        self._life = Life(options, settings, self.faults.install)
        self._port = self._life.core.listeners[0].bind.port
        if self._life.http is not None:
            self._http_port = self._life.http.port
        return self

    def stop(self) -> None:
        """As SIGTERM does; fine if it is stopped."""
        life, self._life = self._life, None
        if life is not None:
            self.faults.end_delays()
            life.stop()

    def restart(self) -> None:
        self.stop()
        self.start()

    def crash(self, *, torn: bool = False) -> None:
        """Die now and start again. With `data` it is kill -9; in memory it is a power cut.

        After a power cut what was not synced is gone, or with `torn` a part of it."""
        survival: Survival = self.faults.rng if torn else Survivors.NOTHING
        self._machine.check_survival(survival)
        life, self._life = self._running(), None
        life.kill()  # before what sleeps in a delayed sync wakes
        self.faults.end_life()
        life.crash()
        self._machine.crashed(survival)
        self.start()

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Broker:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.stop)

    # -- what there is -----------------------------------------------------------------

    @property
    def running(self) -> bool:
        return self._life is not None

    @property
    def bootstrap(self) -> str:
        """For `bootstrap.servers`: `127.0.0.1:43121`."""
        self._running()
        return f"{HOST}:{self._port}"

    @property
    def port(self) -> int:
        self._running()
        return self._port

    @property
    def http_url(self) -> str:
        """`http://127.0.0.1:43122`, of a broker that was made with `http=True`."""
        self._running()
        if self._http_port is None:
            raise BrokerError("the broker was made without http=True")
        return f"http://{HOST}:{self._http_port}"

    @property
    def errors(self) -> list[BaseException]:
        """What failed in the background since the last start; the newest few."""
        return list(self._running().errors)

    def call(self, work: Callable[[Core], T]) -> T:
        """Run `work` on the broker's own thread: for a look inside. It must not block."""
        return self._running().call(work)

    # -- inside ------------------------------------------------------------------------

    def _running(self) -> Life:
        if self._life is None:
            raise BrokerError("the broker is not running")
        return self._life

    def _log_settings(self, settings: BrokerSettings) -> LogSettings:
        """What the log acts on; another class may make its files smaller."""
        return log_settings(settings)

    def _build_settings(self) -> BrokerSettings:
        http = OFF if self._http_port is None else f"{HOST}:{self._http_port}"
        given = {
            "listeners": Given(f"{HOST}:{self._port}", "port"),
            "ister.http": Given(http, "http"),
            **self._settings,
        }
        return build(given)


def setting_text(value: Any) -> str:
    """A setting as it is written: `true`, not `True`."""
    return str(value).lower() if isinstance(value, bool) else str(value)
