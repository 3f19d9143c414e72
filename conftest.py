"""Settings of all tests: how long property tests look, and that Hypothesis keeps no deadlines.

`ISTER_LONG=1` (tox -e long) is the same code with larger numbers; tests that count
for themselves read the same variable.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# A deadline per example measures the machine, not the code.
settings.register_profile("quick", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", settings.get_profile("quick"), max_examples=2_000)
settings.load_profile("long" if os.environ.get("ISTER_LONG") == "1" else "quick")
