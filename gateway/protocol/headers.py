"""What stands before the body: request header 1 and 2, response header 0 and 1.

A request header is version 2 when the request is flexible: tagged fields follow
the client id, which keeps its 16-bit length all the same. A response header is
version 1 (one empty tag buffer) when the response is flexible, except that of
ApiVersions: it is always version 0, so that a client can read the answer before
the two have agreed on a version. Request header 0 went with Kafka 4.0.

The same in the other direction (`request_frame`, `read_response_header`) serves
our own tools when they are the client.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, error
from typing import Final, NamedTuple

from ister.gateway.protocol.api import FLEXIBLE_FROM, ApiKey
from ister.gateway.protocol.errors import ProtocolError
from ister.gateway.protocol.reader import CompactReader
from ister.gateway.protocol.writer import PlainWriter

_HEADER: Final = Struct(">hhih")
_SIZE_AND_CORRELATION: Final = Struct(">ii")
_SIZE_CORRELATION_TAGS: Final = Struct(">iib")
_INT32: Final = Struct(">i")
_API_VERSIONS: Final = int(ApiKey.API_VERSIONS)
# The version from which on the response header of an API is version 1; ApiVersions has none.
RESPONSE_TAGS_FROM: Final = {**FLEXIBLE_FROM, _API_VERSIONS: 1 << 15}
_new = tuple.__new__  # what a NamedTuple's own constructor calls, without the way there


class Request(NamedTuple):
    """One request of a client: its header, a view of its body, and the bytes of its frame."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body: memoryview
    size: int


def read_request(frame: bytes | bytearray) -> Request:
    """Header and body of a whole frame (without its length); the body is a view of it."""
    try:
        api_key, version, correlation_id, size = _HEADER.unpack_from(frame)
    except error:
        raise ProtocolError(f"frame of {len(frame)} bytes has no header") from None
    flexible_from = FLEXIBLE_FROM.get(api_key)
    if flexible_from is None:
        raise ProtocolError(f"unknown API key {api_key}")
    if version < 0:
        raise ProtocolError(f"version {version} of API key {api_key}")
    position = 10
    client_id = None
    if size >= 0:
        position += size
        if position > len(frame):
            raise ProtocolError(f"client id of {size} bytes in a frame of {len(frame)}")
        # A label and nothing more: bytes that are no UTF-8 are no reason to part.
        client_id = str(frame[10:position], "utf-8", "replace")
    elif size != -1:
        raise ProtocolError(f"client id of {size} bytes")
    view = memoryview(frame)
    if version >= flexible_from:
        if position < len(frame) and frame[position] == 0:
            position += 1
        else:
            position += _tags_size(view[position:])
    fields = (api_key, version, correlation_id, client_id, view[position:], len(frame))
    return _new(Request, fields)


def _tags_size(data: memoryview) -> int:
    """Bytes of the tagged fields at the start of `data`: none of them is known."""
    reader = CompactReader(data)
    try:
        reader.skip_tags()
    except IndexError:
        raise ProtocolError("request header ends in its tagged fields") from None
    return reader.position


def has_response_tags(api_key: int, version: int) -> bool:
    """Whether the response header is version 1."""
    return version >= RESPONSE_TAGS_FROM[api_key]


def response_head(correlation_id: int, size: int, has_tags: bool) -> bytes:
    """Length and header of a response whose body has `size` bytes."""
    if has_tags:
        return _SIZE_CORRELATION_TAGS.pack(size + 5, correlation_id, 0)
    return _SIZE_AND_CORRELATION.pack(size + 4, correlation_id)


# -- as a client -------------------------------------------------------------------


def request_frame(
    api_key: int,
    version: int,
    correlation_id: int,
    client_id: str | None,
    body: Sequence[bytes | bytearray | memoryview],
) -> bytes:
    """A whole frame with its length."""
    head = PlainWriter()
    head.out += _HEADER.pack(api_key, version, correlation_id, -1)[:8]
    head.nullable_string(client_id)
    if version >= FLEXIBLE_FROM[api_key]:
        head.out.append(0)
    content = b"".join((head.out, *body))
    return _INT32.pack(len(content)) + content


def read_response_header(
    frame: bytes | bytearray, api_key: int, version: int
) -> tuple[int, memoryview]:
    """Correlation id and body of a response frame (without its length)."""
    view = memoryview(frame)
    if len(frame) < 4:
        raise ProtocolError(f"response of {len(frame)} bytes has no header")
    correlation_id: int = _INT32.unpack_from(frame)[0]
    if not has_response_tags(api_key, version):
        return correlation_id, view[4:]
    return correlation_id, view[4 + _tags_size(view[4:]) :]
