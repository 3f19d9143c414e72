"""The client of our commands: what it reads, what it sends, and what it says when it cannot."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ister.gateway.kafka_client.batches import NewRecord, encode, size_of
from ister.gateway.kafka_client.cluster import Cluster, parse_bootstrap
from ister.gateway.kafka_client.connection import Connection
from ister.gateway.kafka_client.data import EARLIEST, LATEST, fetch, list_offsets_of, produce
from ister.gateway.kafka_client.errors import ClientError, Refused, Unreachable, error_name
from ister.gateway.listeners import Address
from ister.gateway.protocol.api import ApiKey
from ister.testing import Broker
from ister.wal.batch import check
from ister.wal.records import records

HTTP = b"HTTP/1.1 400 Bad Request\r\n\r\n"


@contextmanager
def answering(answer: bytes) -> Iterator[Address]:
    """A server that says one thing to whoever comes, whatever was asked."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield Address("127.0.0.1", server.getsockname()[1])
        thread.join()


def test_what_is_encoded_is_a_batch_that_the_log_takes() -> None:
    """Header, checksum, and every field of every record."""
    sent = [
        NewRecord(b"k", b"v", 1000, ((b"h", b"x"), (b"n", None))),
        NewRecord(None, b"", 900),
        NewRecord(b"", None, 1100),
    ]
    batch = encode(sent)
    header = check(batch, len(batch))
    assert (header.count, header.base_timestamp, header.max_timestamp) == (3, 1000, 1100)
    got = [NewRecord(each.key, each.value, each.timestamp, each.headers) for each in records(batch)]
    assert got == sent
    assert len(encode(sent[:1])) - 61 <= size_of(sent[0])


def test_records_come_back(ister: Broker) -> None:
    """Produce, fetch from the middle of a batch, and offsets."""
    with Cluster(ister.bootstrap) as cluster:
        cluster.topic("t", create=True)
        ((connection, indexes),) = cluster.by_leader("t", [0]).items()
        assert indexes == [0]
        batch = encode([NewRecord(None, b"%d" % number, 1000) for number in range(5)])
        assert produce(connection, "t", 0, batch) == 0
        assert produce(connection, "t", 0, batch) == 5
        assert list_offsets_of(connection, "t", [0], EARLIEST) == {0: 0}
        assert list_offsets_of(connection, "t", [0], LATEST) == {0: 10}
        got = fetch(connection, "t", {0: 3}, max_wait_ms=0)[0]
        assert [each.offset for each in got.records] == list(range(3, 10))
        assert (got.next_offset, got.high_watermark) == (10, 10)
        assert fetch(connection, "t", {0: 10}, max_wait_ms=0)[0].records == []
        with pytest.raises(Refused, match="OFFSET_OUT_OF_RANGE"):
            fetch(connection, "t", {0: 11}, max_wait_ms=0)


@pytest.mark.parametrize("version", [4, 5, 7, 9, 11])
def test_every_layout_of_fetch_is_read(ister: Broker, version: int) -> None:
    """An older broker offers an older version."""
    with Cluster(ister.bootstrap) as cluster:
        cluster.topic("t", create=True)
        ((connection, _),) = cluster.by_leader("t", [0]).items()
        produce(connection, "t", 0, encode([NewRecord(None, b"v", 1000)]))
        connection.versions[ApiKey.FETCH] = (4, version)
        assert fetch(connection, "t", {0: 0}, max_wait_ms=0)[0].records[0].value == b"v"


def test_versions_that_have_nothing_in_common(ister: Broker) -> None:
    """Said with both ranges."""
    with Cluster(ister.bootstrap) as cluster:
        connection = cluster.any()
        connection.versions[ApiKey.PRODUCE] = (20, 30)
        with pytest.raises(ClientError, match="versions 20 to 30"):
            produce(connection, "t", 0, b"")


def test_a_topic_that_is_not_there(ister: Broker) -> None:
    """In words, and the topic is not made by asking."""
    with Cluster(ister.bootstrap) as cluster:
        with pytest.raises(Refused, match="there is no topic nothing"):
            cluster.topic("nothing")
        cluster.topic("t", create=True)
        with pytest.raises(ClientError, match="has no partition 7; it has 1"):
            cluster.by_leader("t", [7])
        assert [each.name for each in cluster.metadata(None).topics] == ["t"]


def test_nothing_listens() -> None:
    """The first problem that everybody has; every address that was tried is named."""
    with socket.socket() as bound:  # bound and not listening: refused for certain
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        with (
            Cluster(f"127.0.0.1:{port},127.0.0.1:{port}") as cluster,
            pytest.raises(Unreachable, match=r"nothing listens at .*\n.*nothing listens at"),
        ):
            cluster.any()


@pytest.mark.ister(settings={"advertised.listeners": "127.0.0.1:1"})
def test_a_wrong_advertised_address_is_named(ister: Broker) -> None:
    """Both addresses, and the setting."""
    with Cluster(ister.bootstrap) as cluster:
        cluster.topic("t", create=True)
        with pytest.raises(Unreachable, match=r"is at 127\.0\.0\.1:1, but: .*advertised"):
            cluster.by_leader("t", [0])


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (HTTP, "does not speak Kafka"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "TLS"),
        (b"", "closed the connection"),
        (b"\x00\x00\x00\x08\x00\x00\x00\x07abcd", "was not asked"),
        (b"\x00\x00\x00\x08\x00\x00\x00\x01abcd", "does not speak Kafka"),
        (b"\x00\x00\x00\x20abc", "closed the connection"),
    ],
)
def test_somebody_else_answers(answer: bytes, words: str) -> None:
    """A web server, a listener with TLS, nonsense: one sentence, no traceback."""
    with answering(answer) as address, pytest.raises(ClientError, match=words):
        Connection(address)


def test_addresses() -> None:
    """The port is Kafka's if none is given."""
    assert parse_bootstrap("a, b:1,[::1]:2,[::1]") == [
        ("a", 9092),
        ("b", 1),
        ("::1", 2),
        ("::1", 9092),
    ]
    for bad in ("", "a:b", "a:99999", ","):
        with pytest.raises(ClientError):
            parse_bootstrap(bad)


def test_names_of_errors() -> None:
    """A number that is not known yet is a number."""
    assert error_name(3) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert error_name(9999) == "error 9999"
