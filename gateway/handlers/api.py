"""What every handler gets and declares.

A handler module ends with `API = Api(...)`: key, versions, codec and function stand
together, and ApiVersions answers from those declarations. A handler is a plain function;
it answers through its `Call`, at once or from a callback, exactly once. No task, no await.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from ister.gateway.connection import Slot
from ister.gateway.listeners import Listener
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.headers import Request
from ister.gateway.refused import Refused
from ister.gateway.request_stats import first_error

if TYPE_CHECKING:
    from ister.gateway.handlers.context import Context

Buffer: TypeAlias = bytes | bytearray | memoryview


class Client(Protocol):
    """The connection that a call came from, as handlers see it."""

    @property
    def host(self) -> str:
        """Address of the peer, for listings."""

    @property
    def listener(self) -> Listener:
        """The listener that was used."""

    @property
    def answer_bytes_max(self) -> int:
        """How much data an answer may carry now."""

    @property
    def refused(self) -> Refused:
        """Batches that had no room."""

    @property
    def can_write(self) -> bool:
        """Whether the peer takes what it asked for."""

    def owe(self, request: Request) -> Slot:
        """The answer's place in the order."""

    def forget(self, request: Request) -> None:
        """There will be no answer."""

    def answered(self, call: Call, may_leave: bool) -> None:
        """A call is over."""

    def drop(self, reason: str) -> None:
        """End the connection."""


class Call:
    """One request under way."""

    __slots__ = (
        "_slot",
        "_started",
        "api",
        "client",
        "context",
        "on_gone",
        "over",
        "request",
        "version",
    )

    def __init__(self, api: Api, context: Context, client: Client, request: Request) -> None:
        self.api = api
        self.context = context
        self.client = client
        self.request = request
        self.version = request.version
        self.over = False
        # Called if the client goes away first; for what would wait in vain.
        self.on_gone: Callable[[], None] | None = None
        self._slot: Slot | None = None
        self._started = context.clock.monotonic()

    def owe(self) -> None:
        """Take the place of the answer: before anything is answered, in order of arrival."""
        self._slot = self.client.owe(self.request)

    def reply(self, message: Any) -> None:
        """Answer with a message of the generated codec."""
        write = self.api.write
        assert write is not None
        self.send((write(message, self.version),), first_error(message))

    def send(self, body: Sequence[Buffer], error: int = 0) -> None:
        """Answer with the bytes of a body; `error` is the first code in it, to be counted."""
        assert self._slot is not None
        assert not self.over
        self.over = True
        context = self.context
        context.requests.answered(
            self.request.api_key, context.clock.monotonic() - self._started, error
        )
        self.client.answered(self, self._slot.fill(body))

    def no_reply(self) -> None:
        """Over without an answer (acks=0)."""
        self.over = True
        context = self.context
        context.requests.answered(
            self.request.api_key, context.clock.monotonic() - self._started, 0
        )
        self.client.forget(self.request)
        self.client.answered(self, False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """An API as it is served."""

    key: ApiKey
    versions: tuple[int, int]
    handle: Callable[[Call, Any], None]
    read: Callable[[memoryview, int, int], Any]  # body, version, items that it may have
    write: Callable[[Any, int], bytearray] | None = None
    # Only where clients need a lower number to be told than is served.
    advertised_from: int | None = None
    # Requests of this API may overlap on one connection; the handler takes its own slot.
    overlaps: bool = False
