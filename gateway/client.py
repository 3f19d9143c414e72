"""One client connection: sockets on one side, the connection core and the handlers on the other.

What a request brings is dispatched at once if it may be: Produce requests of a
connection overlap, everything else runs alone, and what may not run yet waits in the
connection's queue. Answers are written once per turn (`Server.flush_soon`).

Reading stops while the core says so (too much under way), while the journal is
overloaded, and while the client does not take its answers. It goes on when the reason is
gone: after an answer, after a commit, at the latest at the next tick.

A fault of a connection ends that connection, with one line in the log that names the peer
and the reason; what was asked before a bad frame is answered first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import structlog

from ister.gateway.connection import Connection
from ister.gateway.handlers.api import Call
from ister.gateway.listeners import Listener
from ister.gateway.protocol.errors import ProtocolError
from ister.gateway.protocol.headers import Request
from ister.gateway.refused import Refused
from ister.gateway.router import OVERLAPPING

if TYPE_CHECKING:
    from ister.gateway.server import Server

# Reading goes on when this part of the send buffer's limit is left in it.
_SEND_BUFFER_LOW = 4

log = structlog.get_logger()


class ClientConnection(asyncio.BufferedProtocol):
    """One client, from accept to close."""

    def __init__(self, server: Server, listener: Listener) -> None:
        self._server = server
        self._core = Connection(server.shared, server.memory, server.limits)
        self.owe = self._core.owe
        self.forget = self._core.forget
        self._transport: asyncio.Transport | None = None
        self._queue: deque[Request] = deque()  # requests that may not run yet
        self._running: set[Call] = set()
        self._alone = False  # what runs lets nothing run beside it
        self._pumping = False
        self._reading = True
        self._listener = listener
        self.client_id: str | None = None  # as its last request said
        self.host = ""
        self.peer = ""
        self.refused = Refused()
        self.dirty = False
        self.stalled = False  # on the server's list of those that wait to read on
        self.can_write = True
        self.unsent = 0  # bytes of answers that the kernel has not taken
        self.took_at = 0.0  # when the client took something last, while it owes that
        self.last_active = 0.0

    @property
    def listener(self) -> Listener:
        return self._listener

    # -- asyncio -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        address: Any = transport.get_extra_info("peername")
        if isinstance(address, tuple):
            self.host = str(address[0])
            self.peer = f"{address[0]}:{address[1]}"
        self.last_active = self._server.clock.monotonic()
        high = self._server.settings.send_buffer_bytes
        self._transport.set_write_buffer_limits(high, high // _SEND_BUFFER_LOW)
        if not self._server.admit(self):
            self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._core.get_buffer()

    def buffer_updated(self, count: int) -> None:
        self.last_active = self._server.clock.monotonic()
        try:
            requests = self._core.received(count)
            if requests:
                self._queue.extend(requests)
                self._pump()
            elif self._core.paused:  # also when the bytes were a fault
                self._pump()
        except Exception as error:
            self._end(error)

    def eof_received(self) -> bool:
        self._core.end_of_stream()
        return False

    def pause_writing(self) -> None:
        self.can_write = False

    def resume_writing(self) -> None:
        self.can_write = True
        self._guarded(self._pump)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._core.close()
        self._queue.clear()
        self._server.dismiss(self)
        running, self._running = self._running, set()
        for call in running:
            if call.on_gone is not None:
                self._guarded(call.on_gone)

    # -- requests ----------------------------------------------------------------------

    def _pump(self) -> None:
        """Start what may start, write what is ready, and see whether to read on."""
        if self._pumping or self._transport is None:
            return
        queue, core = self._queue, self._core
        self._pumping = True
        try:
            while True:
                may_start_more = bool(queue) and self._start_all()
                if core.ready_bytes:
                    self._write()
                if not self.can_write:
                    break
                if may_start_more:
                    continue
                if queue:
                    break
                more = core.more()
                if not more:
                    break
                queue.extend(more)
        finally:
            self._pumping = False
        if self.refused.first and self.is_settled:
            self.refused.all_answered()
        if core.error is not None and self.is_settled:
            self._end(core.error)
        else:
            self.check_reading()

    def _start_all(self) -> bool:
        """Start what may run; True: that has made so many answers that they must leave first."""
        queue, core = self._queue, self._core
        ready_max = self._server.settings.send_buffer_bytes
        while queue and self.can_write and not self._alone:
            if core.ready_bytes >= ready_max and core.can_take:
                return True
            request = queue[0]
            beside = request.api_key in OVERLAPPING
            if self._running and not beside:
                return False
            queue.popleft()
            self.client_id = request.client_id
            self._alone = not beside
            try:
                call = self._server.router.dispatch(self, request)
            except ProtocolError as error:  # the end, but behind what is under way
                self._alone = False
                self._core.fail(error)
                queue.clear()
                return False
            if call.over:
                self._alone = False
            elif self._transport is not None:
                self._running.add(call)
        return False

    def answered(self, call: Call, may_leave: bool) -> None:
        running = self._running
        if call in running:
            running.remove(call)
            self._alone = False
        if not self.dirty and not self._pumping and self._transport is not None:
            self._server.flush_soon(self)

    def flush(self) -> None:
        """Write what is ready and go on; called by the server, once per turn."""
        self.dirty = False
        try:
            self._pump()
        except Exception as error:
            self._end(error)

    def _write(self) -> None:
        ready = self._core.take_ready()
        if ready and self._transport is not None:
            self.last_active = self._server.clock.monotonic()
            self._transport.write(ready[0] if len(ready) == 1 else b"".join(ready))
            self.count_unsent()

    def count_unsent(self) -> None:
        """What of the answers is still here; progress puts off the end of patience."""
        transport = self._transport
        size = 0 if transport is None else transport.get_write_buffer_size()
        if size != self.unsent:
            if size < self.unsent or not self.unsent:
                self.took_at = self._server.clock.monotonic()
            self._server.unsent += size - self.unsent
            self.unsent = size

    @property
    def answer_bytes_max(self) -> int:
        return self._server.answer_bytes_max

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
    def is_closing(self) -> bool:
        return self._transport is not None and self._transport.is_closing()

    @property
    def is_settled(self) -> bool:
        """Nothing of what was asked is unanswered."""
        return not self._running and not self._queue

    @property
    def has_told_all(self) -> bool:
        """Settled, and every answer has left this process."""
        transport = self._transport
        if transport is None:
            return True
        if self._core.ready_bytes or transport.get_write_buffer_size():
            return False
        return self.is_settled

    def drop(self, reason: str) -> None:
        log.warning("connection_dropped", peer=self.peer, reason=reason)
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
            log.warning("connection_dropped", peer=self.peer, reason=str(error))
            self.close()
        else:
            log.error("connection_failed", peer=self.peer, exc_info=error)
            self.abort()
