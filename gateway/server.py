"""Sockets around the connection core: reading, writing, limits, closing.

One receive buffer serves all connections: a read is worked off before the next one
begins. What a request brings is dispatched at once if it may be: Produce requests of a
connection overlap, everything else runs alone, and what may not run yet waits in the
connection's queue. Answers are gathered and written once per turn: a connection that
has something to say is put on a list, and the list is written by one call after
everything that a commit resolved.

Reading stops while the core says so (too much under way), while the journal is
overloaded, and while the client does not take its answers. It goes on when the reason is
gone: after an answer, after a commit, at the latest at the next tick.

A fault of one connection ends that connection, with one line in the log. The callback
of a commit never dies half-way because of one of them.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, cast

import structlog

from ister.gateway.connection import SHARED_BUFFER_BYTES, Connection, Memory, Slot
from ister.gateway.handlers.api import Call
from ister.gateway.listeners import Listener
from ister.gateway.protocol.errors import ProtocolError
from ister.gateway.protocol.headers import Request
from ister.gateway.router import Router, overlaps
from ister.gateway.settings import BrokerSettings, connection_limits
from ister.wal.clock import Clock

# Answers that the kernel has not taken; above the first the client is not read from any more.
SEND_BUFFER_HIGH_BYTES = 4 * 1024 * 1024
SEND_BUFFER_LOW_BYTES = 1024 * 1024
_BACKLOG = 1024

log = structlog.get_logger()


class ClientConnection(asyncio.BufferedProtocol):
    """One client, from accept to close."""

    def __init__(self, server: Server, listener: Listener) -> None:
        self._server = server
        self._core = Connection(server.shared, server.memory, server.limits)
        self._transport: asyncio.Transport | None = None
        self._queue: deque[Request] = deque()  # requests that may not run yet
        self._running: set[Call] = set()
        self._alone = False  # what runs lets nothing run beside it
        self._pumping = False
        self._reading = True
        self._listener = listener
        self.host = ""
        self.fetches = 0
        self.dirty = False
        self.stalled = False  # on the server's list of those that wait to read on
        self.can_write = True
        self.blocked_since = 0.0
        self.last_active = 0.0

    @property
    def listener(self) -> Listener:
        return self._listener

    # -- asyncio -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer: Any = transport.get_extra_info("peername")
        self.host = str(peer[0]) if isinstance(peer, tuple) else ""
        self.last_active = self._server.clock.monotonic()
        self._transport.set_write_buffer_limits(SEND_BUFFER_HIGH_BYTES, SEND_BUFFER_LOW_BYTES)
        if not self._server.admit(self):
            self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._core.get_buffer()

    def buffer_updated(self, count: int) -> None:
        try:
            requests = self._core.received(count)
            if requests:
                self._queue.extend(requests)
                self._pump()
            elif self._core.error is not None:
                self._pump()
        except Exception as error:
            self._end(error)

    def eof_received(self) -> bool:
        self._core.end_of_stream()
        return False

    def pause_writing(self) -> None:
        self.can_write = False
        self.blocked_since = self._server.clock.monotonic()

    def resume_writing(self) -> None:
        self.can_write = True
        self._guarded(self._pump)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._core.close()
        self._queue.clear()
        running, self._running = self._running, set()
        for call in running:
            if call.on_gone is not None:
                call.on_gone()
        self._server.dismiss(self)

    # -- requests ----------------------------------------------------------------------

    def _pump(self) -> None:
        """Start what may start, write what is ready, and see whether to read on."""
        if self._pumping or self._transport is None:
            return
        self._pumping = True
        try:
            while True:
                self._start_all()
                self._write()
                if self._queue or not self.can_write:
                    break
                more = self._core.more()
                if not more:
                    break
                self._queue.extend(more)
        finally:
            self._pumping = False
        if self._core.error is not None and not self._running and not self._queue:
            self._end(self._core.error)
        else:
            self.check_reading()

    def _start_all(self) -> None:
        queue = self._queue
        while queue and self.can_write and not self._alone:
            request = queue[0]
            beside = overlaps(request)
            if self._running and not beside:
                return
            queue.popleft()
            self._alone = not beside
            call = self._server.router.dispatch(self, request)
            if call.over:
                self._alone = False
            elif self._transport is not None:
                self._running.add(call)

    def owe(self, request: Request) -> Slot:
        return self._core.owe(request)

    def forget(self, request: Request) -> None:
        self._core.forget(request)

    def answered(self, call: Call, may_leave: bool) -> None:
        if call in self._running:
            self._running.discard(call)
            self._alone = False
        if not self._pumping and self._transport is not None:
            self._server.flush_soon(self)

    def flush(self) -> None:
        """Write what is ready and go on; called by the server, once per turn."""
        self.dirty = False
        self._guarded(self._pump)

    def _write(self) -> None:
        ready = self._core.take_ready()
        if ready and self._transport is not None:
            self.last_active = self._server.clock.monotonic()
            self._transport.write(ready[0] if len(ready) == 1 else b"".join(ready))

    # -- reading -----------------------------------------------------------------------

    def check_reading(self) -> None:
        """Read while there is room for what comes."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        overloaded = self._server.overloaded()
        wanted = self.can_write and not overloaded and not self._core.paused
        if wanted != self._reading:
            self._reading = wanted
            if wanted:
                transport.resume_reading()
            else:
                transport.pause_reading()
        if not wanted and self.can_write:
            self._server.stall(self)

    def read_on(self) -> None:
        """What held reading up may be over."""
        self._guarded(self._pump)

    # -- ending ------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        return self._core.is_idle and not self._running and not self._queue

    @property
    def is_settled(self) -> bool:
        """Nothing of what was asked is unanswered."""
        return not self._running and not self._queue

    def drop(self, reason: str) -> None:
        log.warning("connection_dropped", peer=self.host, reason=reason)
        self.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """What was written still leaves."""
        if self._transport is not None:
            self._transport.close()

    def _guarded(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:
            self._end(error)

    def _end(self, error: Exception) -> None:
        """The one place where a fault of a connection becomes its end."""
        if isinstance(error, ProtocolError):
            log.warning("connection_dropped", peer=self.host, reason=str(error))
            self.close()
        else:
            log.error("connection_failed", peer=self.host, exc_info=error)
            self.abort()


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
        self._by_host: Counter[str] = Counter()
        self._servers: list[asyncio.Server] = []
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
                self._servers.append(
                    await self._loop.create_server(
                        lambda bound=bound: ClientConnection(self, bound),  # type: ignore[misc]
                        sock=each,
                        backlog=_BACKLOG,
                    )
                )
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
        for server in self._servers:
            server.close()
        self._servers.clear()

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
            len(self.clients) > settings.max_connections
            or self._by_host[client.host] > settings.max_connections_per_ip
        ):
            self.refused += 1
            return False
        return True

    def dismiss(self, client: ClientConnection) -> None:
        self.clients.discard(client)
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
        idle_before = now - self.settings.connections_max_idle_ms / 1000
        blocked_before = now - self.settings.send_timeout_ms / 1000
        for client in list(self.clients):
            if not client.can_write and client.blocked_since < blocked_before:
                client.drop("takes no answers")
            elif client.last_active < idle_before and client.is_idle:
                client.close()
