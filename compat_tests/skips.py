"""The only reasons for which a test may be skipped: what needs root, an engine or Linux.

Everything else that a test needs is fetched by `tools`, or the test fails. Where CI=true a
skip for a reason that is not here is a failure; the hook below makes it one, for all tests of
the repository. `FIXED` are whole reasons, `BEGINNINGS` those that go on to name what is missing.
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

NO_KCAT = "kcat is not installed (a system package: apt-get install kcat)"

NO_COMPOSE = "Docker Compose is not on this machine"
NO_SYSTEMD = "systemd-analyze is not on this machine"

FIXED = frozenset({NO_KCAT, NO_COMPOSE, NO_SYSTEMD, "LD_PRELOAD and /proc"})
BEGINNINGS = ("no promtool here: ", "no Prometheus here: ", "no Chromium with its driver here: ")


def allowed(reason: str) -> bool:
    words = reason.removeprefix("Skipped: ")
    return words in FIXED or words.startswith(BEGINNINGS)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if os.environ.get("CI") == "true" and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not allowed(reason):
            report.outcome = "failed"
            report.longrepr = f"{reason}: not a reason of compat_tests/skips.py"
    return report
