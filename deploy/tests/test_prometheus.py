"""A real Prometheus scrapes a live broker with our configuration, and its alerts see a fault."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from compat_tests.delivery.kit import (
    TOPIC,
    consuming,
    create,
    numbers,
    producing,
    publish,
    run,
    take,
    until,
)
from compat_tests.tools import ToolMissing, prometheus
from compat_tests.waiting import wait_for
from ister.testing import Broker

FILES = Path(__file__).parents[1] / "prometheus"
SECONDS_MAX = 60
SCRAPE_INTERVAL = "1s"  # and how long a scrape may take
LISTENING = re.compile(r'msg="?Listening on"? .*address=127\.0\.0\.1:(\d+)')

pytestmark = pytest.mark.product


class Prometheus:
    """A running one; asks its API."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def is_ready(self) -> bool:
        try:
            url = f"{self._url}/-/ready"
            urllib.request.urlopen(url, timeout=SECONDS_MAX).close()  # noqa: S310 our own
        except urllib.error.HTTPError as error:
            error.close()
            return False
        return True

    def ask(self, path: str, **parameters: str) -> Any:
        url = f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=SECONDS_MAX) as answer:  # noqa: S310 our own
            said = json.load(answer)
        assert said["status"] == "success", said
        return said["data"]

    def value(self, query: str) -> float | None:
        """Of the one series that this finds; None: there is none."""
        found = self.ask("query", query=query)["result"]
        assert len(found) <= 1, found
        return float(found[0]["value"][1]) if found else None

    def holds(self, condition: str) -> bool:
        """A comparison, in Prometheus' own words."""
        return self.value(condition) is not None

    def states(self) -> dict[str, str]:
        """Of each alert: inactive, pending or firing."""
        rules = [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]
        assert not [rule for rule in rules if rule["health"] == "err"]
        return {rule["name"]: rule["state"] for rule in rules}


@contextmanager
def scraping(broker: Broker, folder: Path) -> Iterator[Prometheus]:
    """The configuration that is delivered, with a short interval and this broker's address."""
    try:
        program = prometheus()
    except ToolMissing as reason:
        pytest.skip(f"no Prometheus here: {reason}")
    config = yaml.safe_load((FILES / "prometheus.yml").read_text())
    config["global"] = dict.fromkeys(config["global"], SCRAPE_INTERVAL)
    config["rule_files"] = [str(FILES / name) for name in config["rule_files"]]
    address = broker.http_url.removeprefix("http://")
    config["scrape_configs"][0]["static_configs"][0]["targets"] = [address]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    command = [
        str(program),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--web.listen-address=127.0.0.1:0",
    ]
    log = folder / "prometheus.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=folder
        )
    try:
        asked = Prometheus(_port(process, log))
        wait_for(asked.is_ready, "Prometheus is ready")  # it listens before
        yield asked
    finally:
        process.terminate()
        try:
            process.wait(SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _port(process: subprocess.Popen[bytes], log: Path) -> int:
    """It takes a free port, and its log says which."""

    def listening() -> bool:
        assert process.poll() is None, log.read_text()
        return LISTENING.search(log.read_text()) is not None

    wait_for(listening, "Prometheus listens")
    found = LISTENING.search(log.read_text())
    assert found is not None
    return int(found[1])


async def _comes_to_hold(holds: Callable[[], bool], what: str) -> None:
    await asyncio.to_thread(wait_for, holds, what)


def test_a_real_prometheus_sees_deliveries_and_their_faults(tmp_path: Path) -> None:
    """Contract names with their labels, and alerts that follow what happens."""
    here = f'{{group="g",topic="{TOPIC}",partition="0"}}'

    async def scenario(broker: Broker, asked: Prometheus) -> None:
        sent = 0
        await create(broker.bootstrap)
        async with (
            producing(broker.bootstrap) as producer,
            consuming(broker.bootstrap, "g") as consumer,
        ):

            async def deliver() -> None:
                nonlocal sent
                async with asyncio.TaskGroup() as tasks:
                    taking = tasks.create_task(take(consumer, 10))
                    await until(broker, lambda core: core.parked.count > 0)
                    await publish(producer, sent, 10)
                assert taking.result() == numbers(10, sent)
                await consumer.commit()
                sent += 10

            await _comes_to_hold(lambda: asked.value('up{job="ister"}') == 1, "a first scrape")
            await deliver()
            await _comes_to_hold(
                lambda: asked.value(f"ister_subscription_last_dispatched_offset{here}") == sent - 1,
                "the last offset",
            )
            states = await asyncio.to_thread(asked.states)
            assert states["IsterNotifierDied"] == states["IsterOffsetGaps"] == "inactive"

            broker.faults.drop_notifications(1.0)
            for _ in range(100):
                await deliver()
                states = await asyncio.to_thread(asked.states)
                if states["IsterNotifierNotWorking"] == "pending":
                    break
            else:
                raise AssertionError("heartbeats alone deliver, and no alert is pending")

            broker.faults.clear()
            broker.faults.kill_notifier()
            await deliver()
            await _comes_to_hold(
                lambda: asked.states()["IsterNotifierDied"] == "firing", "the death is told"
            )
        for query in (
            f"ister_subscription_last_dispatched_offset{here} == {sent - 1}",
            f"ister_subscription_lag_detected_total{here} >= 1",
            f"ister_subscription_fallback_polls_total{here} >= 1",
            f"ister_subscription_offset_gaps_total{here} == 0",
            f"ister_subscription_lag_messages{here} == 0",
            f'ister_dispatcher_heartbeat_polls_total{{group="g",topic="{TOPIC}"}} >= 1',
            "ister_notifier_task_deaths_total == 1",
            "ister_dispatch_stall_seconds_count >= 1",
        ):
            await _comes_to_hold(partial(asked.holds, query), query)

    with Broker(http=True, seed=1) as broker, scraping(broker, tmp_path) as asked:
        run(scenario(broker, asked))
