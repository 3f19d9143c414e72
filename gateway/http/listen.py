"""The HTTP address: taken early, because loading the server takes half a second.

A client that comes meanwhile waits in the kernel's queue and is served a moment later.
"""

from __future__ import annotations

import socket

from ister.gateway.listeners import Address, BadListener, parse_listeners

OFF = "off"
_BACKLOG = 128
_LOOPBACK_NAMES = ("localhost", "::1")


def parse(text: str) -> Address | None:
    """The address; None: off. BadListener says what is wrong."""
    if text.strip().lower() == OFF:
        return None
    try:
        (listener,) = parse_listeners(text, "")
    except ValueError:
        raise BadListener(f"ister.http: {text!r} is not HOST:PORT, nor {OFF}") from None
    return listener.bind


def bind(address: Address) -> socket.socket:
    """Listening when this returns. OSError, with `filename` set to the address."""
    host = address.host
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, address.port))
        made.listen(_BACKLOG)
        made.setblocking(False)
    except OSError as error:
        made.close()
        error.filename = str(address)
        raise
    return made


def bound(address: Address, listening: socket.socket) -> Address:
    """The port is known now."""
    return Address(address.host, listening.getsockname()[1])


def is_loopback(host: str) -> bool:
    return host in _LOOPBACK_NAMES or host.startswith("127.")
