"""The server over TCP: order of answers, what ends a connection, what a dead one leaves behind."""

from __future__ import annotations

import socket
import struct
from typing import Any

import pytest

from ister.gateway.protocol import fetch as fetch_codec
from ister.gateway.protocol import produce as produce_codec
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.messages import api_versions, metadata
from ister.gateway.router import APIS
from ister.gateway.tests.message_values import module_of
from ister.gateway.tests.wire_kit import Part, Running, Wire, fetch_body, produce_body
from ister.wal.tests.batches import make_batch

NOW_MS = 1_700_000_000_000
API_VERSIONS = int(ApiKey.API_VERSIONS)


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(wire: Wire) -> None:
    """Pitfall 1: error 35, header 0, and exactly one entry that says what to ask for."""
    wire.socket.sendall(struct.pack(">ihhihb", 11, API_VERSIONS, 99, 7, -1, 0))
    size, correlation = struct.unpack(">ii", wire._exactly(8))
    assert correlation == 7
    answer = api_versions.RESPONSE.read(wire._exactly(size - 4), 0)
    assert answer.error_code == 35
    assert [(e.api_key, e.min_version, e.max_version) for e in answer.api_keys] == [
        (API_VERSIONS, *APIS[API_VERSIONS].versions)
    ]
    assert wire.call(API_VERSIONS, 0, b"")  # the connection lives


@pytest.mark.parametrize("version", range(5))
def test_api_versions_tells_what_is_served(wire: Wire, version: int) -> None:
    """Pitfall 2: what is advertised is what is decoded, for every API."""
    asked = api_versions.ApiVersionsRequest(client_software_name="t", client_software_version="1")
    answer = wire.request(api_versions, API_VERSIONS, version, asked)
    assert answer.error_code == 0
    told = {e.api_key: (e.min_version, e.max_version) for e in answer.api_keys}
    assert told.keys() == APIS.keys()
    produce = told.pop(int(ApiKey.PRODUCE))
    assert produce == (0, produce_codec.VERSION_MAX)  # G7: librdkafka before 2.12 needs the 0
    fetch = told.pop(int(ApiKey.FETCH))
    assert fetch == (fetch_codec.VERSION_MIN, fetch_codec.VERSION_MAX)
    for key, (low, high) in told.items():
        codec: Any = module_of(ApiKey(key).name.lower()).REQUEST
        assert codec.version_min <= low <= high <= codec.version_max


@pytest.mark.parametrize(
    ("key", "version"),
    [
        (999, 0),
        (int(ApiKey.METADATA), 99),
        (int(ApiKey.PRODUCE), 2),
        (int(ApiKey.SASL_HANDSHAKE), 1),
    ],
)
def test_what_is_not_served_ends_the_connection(running: Running, key: int, version: int) -> None:
    """G3: no guessed layout; others do not notice."""
    with running.connect() as other, running.connect() as wire:
        frame = struct.pack(">hhih", key, version, 1, -1) + b"\0"
        wire.socket.sendall(struct.pack(">i", len(frame)) + frame)
        assert wire.is_closed_by_peer()
        assert other.call(API_VERSIONS, 0, b"")


def test_librdkafka_asks_for_all_topics(wire: Wire) -> None:
    """Its request is three bytes too long; Kafka answers it, and so does this broker."""
    wire.create("t")
    body = wire.call(ApiKey.METADATA, 13, bytes.fromhex("00000000 01 00 00"))
    answer = metadata.RESPONSE.read(body, 13)
    assert [topic.name for topic in answer.topics] == ["t"]


def test_what_was_asked_before_a_bad_frame_is_answered(wire: Wire) -> None:
    """A bad frame ends the connection behind what came before it."""
    wire.create("t")
    batch = make_batch([b"v"])
    wire.ask(ApiKey.PRODUCE, 9, produce_body(9, [("t", [(0, batch)])]))
    wire.socket.sendall(struct.pack(">i", -5))
    _, answer = wire.answer()
    assert answer
    assert wire.is_closed_by_peer()


