"""Tools that tests need and pip does not bring: built once, kept in the user's cache.

`fake_gcs_server()` and its neighbours answer at once when the tool is there. If it is
not, they make it, or wait for whoever is making it now. `python -m compat_tests.tools
start` begins in the background, so that a test run seldom waits.
"""

from __future__ import annotations

from compat_tests.tools.browser import browser
from compat_tests.tools.cache import ToolMissing
from compat_tests.tools.compiler import c_compiler
from compat_tests.tools.emulator import fake_gcs_server
from compat_tests.tools.go_clients import go_client
from compat_tests.tools.java import java
from compat_tests.tools.kafka import kafka_class_path
from compat_tests.tools.node_clients import node, node_packages
from compat_tests.tools.prometheus import prometheus, promtool

__all__ = [
    "ToolMissing",
    "browser",
    "c_compiler",
    "fake_gcs_server",
    "go_client",
    "java",
    "kafka_class_path",
    "node",
    "node_packages",
    "prometheus",
    "promtool",
]
