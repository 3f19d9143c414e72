"""Every limit of the wire holds, costs only who exceeds it, and has a name."""

from __future__ import annotations

import asyncio
import os
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import structlog

from ister.gateway.client import ClientConnection
from ister.gateway.listeners import Address, Listener
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.messages import metadata
from ister.gateway.router import Router
from ister.gateway.server import Server
from ister.gateway.settings import BrokerSettings
from ister.gateway.tests.wire_kit import Part, Running, Wire, fetch_body, produce_body
from ister.wal.clock import ManualClock
from ister.wal.tests.batches import make_batch

LONG = os.environ.get("ISTER_LONG") == "1"
API_VERSIONS = int(ApiKey.API_VERSIONS)
MiB = 1 << 20


def serving(wire: Wire) -> bool:
    return bool(wire.call(API_VERSIONS, 0, b""))


def reasons(lines: Sequence[Mapping[str, object]]) -> list[str]:
    return [str(line["reason"]) for line in lines if line["event"] == "connection_dropped"]


def test_frame_size(tmp_path: Path) -> None:
    """socket.request.max.bytes: told by its length, before a byte of it is taken; logged once."""
    with Running(tmp_path / "d", {"socket.request.max.bytes": "5000"}) as running:
        with (
            structlog.testing.capture_logs() as lines,
            running.connect() as wire,
            running.connect() as other,
        ):
            peer = wire.socket.getsockname()
            wire.socket.sendall(struct.pack(">i", 5001))
            assert wire.is_closed_by_peer()
            assert serving(other)
            running.until(lambda broker: len(broker.server.clients) == 1)
        (line,) = [each for each in lines if each["event"] == "connection_dropped"]
        assert line["peer"] == f"{peer[0]}:{peer[1]}"
        assert "5001" in str(line["reason"])


@pytest.mark.parametrize("version", [8, 12])
def test_items_of_a_request(tmp_path: Path, version: int) -> None:
    """ister.request.items.max: arrays of one request together, counted before they are made."""
    with Running(tmp_path / "d", {"ister.request.items.max": "100"}) as running:
        with running.connect() as wire:
            topics = tuple(metadata.MetadataRequestTopic(name=f"t{n}") for n in range(100))
            asked = metadata.MetadataRequest(topics=topics, allow_auto_topic_creation=False)
            assert len(wire.request(metadata, ApiKey.METADATA, version, asked).topics) == 100
            more = asked.replace(topics=(*topics, metadata.MetadataRequestTopic(name="t")))
            wire.ask(ApiKey.METADATA, version, metadata.REQUEST.write(more, version))
            assert wire.is_closed_by_peer()
        with running.connect() as wire:
            parts = [(f"t{n}", [Part(0)]) for n in range(50)]
            assert len(wire.fetch(parts, version=version).partitions) == 50
            wire.ask(ApiKey.FETCH, version, fetch_body(version, [*parts, ("t", [Part(0)])]))
            assert wire.is_closed_by_peer()
        with running.connect() as wire:
            rows = [(f"t{n}", [(0, b"")]) for n in range(51)]
            wire.ask(ApiKey.PRODUCE, version, produce_body(version, rows))
            assert wire.is_closed_by_peer()


def test_strings_are_as_long_as_kafka_allows(wire: Wire) -> None:
    """32,767 bytes; a longer compact string is refused although its bytes are there."""
    body = b"\x02" + b"\0" * 16 + b"\x81\x80\x02" + b"x" * 32_768 + b"\0" * 4
    wire.ask(ApiKey.METADATA, 12, body)
    assert wire.is_closed_by_peer()


def test_requests_of_a_connection(tmp_path: Path) -> None:
    """ister.connection.requests.max: the rest waits in the kernel, and is answered in order."""
    with (
        Running(tmp_path / "d", {"ister.connection.requests.max": "5"}) as running,
        running.connect() as wire,
    ):
        wire.create("t")
        wire.ask(ApiKey.FETCH, 12, fetch_body(12, [("t", [Part(0)])], max_wait_ms=60_000))
        asked = [wire.ask(API_VERSIONS, 0, b"") for _ in range(50)]
        running.until(lambda broker: broker.parked.count == 1)
        (client,) = running.on_loop(lambda broker: list(broker.server.clients))
        assert running.on_loop(lambda _: client._core._outstanding) <= 5
        with running.connect() as other:
            other.produce("t", make_batch([b"v"]))
        wire.answer()
        assert [wire.answer()[0] for _ in asked] == asked


