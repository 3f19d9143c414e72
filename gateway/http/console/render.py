"""HTML from templates, and what keeps a page and its forms safe.

Everything is escaped by default. A page may load nothing but this server's own style and
script (Content-Security-Policy), and be framed by nobody. Forms carry the value of a cookie
that other sites can neither read nor send (`SameSite=Strict`); `checked` compares the two.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from datetime import UTC, datetime
from functools import cache
from typing import Any
from urllib.parse import quote

from aiohttp import web
from jinja2 import Environment, PackageLoader, StrictUndefined

import ister
from ister.gateway.broker import Broker
from ister.gateway.http.console.history import PLOT_HEIGHT, PLOT_WIDTH, plot
from ister.gateway.http.guard import Policy

CSRF_COOKIE, CSRF_FIELD = "ister_csrf", "csrf"
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


class Console:
    """What pages and actions share."""

    def __init__(self, core: Broker, policy: Policy) -> None:
        self.core = core
        self.policy = policy

    async def page(
        self, request: web.Request, template: str, *, status: int = 200, **values: Any
    ) -> web.Response:
        """`values` are taken already; making HTML of them is for another thread."""
        token = request.cookies.get(CSRF_COOKIE) or secrets.token_urlsafe(24)
        values |= {
            "path": request.path,
            "csrf": token,
            "may_change": self.policy.may_change(request),
            "has_token": bool(self.policy.token),
            "version": ister.__version__,
            "cluster_id": self.core.storage.catalog.cluster_id,
            "bootstrap": str(self.core.bootstrap) if self.core.listeners else "",
        }
        text = await asyncio.to_thread(_render, template, values)
        response = web.Response(
            text=text, status=status, content_type="text/html", headers=_HEADERS
        )
        if request.cookies.get(CSRF_COOKIE) != token:
            response.set_cookie(CSRF_COOKIE, token, httponly=True, samesite="Strict", path="/")
        return response

    async def problem(self, request: web.Request, words: str, status: int = 400) -> web.Response:
        """What did not work, in words, with the way back."""
        return await self.page(request, "problem.html", status=status, words=words)


async def checked(request: web.Request) -> dict[str, str]:
    """The fields of a form that came from one of our pages; 403 otherwise."""
    fields = {key: str(value) for key, value in (await request.post()).items()}
    cookie = request.cookies.get(CSRF_COOKIE, "")
    given = fields.pop(CSRF_FIELD, "")
    if not cookie or not hmac.compare_digest(cookie.encode(), given.encode()):
        raise web.HTTPForbidden(text="This form is too old: go back, reload, and send it again.\n")
    return fields


def _render(template: str, values: dict[str, Any]) -> str:
    return environment().get_template(template).render(values)


@cache
def environment() -> Environment:
    made = Environment(
        loader=PackageLoader("ister.gateway.http.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(segment=segment, size=size, number=number, moment=moment, plot=plot)
    made.globals.update(plot_width=PLOT_WIDTH, plot_height=PLOT_HEIGHT)
    return made


def segment(name: str) -> str:
    """A name as one piece of a path: a slash in it is not one of the path."""
    return quote(name, safe="")


def size(count: float) -> str:
    """1.5 MiB."""
    amount = float(count)
    for unit in _UNITS:
        if amount < 1024 or unit == _UNITS[-1]:
            break
        amount /= 1024
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"


def number(value: float | None) -> str:
    """12,345; or three digits of a fraction."""
    if value is None:
        return "-"
    if isinstance(value, int) or value >= 10:
        return f"{round(value):,}"
    return f"{value:.3g}"


def moment(milliseconds: int | None) -> str:
    """A time as UTC, to the millisecond."""
    if milliseconds is None or milliseconds < 0:
        return "-"
    try:
        at = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(milliseconds)
    return at.strftime("%Y-%m-%d %H:%M:%S.") + f"{milliseconds % 1000:03d}Z"
