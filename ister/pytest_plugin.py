"""The pytest plugin `ister`: the fixture `ister`, a fresh broker in memory for each test.

Comes with the package (entry point `pytest11`). It imports nothing of the broker until a
test uses the fixture. `@pytest.mark.ister(settings={...}, durable=True)` passes options to
`ister.testing.Broker`; `durable` puts the data into the test's `tmp_path`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ister.testing import Broker


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "ister(durable, **options): how the broker of the fixture `ister` is made"
    )


@pytest.fixture
def ister(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A Kafka broker of this test alone; `ister.bootstrap` is its address."""
    from ister.testing import Broker

    marker = request.node.get_closest_marker("ister")
    options = dict(marker.kwargs) if marker is not None else {}
    if options.pop("durable", False):
        options["data"] = request.getfixturevalue("tmp_path") / "ister"
    with Broker(**options) as broker:
        yield broker