def test_request_bytes_of_a_connection(tmp_path: Path) -> None:
    """ister.connection.request.bytes.max: one request may exceed it, a second one waits."""
    limit = 100_000
    settings = {"ister.connection.request.bytes.max": str(limit)}
    with Running(tmp_path / "d", settings) as running, running.connect() as wire:
        wire.create("t")
        wire.ask(ApiKey.FETCH, 12, fetch_body(12, [("t", [Part(0)])], max_wait_ms=60_000))
        body = produce_body(9, [("t", [(1, b"x" * 60_000)])])  # no such partition: refused
        wire.socket.settimeout(0.5)
        sent = 0
        try:
            while sent < 1000:
                wire.ask(ApiKey.PRODUCE, 9, body)
                sent += 1
        except TimeoutError:
            pass
        assert sent < 1000
        (client,) = running.on_loop(lambda broker: list(broker.server.clients))
        assert running.on_loop(lambda _: client._core.in_flight_bytes) <= limit + 61_000
        assert running.on_loop(lambda broker: broker.server.memory.taken) <= limit + 200_000


def test_requests_of_all_connections(tmp_path: Path) -> None:
    """queued.max.request.bytes: frames that are not whole share it; the broker goes on."""
    with Running(tmp_path / "d", {"queued.max.request.bytes": str(MiB)}) as running:
        wires = [running.connect() for _ in range(30)]
        try:
            for wire in wires:
                wire.socket.setblocking(False)
                try:
                    wire.socket.send(struct.pack(">i", 900_000) + b"\0" * 200_000)
                except BlockingIOError:
                    continue
            running.until(lambda broker: broker.server.memory.taken >= MiB)
            taken = running.on_loop(lambda broker: broker.server.memory.taken)
            assert taken <= 2 * MiB
        finally:
            for wire in wires:
                wire.socket.close()
        running.until(lambda broker: broker.server.memory.taken == 0)
        with running.connect() as other:
            assert serving(other)


def test_connections_in_all_and_per_address(tmp_path: Path) -> None:
    """max.connections, max.connections.per.ip: one more is closed, until one leaves."""
    for name in ("max.connections", "max.connections.per.ip"):
        with Running(tmp_path / name, {name: "3"}) as running:
            wires = [running.connect() for _ in range(3)]
            assert all(serving(wire) for wire in wires)
            with running.connect() as late:
                assert late.is_closed_by_peer()
            assert running.on_loop(lambda broker: broker.server.refused) == 1
            wires.pop().socket.close()
            running.until(lambda broker: len(broker.server.clients) == 2)
            with running.connect() as late:
                assert serving(late)
            for wire in wires:
                assert serving(wire)
                wire.socket.close()


def test_only_acks_0_is_not_idle(tmp_path: Path) -> None:
    """A producer that never gets an answer is active while it sends."""
    with (
        Running(tmp_path / "d", {"connections.max.idle.ms": "1500"}) as running,
        running.connect() as wire,
    ):
        wire.create("t")
        (client,) = running.on_loop(lambda broker: list(broker.server.clients))
        before = running.on_loop(lambda _: client.last_active)
        body = produce_body(9, [("t", [(0, make_batch([b"v"]))])], acks=0)
        wire.ask(ApiKey.PRODUCE, 9, body)
        running.until(lambda _: client.last_active > before)


