"""A proxy between a client and a broker that cuts connections around Produce requests.

Half of the Produce requests pass, by a seeded choice. Of the others one half is lost (the
connection ends before the broker gets them), and of one half the answer is lost (the broker
has appended, the client does not know): this is where a producer that is not idempotent makes
duplicates. After `cuts_max` cuts everything passes, so that a case ends.

Clients go to the address that the broker advertises; so wherever an answer names that
address, the proxy's port is put in its place. Both are on the same host, so the length stays.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

PRODUCE = 0
PASS, LOSE_REQUEST, LOSE_ANSWER = "pass", "lose the request", "lose the answer"


class Cuts:
    """What happens to each Produce request, and what has happened."""

    def __init__(self, chance: random.Random, cuts_max: int) -> None:
        self._chance = chance
        self._planned = [(LOSE_REQUEST, LOSE_ANSWER)[number % 2] for number in range(cuts_max)]
        chance.shuffle(self._planned)
        self.made: list[str] = []

    @property
    def over(self) -> bool:
        return not self._planned

    def choose(self) -> str:
        if self.over or self._chance.random() < 0.5:
            return PASS
        self.made.append(self._planned.pop())
        return self.made[-1]


@contextmanager
def cutting_proxy(host: str, port: int, cuts: Cuts) -> Iterator[str]:
    """The address to give to the client."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    proxy = _Proxy(host, port, cuts)
    try:
        yield asyncio.run_coroutine_threadsafe(proxy.start(), loop).result(10)
    finally:
        asyncio.run_coroutine_threadsafe(proxy.stop(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class _Proxy:
    def __init__(self, host: str, port: int, cuts: Cuts) -> None:
        self._host, self._port, self._cuts = host, port, cuts
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._told = host.encode() + port.to_bytes(4)
        self._instead = b""

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._serve, self._host, 0)
        port = self._server.sockets[0].getsockname()[1]
        self._instead = self._host.encode() + port.to_bytes(4)
        return f"{self._host}:{port}"

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            broker, to_broker = await asyncio.open_connection(self._host, self._port)
            connection = _Connection(self._cuts, self._told, self._instead)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(connection.requests(client, to_broker))
                    group.create_task(connection.answers(broker, to_client))
            finally:
                to_broker.close()
        except* (_Cut, OSError, asyncio.IncompleteReadError):
            pass
        except* asyncio.CancelledError:
            pass
        finally:
            to_client.close()
            self._connections.discard(task)


class _Cut(Exception):
    """This connection ends now, both ways."""


class _Connection:
    def __init__(self, cuts: Cuts, told: bytes, instead: bytes) -> None:
        self._cuts, self._told, self._instead = cuts, told, instead
        self._answer_is_lost = False

    async def requests(self, client: asyncio.StreamReader, to_broker: asyncio.StreamWriter) -> None:
        while True:
            frame = await _frame(client)
            choice = self._cuts.choose() if frame[4:6] == PRODUCE.to_bytes(2) else PASS
            if choice == LOSE_REQUEST:
                raise _Cut
            if choice == LOSE_ANSWER:
                self._answer_is_lost = True
            to_broker.write(frame)
            await to_broker.drain()

    async def answers(self, broker: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        while True:
            frame = await _frame(broker)
            if self._answer_is_lost:
                raise _Cut
            to_client.write(frame.replace(self._told, self._instead))
            await to_client.drain()


async def _frame(stream: asyncio.StreamReader) -> bytes:
    size = await stream.readexactly(4)
    return size + await stream.readexactly(int.from_bytes(size))
