"""Chromium and its driver, for the tests of the console.

The machine's own ones. Where there are none and the test run is root on a machine with apt
(a build container), they are installed; elsewhere they are missing, and the message says
which packages would help.
"""

from __future__ import annotations

import os
from functools import cache as once
from typing import NamedTuple

from compat_tests.tools import cache

PACKAGES = ("chromium", "chromium-driver")


class Browser(NamedTuple):
    chromium: str
    driver: str


@once
def browser() -> Browser:
    """Both programs, or `ToolMissing`."""
    found = _find()
    if found is None and os.geteuid() == 0 and cache.on_path("apt-get"):
        cache.run(["apt-get", "update"])
        install = ["apt-get", "install", "--yes", "--no-install-recommends", *PACKAGES]
        cache.run(install, DEBIAN_FRONTEND="noninteractive")
        found = _find()
    if found is None:
        raise cache.ToolMissing(f"no Chromium with its driver here: install {' '.join(PACKAGES)}")
    return found


def _find() -> Browser | None:
    chromium = cache.on_path("chromium", "chromium-browser", "google-chrome")
    driver = cache.on_path("chromedriver")
    return Browser(chromium, driver) if chromium and driver else None
