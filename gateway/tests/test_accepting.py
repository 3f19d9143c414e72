"""Accepting: a crowd, peers that give up, and no file descriptors left."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from typing import Any

import pytest
import structlog

from ister.gateway.accepting import ACCEPTED_AT_ONCE, Acceptor

SECONDS_MAX = 30


class Greeter(asyncio.Protocol):
    """Says hello and counts."""

    made = 0

    def connection_made(self, transport: Any) -> None:
        type(self).made += 1
        transport.write(b"hello")
        transport.close()


class FewFiles(socket.socket):
    """A listening socket of a process that may be out of files."""

    failures: list[OSError]

    def accept(self) -> Any:
        if self.failures:
            raise self.failures.pop(0)
        return super().accept()


def listening(*failures: OSError) -> FewFiles:
    made = FewFiles()
    made.failures = list(failures)
    made.bind(("127.0.0.1", 0))
    return made


async def greet(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


def test_more_than_are_accepted_at_once() -> None:
    """Everybody comes in."""

    async def main() -> None:
        door = listening()
        acceptor = Acceptor(door, Greeter)
        acceptor.start()
        port = door.getsockname()[1]
        answers = await asyncio.gather(*(greet(port) for _ in range(3 * ACCEPTED_AT_ONCE)))
        assert answers == [b"hello"] * (3 * ACCEPTED_AT_ONCE)
        acceptor.stop()

    asyncio.run(main())


def test_no_files_left_pauses_and_recovers() -> None:
    """One line in the log for each pause, not a thousand; then it goes on by itself."""

    async def main() -> None:
        none_left = [OSError(errno.EMFILE, "Too many open files") for _ in range(2)]
        door = listening(*none_left)
        acceptor = Acceptor(door, Greeter, retry_s=0.01)
        acceptor.start()
        with structlog.testing.capture_logs() as lines:
            assert await asyncio.wait_for(greet(door.getsockname()[1]), SECONDS_MAX) == b"hello"
        assert acceptor.pauses == 2
        assert [line["event"] for line in lines] == ["accepting_paused"] * 2
        acceptor.stop()

    asyncio.run(main())


def test_a_peer_that_gave_up_is_no_reason_to_pause() -> None:
    """The next one is taken at once."""

    async def main() -> None:
        door = listening(OSError(errno.EPROTO, "gone"))
        acceptor = Acceptor(door, Greeter, retry_s=1000)
        acceptor.start()
        assert await asyncio.wait_for(greet(door.getsockname()[1]), SECONDS_MAX) == b"hello"
        assert acceptor.pauses == 0
        acceptor.stop()

    asyncio.run(main())


def test_stop_refuses_at_once() -> None:
    """Nobody gets in when `stop` has returned; a second call is harmless."""

    async def main() -> None:
        door = listening()
        acceptor = Acceptor(door, Greeter)
        acceptor.start()
        port = door.getsockname()[1]
        assert await greet(port) == b"hello"
        acceptor.stop()
        acceptor.stop()
        with pytest.raises(ConnectionRefusedError):
            await greet(port)

    asyncio.run(main())


def test_stop_closes_who_is_between_the_door_and_the_room() -> None:
    """Accepted, and no protocol yet: nothing is left open."""

    async def main() -> None:
        door = listening()
        acceptor = Acceptor(door, Greeter)
        acceptor.start()
        clients = [socket.socket() for _ in range(20)]
        loop = asyncio.get_running_loop()
        for client in clients:
            client.setblocking(False)
            await loop.sock_connect(client, door.getsockname())
        acceptor.stop()
        for client in clients:
            with contextlib.suppress(ConnectionError):
                while await asyncio.wait_for(loop.sock_recv(client, 100), SECONDS_MAX):
                    continue
            client.close()

    asyncio.run(main())
