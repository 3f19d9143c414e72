"""Connections of the raw client: frames out, dictionaries in.

A broker that ends the connection instead of answering is an answer too: `CLOSED`. What a
broker answers to is read in the version that was asked, except that ApiVersions falls back
to version 0 when it says so (KIP-511).
"""

from __future__ import annotations

import socket
from typing import Any, Final

from compat_tests.raw.layout import check_names, message
from ister.gateway.protocol.api import FLEXIBLE_FROM, ApiKey
from ister.gateway.protocol.headers import read_response_header, request_frame

CLIENT_ID = "raw"
ANSWER_S = 60.0
CLOSED: Final[dict[str, Any]] = {"closed": True}
_UNSUPPORTED_VERSION = 35


def key_of(api: str) -> ApiKey:
    return ApiKey[api.upper()]


class Connection:
    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._socket: socket.socket | None = None
        self._correlation = 0

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def call(self, api: str, version: int, values: dict[str, Any]) -> dict[str, Any]:
        self.send(api, version, values)
        return self.receive(api, version)

    def send(self, api: str, version: int, values: dict[str, Any]) -> None:
        check_names(api, values)
        self.send_bytes(key_of(api), version, message(api, version, "request").encode(values))

    def send_bytes(self, key: int, version: int, body: bytes) -> None:
        if self._socket is None:
            self._socket = socket.create_connection(self._address, ANSWER_S)
        self._correlation += 1
        self._socket.sendall(request_frame(key, version, self._correlation, CLIENT_ID, [body]))

    def receive(self, api: str, version: int) -> dict[str, Any]:
        frame = self.receive_frame()
        if frame is None:
            return CLOSED
        key = key_of(api)
        correlation, body = read_response_header(frame, key, version)
        assert correlation == self._correlation, f"answer to {correlation}, not the last request"
        if key is ApiKey.API_VERSIONS and int.from_bytes(body[:2]) == _UNSUPPORTED_VERSION:
            version = 0
        return message(api, version, "response").decode(bytes(body))

    def receive_frame(self) -> bytes | None:
        """The next answer without its length; None: the broker ended the connection."""
        head = self._exactly(4)
        frame = self._exactly(int.from_bytes(head)) if head is not None else None
        if frame is None:
            self.close()
        return frame

    def _exactly(self, size: int) -> bytes | None:
        assert self._socket is not None
        data = bytearray()
        while len(data) < size:
            try:
                piece = self._socket.recv(size - len(data))
            except ConnectionError:
                return None
            if not piece:
                return None
            data += piece
        return bytes(data)


def is_flexible(api: str, version: int) -> bool:
    return version >= FLEXIBLE_FROM[key_of(api)]
