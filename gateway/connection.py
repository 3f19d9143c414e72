"""The core of one connection, without I/O: bytes to requests, answers to bytes.

In. The server reads into `get_buffer()` and tells `received(count)`, which returns the
requests that are now complete. All connections read into one shared buffer; frames
that lie whole in it are copied out, because the buffer is used again at once. A frame
that does not fit goes into a buffer of its own, into which the rest is read directly:
one copy at most, and nothing behind the frame is read. That buffer grows with what
has arrived (fourfold, from 16 KiB), or is as large at once as a frame that this peer
has sent before: a claim alone reserves nothing.

Out. Every request is settled exactly once: `owe(request)` for one that gets an answer,
`forget(request)` for one that gets none (acks=0). Slots are filled in any order and
leave strictly in the order in which they were owed (`take_ready`); the length and the
header of the answer are put before it here.

Limits. `paused` says that no more bytes should be read: too many requests without an
answer that has left, too many of their bytes, or the memory of all connections used up.
What was read already waits inside and comes out of `more()`. A frame over the limit or
with a header that cannot be read sets `error`; what came before it is still answered,
nothing behind it is looked at.

It does not decode bodies (`protocol/`), nor does it know what an answer means; reading,
writing, time-outs and closing are the server's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final, TypeAlias

from ister.gateway.protocol.errors import ProtocolError
from ister.gateway.protocol.headers import (
    RESPONSE_TAGS_FROM,
    Request,
    read_request,
    response_head,
)
from ister.gateway.protocol.limits import FRAME_BYTES_MAX, FRAME_BYTES_MIN

Buffer: TypeAlias = bytes | bytearray | memoryview

# Measured: one read then takes what a busy peer has sent meanwhile.
SHARED_BUFFER_BYTES: Final = 256 * 1024
# First own buffer of a frame from a peer that has not sent anything large yet.
OWN_BUFFER_BYTES_FIRST: Final = 16 * 1024
_GROWTH: Final = 4
_LENGTH: Final = Struct(">i")
_LENGTH_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """How much one connection may have under way."""

    frame_bytes_max: int = FRAME_BYTES_MAX
    # Requests whose answers have not left. Above it the peer waits; librdkafka would send a
    # million without a pause.
    owed_max: int = 1000
    # Bytes of requests that are not answered. One frame may exceed it, a second then waits.
    in_flight_bytes_max: int = 64 * 1024 * 1024


class Memory:
    """Request memory of all connections together, counted as it is taken.

    When half of it is held by frames that are not whole yet, these might all wait for each
    other; so one connection at a time may go on to the end of its frame. The bound is the
    limit and one frame.
    """

    __slots__ = ("exceeding", "limit", "partial", "taken")

    def __init__(self, limit: int) -> None:
        self.limit: Final = limit
        self.taken = 0
        self.partial = 0  # part of `taken`
        self.exceeding: Connection | None = None

    def may_exceed(self, connection: Connection) -> bool:
        """Whether this connection, in the middle of a frame, is the one that may go on."""
        if self.exceeding is None and self.partial * 2 >= self.limit:
            self.exceeding = connection
        return self.exceeding is connection

    def settle(self, connection: Connection) -> None:
        """Its frame was answered, or it is gone."""
        if self.exceeding is connection:
            self.exceeding = None


class Slot:
    """The place of one answer in the order of answers."""

    __slots__ = ("_buffers", "_connection", "_request", "size")

    def __init__(self, connection: Connection, request: Request) -> None:
        self.size = 0
        self._connection = connection
        self._request = request
        self._buffers: list[Buffer] | None = None

    def fill(self, body: Sequence[Buffer]) -> bool:
        """The answer's body. True if it can leave now: then flush this connection."""
        assert self._buffers is None, "a request is answered once"
        api_key, version, correlation_id, _, _, request_size = self._request
        size = len(body[0]) if len(body) == 1 else sum(map(len, body))
        head = response_head(correlation_id, size, version >= RESPONSE_TAGS_FROM[api_key])
        self._buffers = [head, *body]
        self.size = len(head) + size
        connection = self._connection
        connection._release(request_size)
        connection.ready_bytes += self.size
        owed = connection._owed
        return bool(owed) and owed[0] is self


