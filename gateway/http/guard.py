"""Who may ask what over HTTP: the Host header, the Origin, and the token.

Probes and metrics answer everybody. Everything else looks at Host first: a page of a
stranger that has its name resolved to this machine (DNS rebinding) sends the stranger's
name. Names that are fine: an address written in digits, localhost, the host that is
listened on, this machine's name, and `ister.http.hosts`.

What changes something is refused unless the listener is on loopback or the token is
right, and unless the request comes from a page of this server (`Origin`).
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from ister.gateway.http.listen import is_loopback
from ister.gateway.listeners import Address
from ister.gateway.settings import BrokerSettings

OPEN_PATHS = frozenset({"/healthz", "/readyz", "/metrics"})
TOKEN_COOKIE = "ister_token"  # noqa: S105 - the name of a cookie
READING = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class Policy:
    loopback: bool
    hosts: frozenset[str]  # names beyond addresses in digits
    token: str  # "": none is set
    read_only: bool

    @classmethod
    def of(cls, settings: BrokerSettings, address: Address) -> Policy:
        named = {each.strip().lower() for each in settings.http_hosts.split(",") if each.strip()}
        own = {"localhost", address.host.lower(), socket.gethostname().lower()}
        return cls(
            is_loopback(address.host),
            frozenset(own | named),
            settings.http_token,
            settings.http_read_only,
        )

    def knows_host(self, header: str) -> bool:
        host = (urlsplit(f"//{header}").hostname or "").lower()
        return host in self.hosts or _is_address(host)

    def may_change(self, request: web.Request) -> bool:
        if self.read_only:
            return False
        if not self.token:
            return self.loopback
        given = request.cookies.get(TOKEN_COOKIE, "")
        scheme, _, bearer = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            given = bearer.strip()
        return hmac.compare_digest(given.encode(), self.token.encode())


def check(policy: Policy) -> Middleware:
    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path not in OPEN_PATHS:
            _check_host(policy, request)
            if request.method not in READING:
                _check_change(policy, request)
        return await handler(request)

    return guarded


def _check_host(policy: Policy, request: web.Request) -> None:
    try:
        known = policy.knows_host(request.headers.get("Host", ""))
    except ValueError:
        known = False
    if not known:
        raise web.HTTPForbidden(
            text=f"The name {request.headers.get('Host', '')!r} is not one of this server's. "
            "If it should be, add it to the setting ister.http.hosts.\n"
        )


def _check_change(policy: Policy, request: web.Request) -> None:
    """The login is the one change that everybody may try."""
    origin = request.headers.get("Origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("Host"):
        raise web.HTTPForbidden(text=f"Requests from {origin} are not taken.\n")
    if request.path != "/login" and not policy.may_change(request):
        raise web.HTTPForbidden(
            text="This console is read-only: beyond loopback a token is needed "
            "(setting ister.http.token).\n"
        )


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
