"""Frames that no version describes: what ends the connection on Kafka ends it on Ister."""

from __future__ import annotations

import socket
import struct

import pytest

from compat_tests.brokers import Both, RunningBroker

API_VERSIONS, METADATA, PRODUCE, FETCH = 18, 3, 0, 1
SECONDS_MAX = 60.0


@pytest.mark.parametrize(
    ("key", "version", "body"),
    [
        pytest.param(API_VERSIONS, 99, b"\0", id="unknown version of ApiVersions"),
        pytest.param(API_VERSIONS, 5, b"\0", id="next version of ApiVersions"),
        pytest.param(METADATA, 99, b"\0", id="unknown version"),
        pytest.param(METADATA, -1, b"", id="negative version"),
        pytest.param(PRODUCE, 0, struct.pack(">hii", -1, 30_000, 0), id="Produce 0, told only"),
        pytest.param(PRODUCE, 2, struct.pack(">hii", 1, 30_000, 0), id="Produce 2, told only"),
        pytest.param(FETCH, 3, bytes(20), id="Fetch below its first version"),
        pytest.param(4, 0, b"", id="an API of brokers among themselves"),
        pytest.param(999, 0, b"", id="unknown API"),
        pytest.param(METADATA, 1, b"\xff", id="a body that ends too early"),
        pytest.param(METADATA, 1, b"\x7f\xff\xff\xff", id="an array of 2^31 items"),
        pytest.param(METADATA, 9, b"\xff\xff\xff\xff\xff\xff\0", id="a length that never ends"),
    ],
)
def test_a_frame_is_met_alike(both: Both, key: int, version: int, body: bytes) -> None:
    """Pitfalls 1, 2 and 5: the same bytes, or the end of the connection."""
    assert _answer(both.ister, key, version, body) == _answer(both.kafka, key, version, body)


def _answer(broker: RunningBroker, key: int, version: int, body: bytes) -> bytes:
    frame = struct.pack(">hhih", key, version, 7, 1) + b"x" + body
    with socket.create_connection((broker.host, broker.port), SECONDS_MAX) as client:
        client.sendall(struct.pack(">i", len(frame)) + frame)
        try:
            with client.makefile("rb") as stream:
                head = stream.read(4)
                return head + stream.read(int.from_bytes(head))
        except ConnectionError:
            return b""
