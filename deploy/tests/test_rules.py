"""The alerts: right for promtool, made of promised metrics, each with cases and a page."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from compat_tests.tools import ToolMissing, promtool
from deploy.tests import promql
from ister.gateway.http.metrics import collect, render
from ister.testing import Broker

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
RUNBOOK = ROOT / "docs" / "runbook"
SECTIONS = ("## What it means", "## What to look at", "## What to do")

pytestmark = pytest.mark.product


def _load(name: str) -> dict[str, Any]:
    with (PROMETHEUS / name).open() as file:
        content: dict[str, Any] = yaml.safe_load(file)
    return content


def _alerts() -> list[dict[str, Any]]:
    groups = _load("ister.rules.yml")["groups"]
    return [rule for group in groups for rule in group["rules"]]


ALERTS = pytest.mark.parametrize("alert", _alerts(), ids=lambda alert: alert["alert"])


@pytest.mark.parametrize(
    "command",
    [
        ("check", "rules", "ister.rules.yml"),
        ("check", "config", "prometheus.yml"),
        ("test", "rules", "ister.rules.test.yml"),
    ],
    ids=" ".join,
)
def test_promtool(command: tuple[str, ...]) -> None:
    """Prometheus' own tool finds the files right, and the cases come out as written."""
    result = subprocess.run(
        [_promtool(), *command], cwd=PROMETHEUS, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_promtool_reads_the_metrics() -> None:
    """What a broker answers to a scrape is well formed, and its names keep to the rules."""
    with Broker() as broker:
        text = render(broker.call(collect))
    result = subprocess.run(
        [_promtool(), "check", "metrics"], input=text, capture_output=True, check=False
    )
    assert (result.returncode, result.stderr) == (0, b"")


def _promtool() -> Path:
    try:
        return promtool()
    except ToolMissing as reason:
        pytest.skip(f"no promtool here: {reason}")


@ALERTS
def test_an_alert_uses_promised_metrics_alone(alert: dict[str, Any]) -> None:
    """A rule on a name that nobody exports would be silent for ever."""
    assert promql.problems(alert["expr"]) == []


@ALERTS
def test_an_alert_is_complete(alert: dict[str, Any]) -> None:
    """Severity, summary, description."""
    assert alert["labels"]["severity"] in ("warning", "critical")
    assert alert["annotations"]["summary"]
    assert alert["annotations"]["description"]


@ALERTS
def test_an_alert_has_its_page(alert: dict[str, Any]) -> None:
    """The page is there, names the alert, has its three sections, and the index links to it."""
    page = ROOT / alert["annotations"]["runbook"]
    assert page.parent == RUNBOOK
    text = page.read_text()
    assert f"`{alert['alert']}`, {alert['labels']['severity']}" in text
    positions = [text.index(section) for section in SECTIONS]
    assert positions == sorted(positions)
    row = f"| {alert['alert']} | {alert['labels']['severity']} | ["
    lines = [line for line in (RUNBOOK / "index.md").read_text().splitlines() if row in line]
    assert len(lines) == 1
    assert f"]({page.name})" in lines[0]


@ALERTS
def test_an_alert_has_a_case_that_fires_and_one_that_does_not(alert: dict[str, Any]) -> None:
    """A rule that never fires, or always, would pass half of this."""
    cases = [
        case
        for test in _load("ister.rules.test.yml")["tests"]
        for case in test["alert_rule_test"]
        if case["alertname"] == alert["alert"]
    ]
    fired = [case["exp_alerts"] for case in cases]
    assert any(fired)
    series = [
        series
        for test in _load("ister.rules.test.yml")["tests"]
        if any(case["alertname"] == alert["alert"] for case in test["alert_rule_test"])
        for series in test["input_series"]
    ]
    quiet_at_times = any(not alerts for alerts in fired)
    quiet_beside = max(len(alerts) for alerts in fired) < len(series)
    assert quiet_at_times or quiet_beside


def test_every_page_belongs_to_an_alert() -> None:
    """A page whose alert is gone misleads."""
    pages = {page.name for page in RUNBOOK.glob("*.md")} - {"index.md"}
    assert pages == {Path(alert["annotations"]["runbook"]).name for alert in _alerts()}
