"""One life of a broker in this process: a thread with its own loop, from start to stop or crash.

The loop, the threads and the sockets belong to this life alone; nothing of the process is
changed (no signals, no event loop policy, no garbage collector settings). Whatever other
threads want of the broker they send here as a function (`call`).
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

from ister.gateway.app import Options
from ister.gateway.broker import Broker as Core
from ister.gateway.http.listen import bind, bound
from ister.gateway.listeners import Address
from ister.gateway.settings import BrokerSettings
from ister.testing.files import FaultyFileSystem

if TYPE_CHECKING:
    from ister.gateway.http.server import HttpServer

T = TypeVar("T")

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 60.0
ERRORS_MAX = 100  # the newest are kept


class Life:
    """Starts with the object; ends with `stop` or `crash`."""

    def __init__(
        self, options: Options, settings: BrokerSettings, install: Callable[[Core], None]
    ) -> None:
        self.errors: deque[BaseException] = deque(maxlen=ERRORS_MAX)
        assert isinstance(options.fs, FaultyFileSystem)
        self._files = options.fs
        self._options = options
        self._settings = settings
        self._install = install
        self.http: Address | None = None  # where it answers, if the settings want it
        self._server: HttpServer | None = None
        self._started: Future[None] = Future()
        self._crashing = False
        self._thread = threading.Thread(target=self._run, name="ister-broker", daemon=True)
        self._thread.start()
        try:
            self._started.result(START_SECONDS_MAX)
        except BaseException:
            self._thread.join(STOP_SECONDS_MAX)
            raise

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def call(self, work: Callable[[Core], T]) -> T:
        """`work` on the broker's thread; its result or error here."""
        if threading.current_thread() is self._thread:
            return work(self.core)
        answer: Future[T] = Future()

        def run() -> None:
            try:
                answer.set_result(work(self.core))
            except BaseException as error:
                answer.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        return answer.result(STOP_SECONDS_MAX)

    def stop(self) -> None:
        """As SIGTERM: answer what is in hand, make durable, end."""
        self._end()

    def crash(self) -> None:
        """After `kill`: let go of everything, without a word and in no order."""
        self._crashing = True
        self._end()

    def kill(self) -> None:
        """From now on nothing reaches a client or the disk. `crash` does the rest."""

        def now(core: Core) -> None:
            core.server.stop_accepting()
            core.server.abort()
            self._files.die()

        self.call(now)

    def _end(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(STOP_SECONDS_MAX)
        if self._thread.is_alive():
            raise TimeoutError(f"the broker did not stop within {STOP_SECONDS_MAX:.0f} s")

    # -- on the thread -----------------------------------------------------------------

    def _run(self) -> None:
        # The selector loop by name: the policy of the process is somebody else's.
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            try:
                runner.run(self._main())
            except BaseException as error:
                if self._started.done():
                    self.errors.append(error)
                else:
                    self._started.set_exception(error)

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self.core = Core(self._options, self._settings, self.errors.append)
        try:
            self._install(self.core)
            await self.core.start()
            await self._start_http()
        except BaseException:
            await self.core.close()
            raise
        self._started.set_result(None)
        async with asyncio.TaskGroup() as tasks:
            ticking = tasks.create_task(self.core.run())
            await self._stop.wait()
            ticking.cancel()
        if self._crashing:
            await self._die()
        else:
            await self.core.close()
        if self._server is not None:
            await self._server.stop()

    async def _start_http(self) -> None:
        address = self._settings.parsed_http()
        if address is None:
            return
        from ister.gateway.http.server import HttpServer

        listening = bind(address)
        self.http = bound(address, listening)
        self._server = HttpServer(self.core, self.http)
        await self._server.start(listening)

    async def _die(self) -> None:
        core = self.core
        core.storage.driver.abandon()
        self._files.release()
        core.storage.bucket.close()
        core.storage.store.close()
        await asyncio.sleep(0)  # the loop closes the sockets in its next turn
