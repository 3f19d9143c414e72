"""The dashboard: what Grafana needs, made of promised metrics, showing all that matters."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy import metrics
from deploy.tests import promql

GRAFANA = Path(__file__).parents[1] / "grafana"
# Metrics for a question that a dashboard does not ask; everything else is on it.
NOT_SHOWN = {
    "ister_subscription_last_dispatched_offset",  # the lag says it better
    "ister_cursor_hydration_seconds",  # once per start
    "ister_cursors",  # a number for its own sake
    "ister_dispatch_unattributed_total",  # of interest with receipts
}

pytestmark = pytest.mark.product


def _dashboard() -> dict[str, Any]:
    content: dict[str, Any] = json.loads((GRAFANA / "dashboards" / "ister.json").read_text())
    return content


def _panels() -> list[dict[str, Any]]:
    return [panel for panel in _dashboard()["panels"] if panel["type"] != "row"]


def _plain(query: str) -> str:
    """Grafana's variables stand for something that parses."""
    return re.sub(r"\$\w+", "x", query.replace("$__rate_interval", "5m"))


@pytest.mark.parametrize("panel", _panels(), ids=lambda panel: panel["title"])
def test_a_panel_uses_promised_metrics_alone(panel: dict[str, Any]) -> None:
    """Each query parses and would find something."""
    assert panel["targets"]
    for target in panel["targets"]:
        assert promql.problems(_plain(target["expr"])) == []


def test_every_metric_is_shown() -> None:
    """A new metric is put on the dashboard or on the list of those that are not."""
    queries = " ".join(target["expr"] for panel in _panels() for target in panel["targets"])
    shown = set(re.findall(r"ister_\w+", queries))
    names = {metric.name for metric in metrics.promised()}
    missing = {name for name in names if not any(used.startswith(name) for used in shown)}
    assert missing == NOT_SHOWN


def test_variables_that_are_used_are_there() -> None:
    """And none is there for nothing. Their queries ask for promised metrics."""
    text = json.dumps(_dashboard()["panels"])
    used = set(re.findall(r"\$\{?(\w+)", text)) - {"__rate_interval"}
    variables = {each["name"]: each for each in _dashboard()["templating"]["list"]}
    assert used == set(variables)
    for variable in variables.values():
        if variable["type"] == "query":
            found = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"])
            assert found
            labels = (*metrics.series()[found[1]], *promql.TARGET_LABELS)
            assert found[2] in labels


def test_panels_do_not_overlap() -> None:
    """Ids are unique, and each panel has its own place within 24 columns."""
    taken: set[tuple[int, int]] = set()
    panels = _dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (place["x"] + column, place["y"] + row)
            for column in range(place["w"])
            for row in range(place["h"])
        }
        assert max(column for column, _ in cells) < 24
        assert not taken & cells
        taken |= cells


def test_provisioning_names_what_is_there() -> None:
    """The data source of the provisioning is Prometheus under the name that compose gives it."""
    source = yaml.safe_load((GRAFANA / "provisioning/datasources/ister.yml").read_text())
    assert [each["type"] for each in source["datasources"]] == ["prometheus"]
    provider = yaml.safe_load((GRAFANA / "provisioning/dashboards/ister.yml").read_text())
    assert [each["type"] for each in provider["providers"]] == ["file"]
