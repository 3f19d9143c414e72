"""Connections that break around Produce: an idempotent producer neither repeats nor reorders."""

from __future__ import annotations

import random
import zlib
from dataclasses import replace

from compat_tests.cases.needs import needs
from compat_tests.clients import Record
from compat_tests.cutting_proxy import Cuts, cutting_proxy


@needs("idempotent", "survives_cuts")
def test_idempotent_producer(client, broker, names):
    """Requests and answers are lost; every record is there once, in the order of sending."""
    topic = names("topic")
    client.create_topic(topic)
    cuts = Cuts(random.Random(zlib.crc32(client.name.encode())), cuts_max=6)
    sent = [Record(value=b"%d" % number + b"." * 2_000) for number in range(60)]
    with cutting_proxy(broker.host, broker.port, cuts) as bootstrap:
        through = replace(client, bootstrap=bootstrap)
        while not cuts.over:
            through.produce(topic, sent, idempotent=True, batch_bytes=4_000)
    lots = client.offset(topic, "latest") // len(sent)
    found = client.read(topic, lots * len(sent))
    assert [each.value for each in found] == [each.value for each in sent] * lots
