"""A broker's double that changes one field of one API's answers: the comparison must see it.

It stands between the player and a real broker, reads each answer with the raw client's
layouts, alters the values that are found at a path, and passes it on. Everything else goes
through as it came.
"""

from __future__ import annotations

import socket
import threading
from types import TracebackType
from typing import Any

from compat_tests.brokers import RunningBroker
from compat_tests.raw.client import key_of
from compat_tests.raw.layout import message
from ister.gateway.protocol.headers import read_response_header, response_head

_STOP_S = 30.0


class AlteringProxy:
    def __init__(self, broker: RunningBroker, api: str, path: str) -> None:
        self._behind = broker
        self._api = api
        self._path = path.split(".")
        self._server = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = [self._server]
        self._threads: list[threading.Thread] = []
        self.altered = 0

    @property
    def broker(self) -> RunningBroker:
        real = self._behind
        port = self._server.getsockname()[1]
        return RunningBroker(real.name, "127.0.0.1", port, real.log, real.pid)

    def __enter__(self) -> AlteringProxy:
        self._start(self._accept)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for each in self._sockets:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # it was never connected, or has gone already
            finally:
                each.close()
        for thread in self._threads:
            thread.join(_STOP_S)

    def _start(self, work: Any, *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments, name="proxy")
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            behind = socket.create_connection((self._behind.host, self._behind.port))
            self._sockets += [client, behind]
            asked: dict[int, tuple[int, int]] = {}
            self._start(self._pass_requests, client, behind, asked)
            self._start(self._pass_answers, behind, client, asked)

    def _pass_requests(self, client: Any, behind: Any, asked: dict[int, tuple[int, int]]) -> None:
        for frame in _frames(client):
            key, version = int.from_bytes(frame[:2]), int.from_bytes(frame[2:4])
            asked[int.from_bytes(frame[4:8])] = (key, version)
            _send(behind, len(frame).to_bytes(4) + frame)
        _end(behind)

    def _pass_answers(self, behind: Any, client: Any, asked: dict[int, tuple[int, int]]) -> None:
        for frame in _frames(behind):
            key, version = asked[int.from_bytes(frame[:4])]
            if key == key_of(self._api):
                _send(client, self._changed(frame, key, version))
            else:
                _send(client, len(frame).to_bytes(4) + frame)
        _end(client)

    def _changed(self, frame: bytes, key: int, version: int) -> bytes:
        correlation, body = read_response_header(frame, key, version)
        layout = message(self._api, version, "response")
        values = layout.decode(bytes(body))
        self.altered += _alter(values, self._path)
        content = layout.encode(values)
        tags = len(frame) - 4 - len(body) > 0
        return response_head(correlation, len(content), tags) + content


def _alter(values: Any, path: list[str]) -> bool:
    """Change all values at the path; False if there are none."""
    if isinstance(values, list):
        return any([_alter(each, path) for each in values])
    if not isinstance(values, dict) or path[0] not in values:
        return False
    name, rest = path[0], path[1:]
    if rest:
        return _alter(values[name], rest)
    values[name] = _other(values[name])
    return True


def _other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, str):
        return value + "x"
    if isinstance(value, bytes):
        return value + b"x"
    if isinstance(value, list) and value:
        return value[:-1]
    return 1 if value is None else value


def _frames(stream: socket.socket) -> Any:
    with stream.makefile("rb") as file:
        while True:
            try:
                head = file.read(4)
                frame = file.read(int.from_bytes(head)) if len(head) == 4 else b""
            except OSError:
                return
            if not frame:
                return
            yield frame


def _send(stream: socket.socket, data: bytes) -> None:
    try:
        stream.sendall(data)
    except OSError:
        _end(stream)


def _end(stream: socket.socket) -> None:
    try:
        stream.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
