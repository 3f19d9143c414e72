"""The two brokers of a run: both answer, and neither is what the other is."""

from __future__ import annotations

from compat_tests.brokers import Both, RunningBroker, metadata_answers


def test_a_broker_answers(broker: RunningBroker):
    """The same case runs on Ister and on Kafka."""
    assert metadata_answers(broker.host, broker.port)


def test_both_at_once(both: Both):
    """A case that compares gets two brokers, each by its name."""
    assert (both.ister.name, both.kafka.name) == ("ister", "kafka")
    assert both.ister.port != both.kafka.port
