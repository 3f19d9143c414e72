"""Compose: what it mounts is there, images are pinned, and clients on both sides get in."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import Any

import pytest

from compat_tests.skips import NO_COMPOSE
from deploy.tests.files import DEPLOY, load_yaml, serve_options
from ister.gateway.tests.wire_kit import Wire
from ister.testing import Broker

COMPOSE = DEPLOY / "compose" / "compose.yaml"

pytestmark = pytest.mark.product


def _content() -> dict[str, Any]:
    content: dict[str, Any] = load_yaml(COMPOSE)
    return content


def _broker_options() -> dict[str, Any]:
    return serve_options(_content()["services"]["ister"]["command"])


def _docker_compose() -> list[str] | None:
    docker = shutil.which("docker")
    if docker is None:
        return None
    command = [docker, "compose"]
    found = subprocess.run([*command, "version"], capture_output=True, check=False)
    return command if found.returncode == 0 else None


def test_docker_compose_reads_it() -> None:
    """Where Docker Compose is installed: its own check of the file."""
    command = _docker_compose()
    if command is None:
        pytest.skip(NO_COMPOSE)
    arguments = ["-f", str(COMPOSE), "config", "--quiet"]
    result = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("name", _content()["services"])
def test_a_service(name: str) -> None:
    """Pinned image, files that exist, ports on this machine alone, no more rights than needed."""
    service = _content()["services"][name]
    built = {each["image"] for each in _content()["services"].values() if "build" in each}
    if "build" in service:
        context = (COMPOSE.parent / service["build"]["context"]).resolve()
        assert (context / service["build"]["dockerfile"]).is_file()
    elif service["image"] not in built:
        assert re.fullmatch(r"[\w./-]+:v?\d+\.\d+\.\d+", service["image"])
    for volume in service.get("volumes", []):
        source = volume.split(":")[0]
        if source.startswith("."):
            assert (COMPOSE.parent / source).exists()
            assert volume.endswith(":ro")
        else:
            assert source in _content()["volumes"]
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert set(service.get("depends_on", [])) <= set(_content()["services"])


def test_the_names_of_the_network_fit() -> None:
    """Prometheus asks the broker and Grafana asks Prometheus under names of services here."""
    services = _content()["services"]
    scrape = load_yaml(DEPLOY / "prometheus" / "prometheus.yml")["scrape_configs"][0]
    host, _, port = scrape["static_configs"][0]["targets"][0].partition(":")
    assert host in services
    assert _broker_options()["http"].endswith(f":{port}")
    sources = load_yaml(DEPLOY / "grafana/provisioning/datasources/ister.yml")["datasources"]
    host, port = re.fullmatch(r"http://(\w+):(\d+)", sources[0]["url"]).groups()  # type: ignore[union-attr]
    assert f"127.0.0.1:{port}:{port}" in services[host]["ports"]
    providers = load_yaml(DEPLOY / "grafana/provisioning/dashboards/ister.yml")["providers"]
    folder = providers[0]["options"]["path"]
    assert any(f":{folder}:" in volume for volume in services["grafana"]["volumes"])


def test_listeners_are_reached_where_they_are_told() -> None:
    """The host's address is published; the network's is the service's name and is not."""
    told = dict(item.split("=", 1) for item in _broker_options()["advertise"])
    bound = dict(item.split("=", 1) for item in _broker_options()["listen"])
    assert set(told) == set(bound) == {"HOST", "INSIDE"}
    ports = _content()["services"]["ister"]["ports"]
    host_port, inside_port = (bound[name].rpartition(":")[2] for name in ("HOST", "INSIDE"))
    assert told["HOST"] == f"localhost:{host_port}"
    assert f"127.0.0.1:{host_port}:{host_port}" in ports
    assert told["INSIDE"] == f"ister:{inside_port}"
    assert not any(inside_port in port for port in ports)
    assert _content()["services"]["client"]["environment"]["ISTER_BOOTSTRAP"] == told["INSIDE"]


def test_a_client_on_each_side_is_told_its_own_address() -> None:
    """The listeners of the file on free ports: Metadata has the name of the one that was asked."""
    options = _broker_options()
    free = [re.sub(r"0\.0\.0\.0:\d+", "127.0.0.1:0", item) for item in options["listen"]]
    told = [re.sub(r":\d+$", ":0", item) for item in options["advertise"]]
    settings = {"listeners": ",".join(free), "advertised.listeners": ",".join(told)}
    with Broker(settings=settings) as broker:
        listeners = broker.call(lambda core: list(core.listeners))
        assert [listener.name for listener in listeners] == ["HOST", "INSIDE"]
        hosts = [listener.advertised.host for listener in listeners if listener.advertised]
        assert hosts == ["localhost", "ister"]
        for listener in listeners:
            with Wire(listener.bind.port) as client:
                (node,) = client.metadata().brokers
            assert (node.host, node.port) == listener.advertised
