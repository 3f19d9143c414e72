"""Settings of all tests: how long property tests look, and that no test leaves a thread behind.

The plugin `ister` is loaded here, from this checkout: pytest would load the one of the
installed wheel before it looks at `pythonpath` (pyproject.toml turns that off).

`ISTER_LONG=1` (tox -e long) is the same code with larger numbers; tests that count
for themselves read the same variable.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["ister.pytest_plugin", "compat_tests.skips"]

# Brokers that tests start as processes leave the usual port alone unless they ask for it.
os.environ["ISTER_HTTP"] = "off"

# A deadline per example measures the machine, not the code.
settings.register_profile("quick", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", settings.get_profile("quick"), max_examples=2_000)
settings.load_profile("long" if os.environ.get("ISTER_LONG") == "1" else "quick")

THREAD_END_S = 10  # for a thread that has been told to end, on a busy machine
BROKER = "ister-"  # how the names of a broker's threads begin
OWN_THREADS = ("compat", "spark", "product")  # markers: clients that keep threads while they live


@pytest.fixture(autouse=True)
def no_thread_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test started has ended: else it goes on in the tests behind it, and they fail."""
    before = set(threading.enumerate())
    yield
    if any(request.node.get_closest_marker(name) for name in OWN_THREADS):
        return
    shared = any(thread.name.startswith(BROKER) for thread in before)
    for thread in set(threading.enumerate()) - before:
        if shared and thread.name.startswith(BROKER):
            continue  # a broker that serves several tests starts its threads when it needs them
        thread.join(THREAD_END_S)
        assert not thread.is_alive(), f"{request.node.nodeid} leaves {thread.name} running"
