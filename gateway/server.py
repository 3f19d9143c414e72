"""Listeners and all connections: who is let in, the turns, and who has to leave.

One receive buffer serves all connections: a read is worked off before the next one
begins. Answers are gathered and written once per turn: a connection that has something to
say is put on a list, and the list is written by one call after everything that a commit
resolved. The callback of a commit never dies half-way because of one of them.

Limits of all connections together stand here: how many there are (also in files that the
process may have open), from one address, requests in memory (`Memory`), answers that
nobody takes. What one connection does is in `client.py`, accepting in `accepting.py`.
"""

from __future__ import annotations

import asyncio
import resource
import socket
from collections import Counter
from collections.abc import Callable

import structlog

from ister.gateway.accepting import Acceptor
from ister.gateway.client import ClientConnection
from ister.gateway.connection import SHARED_BUFFER_BYTES, Memory
from ister.gateway.listeners import Listener
from ister.gateway.router import Router
from ister.gateway.settings import BrokerSettings, connection_limits
from ister.wal.clock import Clock

# Files that connections leave to the log, the metadata and the bucket.
FILES_RESERVED = 256
# How often connections are looked at for idleness and patience.
LOOK_S = 0.5
# With too many answers in memory a client that has taken nothing for this long goes first.
SHORT_PATIENCE_S = 1.0
# Refused connections are told at most this often.
REFUSED_LOG_S = 10.0

log = structlog.get_logger()


class Server:
    """All listeners and all connections."""

    def __init__(
        self,
        settings: BrokerSettings,
        router: Router,
        clock: Clock,
        overloaded: Callable[[], bool],
    ) -> None:
        self.settings = settings
        self.router = router
        self.clock = clock
        self.overloaded = overloaded
        self.memory = Memory(settings.queued_max_request_bytes)
        self.limits = connection_limits(settings)
        self.shared = memoryview(bytearray(SHARED_BUFFER_BYTES))
        self.clients: set[ClientConnection] = set()
        self.listeners: list[Listener] = []
        self.refused = 0
        self.unsent = 0  # bytes of answers that clients have not taken
        self.connections_max = min(settings.max_connections, _files_for_connections())
        self._by_host: Counter[str] = Counter()
        self._acceptors: list[Acceptor] = []
        self._look_at = 0.0
        self._refused_told = 0
        self._refused_told_at = float("-inf")
        self._dirty: list[ClientConnection] = []
        self._stalled: list[ClientConnection] = []
        self._loop = asyncio.get_running_loop()

    # -- life --------------------------------------------------------------------------

    async def listen(self, listeners: list[Listener]) -> None:
        """OSError, with `filename` set to the address, if one of them cannot be had."""
        for listener in listeners:
            try:
                sockets = await self._bind(listener)
            except OSError as error:
                error.filename = str(listener.bind)
                raise
            bound = listener.bound(sockets[0].getsockname()[1])
            self.listeners.append(bound)
            for each in sockets:
                acceptor = Acceptor(
                    each,
                    lambda bound=bound: ClientConnection(self, bound),  # type: ignore[misc]
                )
                self._acceptors.append(acceptor)
                acceptor.start()
            if not bound.is_loopback:
                log.warning("listener_without_authentication", listener=str(bound.bind))

    async def _bind(self, listener: Listener) -> list[socket.socket]:
        """Every address of the host (localhost is IPv4 and IPv6), all with the same port."""
        host, port = listener.bind
        found = await self._loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        sockets: list[socket.socket] = []
        try:
            for family, kind, protocol, _, address in dict.fromkeys(found):
                try:
                    made = socket.socket(family, kind, protocol)
                except OSError:  # the machine has no IPv6
                    continue
                sockets.append(made)
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                made.bind((address[0], port, *address[2:]))
                port = port or made.getsockname()[1]
        except OSError:
            for made in sockets:
                made.close()
            raise
        if not sockets:
            raise OSError(f"no address for {host!r}")
        return sockets

    def stop_accepting(self) -> None:
        for acceptor in self._acceptors:
            acceptor.stop()
        self._acceptors.clear()

    def close(self) -> None:
        for client in list(self.clients):
            client.close()

    def abort(self) -> None:
        for client in list(self.clients):
            client.abort()

    # -- connections -------------------------------------------------------------------

    def admit(self, client: ClientConnection) -> bool:
        self.clients.add(client)
        self._by_host[client.host] += 1
        settings = self.settings
        if (
            len(self.clients) > self.connections_max
            or self._by_host[client.host] > settings.max_connections_per_ip
        ):
            self.refused += 1
            return False
        return True

    def dismiss(self, client: ClientConnection) -> None:
        self.clients.discard(client)
        client.count_unsent()
        self._by_host[client.host] -= 1
        if not self._by_host[client.host]:
            del self._by_host[client.host]

    # -- once per turn -----------------------------------------------------------------

    def flush_soon(self, client: ClientConnection) -> None:
        if client.dirty:
            return
        client.dirty = True
        if not self._dirty:
            self._loop.call_soon(self._flush)
        self._dirty.append(client)

    def _flush(self) -> None:
        dirty, self._dirty = self._dirty, []
        for client in dirty:
            client.flush()

    def stall(self, client: ClientConnection) -> None:
        """It waits to read on."""
        if not client.stalled:
            client.stalled = True
            self._stalled.append(client)

    def committed(self) -> None:
        """There may be room again."""
        if self._stalled:
            self._loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        stalled, self._stalled = self._stalled, []
        for client in stalled:
            client.stalled = False
            client.read_on()

    def tick(self) -> None:
        """Now and then: read on, and part with those that are idle or take nothing."""
        if self._stalled:
            self._read_on()
        now = self.clock.monotonic()
        if now >= self._look_at:
            self._look_at = now + LOOK_S
            self._look(now)

    @property
    def answer_bytes_max(self) -> int:
        """How much one Fetch may carry; with too much in memory, one batch."""
        if self.unsent > self.settings.send_memory_bytes:
            return 0
        return self.settings.fetch_max_bytes

    def _look(self, now: float) -> None:
        idle_before = now - self.settings.connections_max_idle_ms / 1000
        took_before = now - self.settings.send_timeout_ms / 1000
        for client in list(self.clients):
            if client.unsent:
                client.count_unsent()
            if client.unsent and client.took_at < took_before:
                client.drop("takes no answers")
            elif client.last_active < idle_before and client.is_settled:
                if client.is_closing:
                    client.abort()
                client.close()
        if self.unsent > self.settings.send_memory_bytes:
            self._make_room(now)
        self._tell_refused(now)

    def _make_room(self, now: float) -> None:
        """Part with those that take nothing, the most patient first."""
        slow = [client for client in self.clients if client.unsent]
        for client in sorted(slow, key=lambda each: each.took_at):
            if self.unsent <= self.settings.send_memory_bytes:
                return
            if now - client.took_at < SHORT_PATIENCE_S:
                return
            left = client.unsent
            client.drop("takes no answers while memory for answers is short")
            client.unsent = 0
            self.unsent -= left

    def _tell_refused(self, now: float) -> None:
        if self.refused > self._refused_told and now - self._refused_told_at >= REFUSED_LOG_S:
            log.warning(
                "connections_refused",
                count=self.refused - self._refused_told,
                connections=len(self.clients),
                connections_max=self.connections_max,
                connections_per_ip_max=self.settings.max_connections_per_ip,
            )
            self._refused_told = self.refused
            self._refused_told_at = now


def _files_for_connections() -> int:
    """How many of the files that this process may open are for connections."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return 1 << 30
    return max(files - FILES_RESERVED, files // 2)