class SlowReader(Wire):
    """Asks for much and takes nothing."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)

    def ask_much(self, count: int) -> None:
        for _ in range(count):
            self.ask(ApiKey.FETCH, 12, fetch_body(12, [("t", [Part(0)])]))


def fill(wire: Wire) -> None:
    wire.create("t")
    for _ in range(4):
        assert wire.produce("t", make_batch([b"x" * 900_000])).error == 0


@pytest.mark.slow
def test_a_slow_reader_is_held_then_dropped(tmp_path: Path) -> None:
    """ister.send.buffer.bytes, ister.send.timeout.ms: bounded, others go on, then it is dropped."""
    settings = {"ister.send.buffer.bytes": str(MiB), "ister.send.timeout.ms": "4000"}
    with (
        structlog.testing.capture_logs() as lines,
        Running(tmp_path / "d", settings) as running,
        running.connect() as other,
    ):
        fill(other)
        slow = SlowReader(running.port)
        slow.ask_much(100)
        running.until(lambda broker: broker.server.unsent > MiB or len(broker.server.clients) == 1)
        assert running.on_loop(lambda broker: broker.server.unsent) <= 6 * MiB
        assert serving(other)
        assert other.fetch([("t", [Part(0)])]).partitions["t", 0].records
        running.until(lambda broker: len(broker.server.clients) == 1)
        assert running.on_loop(lambda broker: broker.server.unsent) == 0
        slow.socket.close()
    assert reasons(lines) == ["takes no answers"]


class Pipe(asyncio.Transport):
    """A transport of which the test says what the peer has taken."""

    def __init__(self) -> None:
        super().__init__()
        self.left = 0
        self.aborted = False
        self.closed = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("peer", 1)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.left

    def abort(self) -> None:
        self.aborted = True

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


def test_idle_connections_go() -> None:
    """connections.max.idle.ms: silence, also inside a frame; who waits for an answer is kept."""

    async def main() -> None:
        clock = ManualClock()
        settings = BrokerSettings(connections_max_idle_ms=3_000)
        server = Server(settings, cast(Router, None), clock, lambda: False)
        pipes = [Pipe() for _ in range(3)]
        silent, half, waiting = clients = [
            ClientConnection(server, Listener("L", Address("h", 1), None)) for _ in pipes
        ]
        for client, pipe in zip(clients, pipes, strict=True):
            client.connection_made(pipe)
        clock.advance(2)
        half.get_buffer(0)[:6] = struct.pack(">i", 1000) + b"\0\0"
        half.buffer_updated(6)
        waiting._running.add(cast(Any, object()))
        clock.advance(2)
        server.tick()
        assert [pipe.closed for pipe in pipes] == [True, False, False]
        clock.advance(2)
        server.tick()
        assert [pipe.closed for pipe in pipes] == [True, True, False]
        waiting._running.clear()
        server.clock.advance(1)  # type: ignore[attr-defined]
        server.tick()
        assert pipes[2].closed
        for client in (silent, half, waiting):
            client.connection_lost(None)

    asyncio.run(main())


def test_a_reader_that_is_slow_but_reads_is_kept() -> None:
    """Progress puts off the end: only who takes nothing at all for the whole time is dropped."""

    async def main() -> None:
        clock = ManualClock()
        settings = BrokerSettings(send_timeout_ms=2_000)
        server = Server(settings, cast(Router, None), clock, lambda: False)
        client = ClientConnection(server, Listener("L", Address("h", 1), None))
        pipe = Pipe()
        client.connection_made(pipe)
        pipe.left = 1_000_000
        client.count_unsent()
        for _ in range(10):
            clock.advance(1.9)
            pipe.left -= 1
            server.tick()
            assert not pipe.aborted
        assert server.unsent == pipe.left
        clock.advance(1.9)
        server.tick()
        assert not pipe.aborted
        clock.advance(0.6)
        server.tick()
        assert pipe.aborted
        client.connection_lost(None)
        assert server.unsent == 0

    asyncio.run(main())


@pytest.mark.slow
def test_answers_of_all_connections(tmp_path: Path) -> None:
    """ister.send.memory.bytes: many that take nothing do not fill the memory, nor starve others."""
    settings = {"ister.send.memory.bytes": str(8 * MiB)}
    with Running(tmp_path / "d", settings) as running, running.connect() as other:
        fill(other)
        slow = [SlowReader(running.port) for _ in range(20)]
        for each in slow:
            each.ask_much(5)
        running.until(
            lambda broker: broker.server.unsent > 8 * MiB or len(broker.server.clients) <= 20
        )
        most = 0

        def dropped(broker: object) -> bool:
            nonlocal most
            most = max(most, running.broker.server.unsent)
            return running.broker.server.unsent <= 8 * MiB

        assert other.fetch([("t", [Part(0)])]).partitions["t", 0].records
        running.until(dropped)
        assert most <= 8 * MiB + 20 * 4 * MiB
        assert serving(other)
        for each in slow:
            each.socket.close()


def test_parked_fetches(tmp_path: Path) -> None:
    """ister.parked.fetches.max: one more is answered at once, empty."""
    with (
        Running(tmp_path / "d", {"ister.parked.fetches.max": "1"}) as running,
        running.connect() as first,
        running.connect() as second,
    ):
        first.create("t")
        body = fetch_body(12, [("t", [Part(0)])], max_wait_ms=60_000)
        first.ask(ApiKey.FETCH, 12, body)
        running.until(lambda broker: broker.parked.count == 1)
        got = second.fetch([("t", [Part(0)])], max_wait_ms=60_000)
        assert got.partitions["t", 0].records == b""
        assert running.on_loop(lambda broker: broker.parked.count) == 1


def test_fetch_sessions(tmp_path: Path) -> None:
    """max.incremental.fetch.session.cache.slots: above it a client gets session 0."""
    with (
        Running(tmp_path / "d", {"max.incremental.fetch.session.cache.slots": "1"}) as running,
        running.connect() as wire,
    ):
        wire.create("t")
        assert wire.fetch([("t", [Part(0)])], session=(0, 0)).session_id > 0
        assert wire.fetch([("t", [Part(0)])], session=(0, 0)).session_id == 0


def test_many_connections(tmp_path: Path) -> None:
    """All of them are served; 2,000 in the long form."""
    count = 2_000 if LONG else 200
    with Running(tmp_path / "d") as running:
        wires: list[Wire] = []
        try:
            for _ in range(count):
                wires.append(running.connect())
            for wire in wires:
                wire.ask(API_VERSIONS, 0, b"")
            assert all(wire.answer()[1] for wire in wires)
            assert running.on_loop(lambda broker: len(broker.server.clients)) == count
        finally:
            for wire in wires:
                wire.socket.close()
        running.until(lambda broker: not broker.server.clients)


@pytest.mark.slow
def test_many_producers_at_once(tmp_path: Path) -> None:
    """Each gets its own offsets, and none is lost; 500 in the long form."""
    count, rounds = (500, 20) if LONG else (100, 5)
    with Running(tmp_path / "d") as running:
        wires = [running.connect() for _ in range(count)]
        wires[0].create("t")
        offsets: list[int] = []
        body = produce_body(9, [("t", [(0, make_batch([b"v"]))])])
        for _ in range(rounds):
            for wire in wires:
                wire.ask(ApiKey.PRODUCE, 9, body)
            for wire in wires:
                answer = wire.answer()[1]
                error, offset = struct.unpack_from(">hq", answer, 8)
                assert error == 0
                offsets.append(offset)
        assert sorted(offsets) == list(range(count * rounds))
        for wire in wires:
            wire.socket.close()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="Linux only")
def test_no_file_descriptors_left(tmp_path: Path) -> None:
    """Accepting pauses, those inside are served, and it recovers when somebody leaves."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "ister.gateway", "serve", "--listen", "127.0.0.1:0"),
            *("--data", str(tmp_path / "data"), "--http", "off"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wires: list[Wire] = []
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline().split("kafka=")[1].split()[0].rpartition(":")[2])
        inside = Wire(port)
        wires.append(inside)
        inside.create("t")
        used = len(os.listdir(f"/proc/{process.pid}/fd"))
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (used + 10, used + 10))
        wires += [Wire(port) for _ in range(20)]
        served: list[Wire] = []
        for wire in wires[1:]:
            wire.ask(API_VERSIONS, 0, b"")
        waiting = {wire.socket: wire for wire in wires[1:]}
        while len(served) < 8:
            ready, _, _ = select.select(list(waiting), [], [], 30)
            assert ready
            served += [waiting.pop(each) for each in ready]
        assert inside.produce("t", make_batch([b"v"])).error == 0
        for wire in served:
            wire.socket.close()
        (first, *_), _, _ = select.select(list(waiting), [], [], 30)
        assert waiting[first].answer()[1]
        assert inside.produce("t", make_batch([b"v"])).error == 0
    finally:
        for wire in wires:
            wire.socket.close()
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "accepting_paused" in errors
