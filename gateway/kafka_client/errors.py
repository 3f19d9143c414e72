"""What can go wrong between a command and a broker, in words for a person."""

from __future__ import annotations

from ister.gateway.protocol.error_codes import ErrorCode


class ClientError(Exception):
    """The command cannot go on; the message is for a person."""


class Unreachable(ClientError):
    """No connection, or it broke."""


class Refused(ClientError):
    """The broker answered with an error code."""

    def __init__(self, what: str, code: int, message: str | None = None) -> None:
        self.code = code
        name = error_name(code)
        super().__init__(f"{what}: {message} ({name})" if message else f"{what}: {name}")


def error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
