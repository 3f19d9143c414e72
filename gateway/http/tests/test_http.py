"""Probes, metrics, JSON and who may ask: over real HTTP, against a real broker."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ister.gateway.http import listen
from ister.gateway.http.families import OTHER, metric, rows
from ister.gateway.http.guard import Policy
from ister.gateway.listeners import Address, BadListener
from ister.gateway.settings import BrokerSettings
from ister.gateway.tests.wire_kit import Part, Wire
from ister.testing import Broker
from ister.wal.errors import JournalFailed
from ister.wal.tests.batches import make_batch

SECONDS_MAX = 30


class Answer(NamedTuple):
    status: int
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


def ask(broker: Broker, path: str, method: str = "GET", **headers: str) -> Answer:
    address = broker.http_url.removeprefix("http://")
    connection = http.client.HTTPConnection(address, timeout=SECONDS_MAX)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return Answer(response.status, response.read().decode())
    finally:
        connection.close()


def samples(broker: Broker) -> dict[str, dict[tuple[str, ...], float]]:
    """By name, then by label values in order of label."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(ask(broker, "/metrics").text):
        for sample in family.samples:
            labels = tuple(value for _, value in sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(http=True) as running:
        with Wire(running.port) as wire:
            wire.create("orders", 2)
            wire.produce("orders", make_batch([b"a", b"b"]))
            wire.produce("nothing", make_batch([b"a"]))
            wire.fetch([("orders", [Part(0)])])
        yield running


def test_the_probes_answer(broker: Broker) -> None:
    """Alive and ready, under any name: a probe knows the machine by what it likes."""
    assert ask(broker, "/healthz") == (200, "ok\n")
    assert ask(broker, "/readyz", Host="anything.example") == (200, "ready\n")


def test_readyz_says_why_not() -> None:
    """A failed journal; the process lives on."""
    with Broker(http=True) as broker:

        def fail(core) -> None:
            core.storage.log.journal.failed = JournalFailed("the disk said no")

        broker.call(fail)
        answer = ask(broker, "/readyz")
        assert answer.status == 503
        assert "the disk said no" in answer.text
        assert ask(broker, "/healthz").status == 200
        assert "the disk said no" in ask(broker, "/api/v1/nodes").text


@pytest.mark.parametrize(
    ("free", "words"), [((50, 1000), "nearly full"), (OSError("gone"), "cannot be looked at")]
)
def test_a_disk_that_is_full_or_gone_is_a_warning(free: object, words: str) -> None:
    """Clients are still served, pages and metrics too."""
    with Broker(http=True) as broker:

        def free_bytes(_: str) -> tuple[int, int]:
            if isinstance(free, OSError):
                raise free
            return free  # type: ignore[return-value]

        def install(core) -> None:
            core.storage.fs.free_bytes = free_bytes

        broker.call(install)
        (problem,) = ask(broker, "/api/v1/nodes").json["nodes"][0]["problems"]
        assert problem["severity"] == "warning"
        assert words in problem["words"]
        assert ask(broker, "/readyz").status == 200
        assert "ister_disk_free_bytes" in samples(broker)


def test_metrics_count_what_happened(broker: Broker) -> None:
    """The names of the contract, in a text that Prometheus' own parser reads."""
    found = samples(broker)
    assert found["ister_requests_total"]["Produce", ""] == 1
    assert found["ister_requests_total"]["Produce", "UNKNOWN_TOPIC_OR_PARTITION"] == 1
    assert found["ister_request_seconds_count"][("Produce",)] == 2
    assert found["ister_request_seconds_bucket"]["Produce", "+Inf"] == 2
    assert found["ister_journal_commit_seconds_count"][()] == 1
    assert found["ister_journal_commit_batches_sum"][()] == 1
    assert found["ister_reads_total"][("live",)] == 1
    assert found["ister_handoff_backlog_bytes"][()] > 0
    assert found["ister_journal_bytes"][()] > 0
    for name in (
        "ister_connections",
        "ister_handoff_oldest_age_seconds",
        "ister_handoff_objects_total",
        "ister_handoff_errors_total",
        "ister_cursor_write_errors_total",
        "ister_cursor_rewinds_total",
    ):
        assert () in found[name]


def test_rows_beyond_the_limit_become_other() -> None:
    """A scrape stays bounded, and nothing is lost from the sum."""
    values = [((str(number), "x"), 1.0) for number in range(10)]
    made = metric(rows("ister_some", "gauge", "help", ("a", "b"), values, rows_max=4))
    assert len(made.samples) == 5
    assert made.samples[-1].labels == {"a": OTHER, "b": OTHER}
    assert sum(sample.value for sample in made.samples) == 10


def test_there_is_one_row_other() -> None:
    """What was counted together before stands anywhere; a row twice would spoil the scrape."""
    values = [((str(number), "x"), 1.0) for number in range(10)]
    values.insert(2, ((OTHER, OTHER), 5.0))
    made = metric(rows("ister_some", "gauge", "help", ("a", "b"), values, rows_max=4))
    labels = [tuple(sample.labels.values()) for sample in made.samples]
    assert len(labels) == len(set(labels)) == 5
    assert (labels[-1], made.samples[-1].value) == ((OTHER, OTHER), 11.0)


def test_topics_as_json(broker: Broker) -> None:
    """The listing is short, one topic has its partitions."""
    (topic,) = ask(broker, "/api/v1/topics").json["topics"]
    assert (topic["name"], topic["partitions"], topic["records"]) == ("orders", 2, 2)
    one = ask(broker, "/api/v1/topics/orders").json
    assert [each["high_watermark"] for each in one["partition_list"]] == [2, 0]
    assert ask(broker, "/api/v1/topics/nothing").status == 404


def test_listings_have_pages() -> None:
    """`next` is the `after` of the next one."""
    with Broker(http=True) as broker:
        with Wire(broker.port) as wire:
            for name in ("a", "b", "c"):
                wire.create(name)
        first = ask(broker, "/api/v1/topics?limit=2").json
        assert [each["name"] for each in first["topics"]] == ["a", "b"]
        second = ask(broker, f"/api/v1/topics?limit=2&after={first['next']}").json
        assert [each["name"] for each in second["topics"]] == ["c"]
        assert second["next"] is None
        assert ask(broker, "/api/v1/topics?limit=many").status == 400


def test_the_node_and_its_way_to_the_bucket_as_json(broker: Broker) -> None:
    """What `ister doctor` and people want to know first."""
    (node,) = ask(broker, "/api/v1/nodes").json["nodes"]
    assert node["listeners"][0]["advertised"] == broker.bootstrap
    assert node["problems"] == []
    assert ask(broker, "/api/v1/handoff").json["records_waiting"] == 2
    assert ask(broker, "/api/v1/groups").json == {"groups": [], "next": None}
    assert ask(broker, "/api/v1/groups/nobody").status == 404


def test_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more is told so, and there is room again when another leaves."""
    monkeypatch.setattr("ister.gateway.http.server.CONNECTIONS_MAX", 2)
    with Broker(http=True) as broker:
        address = ("127.0.0.1", int(broker.http_url.rpartition(":")[2]))
        idle = [socket.create_connection(address, SECONDS_MAX) for _ in range(2)]
        for each in idle:  # an answer shows that it was accepted
            each.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert each.recv(1000).startswith(b"HTTP/1.1 200")
        full = ask(broker, "/healthz")
        assert full == (503, "too many connections\n")
        for each in idle:
            each.close()
        pause = threading.Event()
        while ask(broker, "/healthz").status != 200:
            pause.wait(0.01)


# -- who may ask -----------------------------------------------------------------------


def test_a_strange_host_is_refused(broker: Broker) -> None:
    """A stranger's page cannot read this broker by pointing its name here."""
    answer = ask(broker, "/api/v1/topics", Host="evil.example")
    assert answer.status == 403
    assert "ister.http.hosts" in answer.text
    for host in ("localhost:1", "127.0.0.1", "[::1]:9644", "10.1.2.3"):
        assert ask(broker, "/api/v1/topics", Host=host).status == 200
    assert ask(broker, "/api/v1/topics", Host="[").status == 403


@pytest.mark.ister(http=True, settings={"ister.http.hosts": "ister.example, other.example"})
def test_hosts_can_be_added(ister: Broker) -> None:
    """For a reverse proxy or a name in a cluster."""
    assert ask(ister, "/api/v1/topics", Host="other.example:80").status == 200


def test_beyond_loopback_nothing_changes_without_a_token() -> None:
    """The same server is read-only there."""
    settings = BrokerSettings()
    assert Policy.of(settings, Address("127.0.0.1", 1)).loopback
    assert not Policy.of(settings, Address("0.0.0.0", 1)).loopback  # noqa: S104


def test_addresses() -> None:
    """HOST:PORT, off, and words for anything else."""
    assert listen.parse("127.0.0.1:9644") == ("127.0.0.1", 9644)
    assert listen.parse("[::1]:0") == ("::1", 0)
    assert listen.parse("OFF") is None
    for bad in ("", "9644", "a:b", "127.0.0.1:1,127.0.0.1:2"):
        with pytest.raises(BadListener):
            listen.parse(bad)