def test_answers_leave_in_the_order_of_requests(wire: Wire) -> None:
    """Pitfall 4: many produces overlap; a long poll and what is behind it wait their turn."""
    wire.create("t")
    asked = []
    for number in range(50):
        batch = make_batch([b"v%d" % number])
        asked.append(wire.ask(ApiKey.PRODUCE, 9, produce_body(9, [("t", [(0, batch)])])))
    body = fetch_body(12, [("t", [Part(0, 50)])], max_wait_ms=300)
    asked.append(wire.ask(ApiKey.FETCH, 12, body))
    asked.append(wire.ask(API_VERSIONS, 0, b""))
    batch = make_batch([b"last"])
    asked.append(wire.ask(ApiKey.PRODUCE, 9, produce_body(9, [("t", [(0, batch)])])))
    assert [wire.answer()[0] for _ in asked] == asked


def test_acks_0_is_never_answered(wire: Wire) -> None:
    """Pitfall 4: no answer, no place in the queue of answers, and the record is there."""
    wire.create("t")
    for number in range(10):
        batch = make_batch([b"v%d" % number])
        wire.ask(ApiKey.PRODUCE, 9, produce_body(9, [("t", [(0, batch)])], acks=0))
    assert wire.produce("t", make_batch([b"end"])).base_offset == 10


def test_a_request_that_waits_holds_only_its_own_connection(running: Running) -> None:
    """A long poll of a minute: another connection is served meanwhile."""
    with running.connect() as waiting, running.connect() as other:
        other.create("t")
        waiting.ask(ApiKey.FETCH, 12, fetch_body(12, [("t", [Part(0)])], max_wait_ms=60_000))
        running.until(lambda broker: broker.parked.count == 1)
        assert other.produce("t", make_batch([b"v"])).error == 0
        assert waiting.answer()[1]


def test_a_dead_connection_leaves_nothing_behind(running: Running) -> None:
    """Pitfall 30: parked fetch, queued requests and their memory are gone with it."""
    with running.connect() as wire:
        wire.create("t")
        wire.ask(ApiKey.FETCH, 12, fetch_body(12, [("t", [Part(0)])], max_wait_ms=60_000))
        for _ in range(20):
            wire.ask(API_VERSIONS, 0, b"")
        running.until(lambda broker: broker.parked.count == 1)
        assert running.on_loop(lambda broker: broker.server.memory.taken) > 0
    running.until(lambda broker: not broker.server.clients)
    assert running.on_loop(lambda broker: broker.server.memory.taken) == 0
    running.until(lambda broker: broker.parked.count == 0)
    assert running.on_loop(lambda broker: not broker.parked.waiting)


def test_a_reset_in_the_middle_of_an_answer(running: Running) -> None:
    """The broker is writing when the peer resets: that connection ends, the broker goes on."""
    with running.connect() as wire, running.connect() as other:
        wire.create("t")
        wire.produce("t", make_batch([b"x" * 900_000]))
        for _ in range(30):
            wire.ask(ApiKey.FETCH, 12, fetch_body(12, [("t", [Part(0)])]))
        linger = struct.pack("ii", 1, 0)
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        wire.socket.close()
        running.until(lambda broker: len(broker.server.clients) == 1)
        assert other.produce("t", make_batch([b"v"])).error == 0
        assert running.on_loop(lambda broker: broker.server.memory.taken) == 0
    assert not running.reports


def test_half_a_frame_and_then_the_end(running: Running) -> None:
    """The stream ends inside a frame: nothing is dispatched, the memory comes back."""
    with running.connect() as wire:
        wire.socket.sendall(struct.pack(">i", 50_000) + b"\0" * 1000)
        running.until(lambda broker: broker.server.memory.taken > 0)
        wire.socket.shutdown(socket.SHUT_WR)
        assert wire.is_closed_by_peer()
    running.until(lambda broker: broker.server.memory.taken == 0)
