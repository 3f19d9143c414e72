"""A browser without a screen and without scripts: cookies, links and forms, over real HTTP."""

from __future__ import annotations

import http.client
import re
from http.cookies import SimpleCookie
from typing import NamedTuple
from urllib.parse import urlencode

from ister.testing import Broker

SECONDS_MAX = 30
_CSRF = re.compile(r'name="csrf" value="([^"]+)"')


class Page(NamedTuple):
    status: int
    text: str
    headers: dict[str, str]

    @property
    def csrf(self) -> str:
        found = _CSRF.search(self.text)
        assert found, "no form on this page"
        return found[1]


class Browser:
    def __init__(self, broker: Broker) -> None:
        self._address = broker.http_url.removeprefix("http://")
        self.origin = broker.http_url
        self.cookies: dict[str, str] = {}

    def get(self, path: str, **headers: str) -> Page:
        return self._ask("GET", path, None, headers)

    def post(self, path: str, fields: dict[str, str], **headers: str) -> Page:
        """As a form of a page of ours is sent."""
        told = {"Origin": self.origin, "Content-Type": "application/x-www-form-urlencoded"}
        return self._ask("POST", path, urlencode(fields), {**told, **headers})

    def submit(self, page: str, action: str, **fields: str) -> Page:
        """Open the page, fill in the form, send it."""
        return self.post(action, {"csrf": self.get(page).csrf, **fields})

    def _ask(self, method: str, path: str, body: str | None, headers: dict[str, str]) -> Page:
        connection = http.client.HTTPConnection(self._address, timeout=SECONDS_MAX)
        if self.cookies:
            pairs = (f"{name}={value}" for name, value in self.cookies.items())
            headers = {**headers, "Cookie": "; ".join(pairs)}
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            for line in response.headers.get_all("Set-Cookie") or ():
                for name, morsel in SimpleCookie(line).items():
                    self.cookies[name] = morsel.value
            return Page(response.status, response.read().decode(), dict(response.headers))
        finally:
            connection.close()
