"""Accepting connections on one listening socket, also when the process runs out of files.

One task a listener, started by `start` and ended by `stop`. It takes what waits in one
go, at most `ACCEPTED_AT_ONCE`, so that a crowd at the door does not keep the loop from those
inside. When the system has no file descriptor or no memory for another connection it
pauses, says so once, and goes on when there is room again; connections that exist do not
notice. (asyncio's own server tries again a thousand times in one turn, with a line in the
log for each.)

Who is let in is decided by the protocol when its connection is made, not here.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable

import structlog

BACKLOG = 1024
ACCEPTED_AT_ONCE = 64
# How long to wait for somebody to leave; asyncio waits as long.
RETRY_S = 1.0
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

log = structlog.get_logger()


class Acceptor:
    def __init__(
        self,
        listening: socket.socket,
        make_protocol: Callable[[], asyncio.BaseProtocol],
        retry_s: float = RETRY_S,
    ) -> None:
        self._listening = listening
        self._make_protocol = make_protocol
        self._retry_s = retry_s
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        # A task that is cancelled before its first step closes nothing: these are ours until then.
        self._accepted: set[socket.socket] = set()
        self.pauses = 0

    def start(self) -> None:
        self._listening.setblocking(False)
        self._listening.listen(BACKLOG)
        self._task = self._loop.create_task(self._accept_for_ever())  # ended by `stop`

    def stop(self) -> None:
        """From now on connecting is refused."""
        if self._listening.fileno() >= 0:
            self._loop.remove_reader(self._listening)
            self._listening.close()
        if self._task is not None:
            self._task.cancel()

    async def _accept_for_ever(self) -> None:
        try:
            while self._listening.fileno() >= 0:
                await self._accept_some()
        finally:
            for connection in self._accepted:
                connection.close()

    async def _accept_some(self) -> None:
        try:
            first, _ = await self._loop.sock_accept(self._listening)
        except OSError as error:
            await self._pause(error)
            return
        self._accepted.add(first)
        self._accepted.update(self._waiting())
        await asyncio.gather(*map(self._connect, list(self._accepted)))

    async def _pause(self, error: OSError) -> None:
        if error.errno not in _EXHAUSTED:  # the peer gave up before we came: the next one
            return
        self.pauses += 1
        log.error("accepting_paused", reason=error.strerror, retry_s=self._retry_s)
        await asyncio.sleep(self._retry_s)

    def _waiting(self) -> list[socket.socket]:
        """Who else is at the door."""
        found: list[socket.socket] = []
        while len(found) + 1 < ACCEPTED_AT_ONCE:
            try:
                connection, _ = self._listening.accept()
            except OSError:  # nobody, or no file for it: `sock_accept` finds out which
                break
            connection.setblocking(False)
            found.append(connection)
        return found

    async def _connect(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make_protocol, connection)
        except OSError:  # gone already
            connection.close()
        self._accepted.discard(connection)