class Connection:
    """Requests out of bytes and answers in order; see the module."""

    def __init__(
        self, shared: memoryview, memory: Memory, limits: ConnectionLimits | None = None
    ) -> None:
        self.error: ProtocolError | None = None
        self.in_flight_bytes = 0
        self.ready_bytes = 0  # of answers that wait to be taken
        self._limits = limits or ConnectionLimits()
        self._memory = memory
        self._shared = shared
        # A frame (or its length, while `_size` is negative) that did not come in one piece.
        self._own: bytearray | None = None
        self._filled = 0
        self._size = -1
        self._largest = 0
        # Bytes behind the last request that the limits allowed.
        self._backlog = b""
        self._outstanding = 0
        self._owed: deque[Slot] = deque()
        self._closed = False

    # -- in ------------------------------------------------------------------------

    @property
    def paused(self) -> bool:
        """Whether the server must stop reading; ask `more()` when this ends."""
        return (
            self.error is not None
            or self._outstanding >= self._limits.owed_max
            or self.in_flight_bytes >= self._limits.in_flight_bytes_max
            or (self._memory.taken >= self._memory.limit and not self._may_go_on())
        )

    def _may_go_on(self) -> bool:
        """Memory is used up, but what this frame needs next may have been taken already."""
        own = self._own
        if own is None or self._backlog:
            return False
        return self._filled < len(own) or self._memory.may_exceed(self)

    def get_buffer(self) -> memoryview:
        """Where to read the next bytes to."""
        own = self._own
        if own is None or self._backlog:
            return self._shared
        return memoryview(own)[self._filled :]

    def received(self, count: int) -> list[Request]:
        """`count` bytes are in the buffer of `get_buffer`: the requests that are whole now."""
        if self.error is not None or self._closed:
            return []
        if self._backlog:  # read although paused: it must wait behind what waits
            self._backlog += self._shared[:count]
            return self.more()
        requests: list[Request] = []
        try:
            if self._own is None:
                self._take(self._shared[:count], requests)
            else:
                self._filled += count
                self._advance(requests)
        except ProtocolError as error:
            self.fail(error)
        return requests

    def more(self) -> list[Request]:
        """Requests that waited for room; call it when `paused` has ended, before reading."""
        requests: list[Request] = []
        if self.error is not None or self._closed:
            return requests
        try:
            if self._backlog and not self.paused:
                data, self._backlog = self._backlog, b""
                self._take(memoryview(data), requests)
            elif self._own is not None and not self.paused:
                self._advance(requests)
        except ProtocolError as error:
            self.fail(error)
        return requests

    def fail(self, error: ProtocolError) -> None:
        """What was sent cannot be served: nothing behind it is looked at."""
        self.error = error
        self._drop_partial()

    def end_of_stream(self) -> None:
        """The peer will send no more; part of a frame is a fault."""
        if self.error is None and self._own is not None:
            size = self._size if self._size >= 0 else _LENGTH_BYTES
            self.error = ProtocolError(f"stream ends after {self._filled} of {size} bytes")
        self._drop_partial()

    def _take(self, data: memoryview, requests: list[Request]) -> None:
        """Cut whole frames out of `data`; what is left starts a buffer of its own."""
        position, end = 0, len(data)
        memory, limits = self._memory, self._limits
        size_max = limits.frame_bytes_max
        while end - position >= _LENGTH_BYTES:
            if (  # the conditions of `paused`, without a call for every frame
                self._outstanding >= limits.owed_max
                or self.in_flight_bytes >= limits.in_flight_bytes_max
                or memory.taken >= memory.limit
            ) and self.paused:
                self._backlog = bytes(data[position:])
                return
            size = _LENGTH.unpack_from(data, position)[0]
            if not FRAME_BYTES_MIN <= size <= size_max:
                raise ProtocolError(f"frame of {size} bytes, {FRAME_BYTES_MIN}-{size_max} allowed")
            start = position + _LENGTH_BYTES
            if end - start < size:
                self._begin(size, data[start:])
                return
            position = start + size
            requests.append(read_request(bytes(data[start:position])))
            self._outstanding += 1  # as `_deliver` does
            self.in_flight_bytes += size
            memory.taken += size
        if position < end:
            self._own = bytearray(_LENGTH_BYTES)
            self._filled = end - position
            self._own[: self._filled] = data[position:]
            self._size = -1
            self._take_partial(_LENGTH_BYTES)

    def _begin(self, size: int, data: memoryview) -> None:
        """A frame of which `data` has arrived gets a buffer that such a beginning deserves."""
        have = len(data)
        capacity = min(size, max(OWN_BUFFER_BYTES_FIRST, have * _GROWTH, self._largest))
        own = bytearray(capacity)
        own[:have] = data
        self._own, self._filled, self._size = own, have, size
        self._take_partial(capacity)

    def _advance(self, requests: list[Request]) -> None:
        """The own buffer has more bytes: is it full, and is it the frame?"""
        own, size = self._own, self._size
        assert own is not None
        if self._filled < len(own):
            return
        if size < 0:
            if self.paused:  # `more` comes here again
                return
            self._drop_partial()
            size = _LENGTH.unpack_from(own)[0]
            size_max = self._limits.frame_bytes_max
            if not FRAME_BYTES_MIN <= size <= size_max:
                raise ProtocolError(f"frame of {size} bytes, {FRAME_BYTES_MIN}-{size_max} allowed")
            self._begin(size, memoryview(b""))
        elif len(own) == size:
            self._drop_partial()
            self._largest = max(self._largest, size)
            self._deliver(own, requests)
        elif not self.paused:  # else `more` comes here again
            self._drop_partial()
            self._begin(size, memoryview(own))

    def _deliver(self, frame: bytes | bytearray, requests: list[Request]) -> None:
        request = read_request(frame)
        self._outstanding += 1
        self.in_flight_bytes += request.size
        self._memory.taken += request.size
        requests.append(request)

    def _take_partial(self, size: int) -> None:
        self._memory.taken += size
        self._memory.partial += size

    def _drop_partial(self) -> None:
        if self._own is not None:
            self._take_partial(-len(self._own))
            self._own = None
            self._filled = 0

    # -- out -----------------------------------------------------------------------

    def owe(self, request: Request) -> Slot:
        """This request gets an answer: here is its place."""
        slot = Slot(self, request)
        self._owed.append(slot)
        return slot

    def forget(self, request: Request) -> None:
        """This request gets no answer (acks=0)."""
        self._outstanding -= 1
        self._release(request.size)

    def _release(self, size: int) -> None:
        if not self._closed:  # closing has given everything back
            memory = self._memory
            self.in_flight_bytes -= size
            memory.taken -= size
            if memory.exceeding is self and not self.in_flight_bytes and self._own is None:
                memory.settle(self)

    @property
    def can_take(self) -> bool:
        """Whether an answer may leave now."""
        return bool(self._owed) and self._owed[0]._buffers is not None

    def take_ready(self) -> list[Buffer]:
        """The answers that may leave now, in order, as buffers for one write."""
        ready: list[Buffer] = []
        owed = self._owed
        while owed:
            buffers = owed[0]._buffers
            if buffers is None:
                break
            ready += buffers
            self.ready_bytes -= owed.popleft().size
            self._outstanding -= 1
        return ready

    def close(self) -> None:
        """The connection is gone: memory is given back, answers that come later go nowhere."""
        if self._closed:
            return
        self._drop_partial()
        self._memory.taken -= self.in_flight_bytes
        self.in_flight_bytes = 0
        self._backlog = b""
        self._owed.clear()
        self._closed = True
        self._memory.settle(self)
