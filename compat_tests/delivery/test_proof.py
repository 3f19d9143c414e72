"""Whose records were they: certain, ambiguous, or nobody's; and what is shown of it."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from compat_tests.delivery.kit import (
    SECONDS_MAX,
    TOPIC,
    consuming,
    create,
    numbers,
    producing,
    publish,
    run,
    subscriptions,
    take,
    until,
)
from ister.gateway.broker import Broker as Core
from ister.gateway.cli.main import app
from ister.gateway.internal_topics import RECEIPTS
from ister.testing import Broker

pytestmark = pytest.mark.compat


def receipts(broker: Broker, offset: int) -> dict[str, Any]:
    arguments = ["receipts", TOPIC, "0", str(offset), "--json", "--bootstrap", broker.bootstrap]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def receipts_durable(core: Core, least: int) -> bool:
    topic = core.storage.catalog.topics_by_name.get(RECEIPTS)
    partition = None if topic is None else core.log.partitions.get((topic.id, 0))
    return partition is not None and partition.high_watermark >= least


def test_one_group_is_certain() -> None:
    """Head, sent, committed, lag; and the receipts name group and member."""

    async def scenario(broker: Broker) -> None:
        await create(broker.bootstrap)
        async with (
            producing(broker.bootstrap) as producer,
            consuming(broker.bootstrap, "g", "app") as consumer,
        ):
            await until(broker, lambda core: core.parked.count > 0)
            await publish(producer, 0, 10)
            assert await take(consumer, 10) == numbers(10)
            await consumer.commit()
            (shown,) = await asyncio.to_thread(subscriptions, broker, "g")
            assert (shown["head"], shown["sent"], shown["committed"], shown["lag"]) == (
                10,
                9,
                10,
                0,
            )
            assert shown["sent_to"] == "group"
            assert shown["woken_by_notifier"] + shown["woken_by_heartbeat"] > 0
            assert shown["stalled"] is False
            await until(broker, lambda core: receipts_durable(core, 2))
            found = await asyncio.to_thread(receipts, broker, 9)
        assert {each["attribution"] for each in found["sent"]} == {"group"}
        assert {each["group"] for each in found["sent"]} == {"g"}
        [committed] = found["committed"]
        assert (committed["group"], committed["offset"]) == ("g", 10)
        assert committed["member"].startswith("app-")

    with Broker(http=True) as broker:
        run(scenario(broker))


def test_two_groups_with_one_client_id_are_ambiguous_never_wrong() -> None:
    async def scenario(broker: Broker) -> None:
        await create(broker.bootstrap)
        async with (
            producing(broker.bootstrap) as producer,
            consuming(broker.bootstrap, "a", "same") as one,
            consuming(broker.bootstrap, "b", "same") as two,
        ):
            await until(broker, lambda core: len(core.attribution.groups()) == 2)
            await publish(producer, 0, 10)
            for consumer in (one, two):
                assert await take(consumer, 10) == numbers(10)
                await consumer.commit()
            for group in ("a", "b"):
                (shown,) = await asyncio.to_thread(subscriptions, broker, group)
                assert (shown["sent"], shown["sent_to"], shown["committed"]) == (
                    None,
                    "ambiguous",
                    10,
                )
            await until(broker, lambda core: receipts_durable(core, 3))
            found = await asyncio.to_thread(receipts, broker, 5)
        assert {each["attribution"] for each in found["sent"]} == {"ambiguous"}
        assert {each["group"] for each in found["sent"]} == {""}
        assert {each["group"] for each in found["committed"]} == {"a", "b"}  # that is exact
        assert broker.call(lambda core: core.sent.unattributed) > 0

    with Broker(http=True) as broker:
        run(scenario(broker))


def test_a_reader_that_joins_nothing_is_no_group() -> None:
    """It assigns partitions to itself, as Spark's does."""

    async def scenario(broker: Broker) -> None:
        await create(broker.bootstrap)
        async with (
            producing(broker.bootstrap) as producer,
            consuming(broker.bootstrap, None, "spark") as reader,
        ):
            await publish(producer, 0, 10)
            assert await take(reader, 10) == numbers(10)
            await until(broker, lambda core: receipts_durable(core, 1))
            found = await asyncio.to_thread(receipts, broker, 3)
        assert {each["attribution"] for each in found["sent"]} == {"no group"}
        assert found["sent"][0]["client_id"] == "spark"
        assert found["committed"] == []

    with Broker() as broker:
        run(scenario(broker))


def test_a_scrape_has_every_metric_of_delivery() -> None:
    """Names and labels are a promise; the values say what happened."""

    def scrape(broker: Broker) -> dict[str, dict[tuple[str, ...], float]]:
        url = f"{broker.http_url}/metrics"
        with urllib.request.urlopen(url, timeout=SECONDS_MAX) as answer:  # noqa: S310 our own
            text = answer.read().decode()
        found: dict[str, dict[tuple[str, ...], float]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = tuple(value for _, value in sorted(sample.labels.items()))
                found.setdefault(sample.name, {})[labels] = sample.value
        return found

    async def scenario(broker: Broker) -> None:
        await create(broker.bootstrap)
        async with (
            producing(broker.bootstrap) as producer,
            consuming(broker.bootstrap, "g") as consumer,
        ):
            await until(broker, lambda core: core.parked.count > 0)
            broker.faults.drop_notifications(1.0)
            await publish(producer, 0, 10)
            assert await take(consumer, 10) == numbers(10)
            await consumer.commit()
            await publish(producer, 10, 5)
            found = await asyncio.to_thread(scrape, broker)
        here = ("g", "0", TOPIC)
        assert found["ister_subscription_lag_messages"][here] == 5
        assert found["ister_subscription_lag_detected_total"][here] >= 1
        assert found["ister_subscription_fallback_polls_total"][here] >= 1
        assert found["ister_subscription_last_dispatched_offset"][here] >= 9
        assert found["ister_subscription_offset_gaps_total"][here] == 0
        assert here in found["ister_subscription_creation_races_detected_total"]
        assert found["ister_dispatcher_heartbeat_polls_total"]["g", TOPIC] >= 1
        assert ("g", TOPIC) in found["ister_dispatcher_notifier_polls_total"]
        assert found["ister_cursor_persisted_lag"][here] >= 0
        assert found["ister_dispatch_stall_seconds_count"][()] >= 1
        for name in (
            "ister_notifier_notifications_total",
            "ister_notifier_task_deaths_total",
            "ister_dispatch_unattributed_total",
            "ister_cursor_write_errors_total",
            "ister_cursor_retention_adjustments_total",
            "ister_cursor_rewinds_total",
        ):
            assert () in found[name]
        assert found["ister_cursor_hydration_seconds_count"][()] == 1

    with Broker(http=True) as broker:
        run(scenario(broker))
