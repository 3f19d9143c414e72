"""Secrets among the settings: known to be there, never told."""

from __future__ import annotations

import pytest

from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.messages import describe_configs as messages
from ister.gateway.tests.wire_kit import Wire
from ister.gateway.topic_configs import ConfigType
from ister.testing import Broker

BROKER = 4  # resource type


@pytest.mark.ister(settings={"ister.http.token": "hush"})
@pytest.mark.parametrize("version", [1, 4])
def test_describe_configs_tells_no_secret(ister: Broker, version: int) -> None:
    """Any client may ask for the settings of a broker."""
    resource = messages.DescribeConfigsResource(
        resource_type=BROKER, resource_name="1", configuration_keys=None
    )
    request = messages.DescribeConfigsRequest(resources=(resource,), include_synonyms=True)
    with Wire(ister.port) as wire:
        body = wire.call(ApiKey.DESCRIBE_CONFIGS, version, messages.REQUEST.write(request, version))
    assert b"hush" not in body
    (result,) = messages.RESPONSE.read(body, version).results
    (entry,) = [each for each in result.configs if each.name == "ister.http.token"]
    assert (entry.value, entry.is_sensitive) == (None, True)
    assert all(each.value is None for each in entry.synonyms)
    if version >= 3:
        assert entry.config_type == ConfigType.PASSWORD
