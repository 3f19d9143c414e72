"""Every version of every API, right input and wrong, answered as Kafka answers it."""

from __future__ import annotations

import pytest

from compat_tests.brokers import Both
from compat_tests.differential.compare import play_to_both
from compat_tests.differential.rules import Rules
from compat_tests.names import Names
from compat_tests.raw.layout import versions_of
from compat_tests.versions.scenarios import SCENARIOS
from ister.gateway.protocol.api import ApiKey
from ister.gateway.router import APIS

SERVED = {
    ApiKey(key).name.lower(): [
        version
        for version in range(api.versions[0], api.versions[1] + 1)
        if version in versions_of(ApiKey(key).name.lower())
    ]
    for key, api in sorted(APIS.items())
}
# DeleteGroups 3 is of a Kafka that is not released; our own tests have it.
BEYOND_KAFKA = {("delete_groups", 3)}
CASES = [
    pytest.param(name, version, id=f"{name}-{version}")
    for name, versions in SERVED.items()
    for version in versions
]


@pytest.mark.parametrize(("api", "version"), CASES)
def test_a_version_is_answered_as_kafka_answers_it(
    both: Both, names: Names, api: str, version: int
) -> None:
    """Field by field, after the masks, less the rules of differences.md."""
    play_to_both(both, SCENARIOS[api](version, names), Rules.load())


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("api", sorted({rule.api for rule in Rules.load().rules}))
def test_every_difference_is_met(both: Both, names: Names, api: str) -> None:
    """A rule of differences.md that no case meets excuses what is not there."""
    rules = Rules.load()
    missing = {rule for rule in rules.rules if rule.api == api}
    versions = SERVED[api]
    # From the newest version down, until all are met; the older ones have what is left.
    for version in (versions[-1], versions[0], *versions[1:-1]):
        missing -= rules.met
        if missing:
            play_to_both(both, SCENARIOS[api](version, names), rules)
    assert missing - rules.met == set()


def test_every_version_has_a_case() -> None:
    """What is served is compared."""
    assert SCENARIOS.keys() == SERVED.keys()
    served = {
        (ApiKey(key).name.lower(), version)
        for key, api in APIS.items()
        for version in range(api.versions[0], api.versions[1] + 1)
    }
    compared = {(name, version) for name, versions in SERVED.items() for version in versions}
    assert served - compared == BEYOND_KAFKA
