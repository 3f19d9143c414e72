"""One connection to a broker: blocking, one request at a time.

It asks ApiVersions first and takes for each request the highest version that both sides
have and that the command was written for (`highest`). Version 0 of ApiVersions is the one
that every broker understands.
"""

from __future__ import annotations

import socket
import struct
from typing import Any, Protocol

import ister
from ister.gateway.kafka_client.errors import ClientError, Refused, Unreachable
from ister.gateway.listeners import Address
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.codec import Codec
from ister.gateway.protocol.errors import ProtocolError
from ister.gateway.protocol.headers import read_response_header, request_frame
from ister.gateway.protocol.messages import api_versions

CLIENT_ID = f"ister-cli-{ister.__version__}"
TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 5.0
# An answer above this is none: "HTTP" is 0x48545450, and an alert of TLS begins 0x150303.
ANSWER_BYTES_MAX = 256 * 1024 * 1024
_LENGTH = struct.Struct(">i")


class Messages(Protocol):
    """A module of `protocol/messages`."""

    @property
    def REQUEST(self) -> Codec[Any]: ...

    @property
    def RESPONSE(self) -> Codec[Any]: ...


class Connection:
    def __init__(
        self,
        address: Address,
        timeout_s: float = TIMEOUT_S,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
    ) -> None:
        """Connected, and the versions are known. Unreachable if not."""
        self.address = address
        self._correlation = 0
        try:
            self._socket = socket.create_connection(address, connect_timeout_s)
        except OSError as error:
            raise Unreachable(_cannot_connect(address, error)) from error
        try:
            self._socket.settimeout(timeout_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.versions = self._ask_versions()
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def highest(self, key: ApiKey, ours_min: int, ours_max: int) -> int:
        """The version to use; ClientError if there is none in common."""
        low, high = self.versions.get(int(key), (0, -1))
        version = min(high, ours_max)
        if version < max(low, ours_min):
            raise ClientError(
                f"the broker at {self.address} speaks {key.name} in versions {low} to {high}, "
                f"this command in {ours_min} to {ours_max}"
            )
        return version

    def ask(self, key: ApiKey, messages: Messages, request: Any, most: int | None = None) -> Any:
        """One request of the generated codec; `most` is the version it was written for."""
        codec = messages.REQUEST
        version = self.highest(key, codec.version_min, most or codec.version_max)
        body = self.call(key, version, codec.write(request, version))
        return messages.RESPONSE.read(body, version)

    def call(self, key: ApiKey, version: int, body: bytes | bytearray) -> memoryview:
        """The body of the answer."""
        self._correlation += 1
        frame = request_frame(int(key), version, self._correlation, CLIENT_ID, [body])
        try:
            self._socket.sendall(frame)
            answer = self._frame()
            correlation, content = read_response_header(answer, int(key), version)
        except OSError as error:
            raise Unreachable(f"the connection to {self.address} broke: {_words(error)}") from error
        except ProtocolError as error:
            raise ClientError(f"{self.address} answers with something else: {error}") from error
        if correlation != self._correlation:
            raise ClientError(f"{self.address} answers something that was not asked")
        return content

    def _frame(self) -> bytes:
        size = _LENGTH.unpack(self._exactly(_LENGTH.size))[0]
        if not 4 <= size <= ANSWER_BYTES_MAX:
            raise ClientError(
                f"{self.address} does not speak Kafka's protocol; is it the right port? "
                "(a listener with TLS answers like this too)"
            )
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self._socket.recv(min(1 << 20, size - len(data)))
            if not piece:
                raise Unreachable(f"{self.address} closed the connection")
            data += piece
        return bytes(data)

    def _ask_versions(self) -> dict[int, tuple[int, int]]:
        request = api_versions.REQUEST.write(api_versions.ApiVersionsRequest(), 0)
        body = self.call(ApiKey.API_VERSIONS, 0, request)
        try:
            answer = api_versions.RESPONSE.read(body, 0)
        except ProtocolError as error:
            raise ClientError(f"{self.address} does not speak Kafka's protocol: {error}") from error
        if answer.error_code:
            raise Refused(f"{self.address} refuses ApiVersions", answer.error_code)
        return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}


def _cannot_connect(address: Address, error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return (
            f"nothing listens at {address}. Is the broker running? "
            f"`ister doctor {address}` says more"
        )
    if isinstance(error, socket.gaierror):
        return f"the name {address.host!r} is not known here: {_words(error)}"
    if isinstance(error, TimeoutError):
        return f"{address} does not answer. A firewall, or the wrong address?"
    return f"cannot connect to {address}: {_words(error)}"


def _words(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return error.strerror or str(error)
