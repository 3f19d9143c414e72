"""Strangers on the wire: mutated frames of every API, lying lengths, bombs.

After all of it the broker lives, the others were served all the while, and the memory is what
it was. Everything comes from one seed, which a failure names; `ISTER_LONG=1` sends more.
"""

from __future__ import annotations

import os
import random
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.headers import request_frame
from ister.gateway.protocol.schema import Field
from ister.gateway.router import APIS
from ister.gateway.tests.message_values import codec_of, module_of, schema_of
from ister.gateway.tests.wire_kit import Part, Running, Wire, fetch_body, produce_body
from ister.wal.tests.batches import make_batch, seal

LONG = os.environ.get("ISTER_LONG") == "1"
CORRUPTIONS = 2_000 if LONG else 100
SEED = 20_261
# How much the process may have grown: the cache of batches and what the allocator keeps.
GROWTH_BYTES_MAX = 150 << 20
MOST_UVARINT = b"\xff\xff\xff\xff\x0f"
Rng = random.Random


# -- requests that are right -----------------------------------------------------------------


def right_body(key: int, version: int, rng: Rng) -> bytes:
    """A request of this version that means something, small."""
    if key == ApiKey.PRODUCE:
        topic: Any = b"i" * 16 if version >= 13 else "t"
        rows = [(n, make_batch([b"v" * rng.randrange(50)], codec=rng.randrange(5))) for n in (0, 1)]
        return bytes(produce_body(version, [(topic, rows)], rng.choice((-1, 0, 1))))
    if key == ApiKey.FETCH:
        topic = b"i" * 16 if version >= 13 else "t"
        session = rng.choice(((0, -1), (0, 0), (5, 3)))
        forgotten: Any = [(topic, [1])]
        parts = [(topic, [Part(0), Part(1)])]
        return bytes(fetch_body(version, parts, session=session, forgotten=forgotten))
    api = ApiKey(key).name.lower()
    message = _struct(module_of(api), api, schema_of(api, "request").structs[-1].name, version, rng)
    return bytes(codec_of(api, "request").write(message, version))


def _struct(module: Any, api: str, name: str, version: int, rng: Rng) -> Any:
    struct_ = next(s for s in schema_of(api, "request").structs if s.name == name)
    cls = getattr(module, name, None) or getattr(module, "Request" + name)
    values = {}
    for field in struct_.fields:
        if version in field.versions:
            values[field.name] = _value(module, api, field, version, rng)
    return cls(**values)


def _value(module: Any, api: str, field: Field, version: int, rng: Rng) -> Any:
    if version in field.nullable and rng.random() < 0.2:
        return None

    def one() -> Any:
        if field.struct:
            return _struct(module, api, field.struct, version, rng)
        return _primitive(field.kind, rng)

    return tuple(one() for _ in range(rng.randrange(3))) if field.array else one()


def _primitive(kind: str, rng: Rng) -> Any:
    numbers: dict[str, Callable[[], Any]] = {
        "bool": lambda: rng.random() < 0.5,
        "int8": lambda: rng.choice((0, 1, -1, 127)),
        "int16": lambda: rng.choice((0, 1, -1, 32_767)),
        "int32": lambda: rng.choice((0, 1, -1, 3, 6_000, 2**31 - 1, -(2**31))),
        "int64": lambda: rng.choice((0, 1, -1, 2**63 - 1, -(2**63))),
        "uuid": lambda: rng.choice((bytes(16), b"i" * 16)),
        "string": lambda: rng.choice(("t", "", "g", "ö", "x" * 300, "consumer", "../t")),
    }
    return numbers[kind]() if kind in numbers else rng.randbytes(rng.randrange(20))


# -- and what becomes of them ----------------------------------------------------------------


def corrupt(frame: bytes, rng: Rng) -> bytes:
    """One of the ways in which bytes go wrong, with the length of the frame right or not."""
    body = bytearray(frame[4:])
    kind = rng.randrange(7)
    at = rng.randrange(len(body))
    if kind == 0:
        for _ in range(rng.randrange(1, 5)):
            body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del body[at:]
    elif kind == 2:
        body[at : at + 4] = struct.pack(">i", rng.choice((2**31 - 1, -1, -2, 2**30)))
    elif kind == 3:
        body[at : at + 1] = MOST_UVARINT
    elif kind == 4:
        body += rng.randbytes(rng.randrange(1, 40))
    elif kind == 5:
        body[at:at] = rng.randbytes(rng.randrange(1, 9))
    else:
        body = bytearray(rng.randbytes(len(body)))
        body[:2] = frame[4:6]
    size = len(body) if rng.random() < 0.9 else rng.randrange(-5, 2**31)
    return struct.pack(">i", size) + body


def throw(port: int, data: bytes) -> None:
    """Send it, say that this is all, and wait until the broker has done with it."""
    with socket.create_connection(("127.0.0.1", port), 30) as stranger, suppress(ConnectionError):
        stranger.sendall(data)
        stranger.shutdown(socket.SHUT_WR)
        while stranger.recv(65536):
            continue


def resident_bytes() -> int:
    """0 where there is no /proc."""
    if not os.path.exists("/proc/self/statm"):
        return 0
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def undisturbed(running: Running) -> Iterator[Callable[[], None]]:
    """A producer and a consumer that work all the while; memory that comes back."""
    with running.connect() as other:
        other.create("other")
        before = resident_bytes()
        count = 0

        def check() -> None:
            nonlocal count
            done = other.produce("other", make_batch([b"v%d" % count]))
            assert (done.error, done.base_offset) == (0, count)
            got = other.fetch([("other", [Part(0, count)])]).partitions["other", 0]
            assert got.error == 0
            assert got.high_watermark == count + 1
            count += 1

        check()
        yield check
        check()
        running.until(lambda broker: len(broker.server.clients) == 1)
        running.until(lambda broker: broker.server.memory.taken == 0)
        assert running.on_loop(lambda broker: broker.parked.count) == 0
        assert resident_bytes() - before < GROWTH_BYTES_MAX


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A line for each bad connection is right, and too much to read here; failures are kept."""
    failures: list[Any] = []

    class Log:
        def warning(self, event: str, **values: Any) -> None:
            assert values["reason"]

        def error(self, event: str, **values: Any) -> None:
            failures.append((event, values))

    monkeypatch.setattr("ister.gateway.client.log", Log())
    return failures


@pytest.mark.slow
@pytest.mark.parametrize("key", sorted(APIS), ids=lambda key: ApiKey(key).name.lower())
def test_mutated_requests(running: Running, quiet: list[Any], key: int) -> None:
    """A bad frame costs its connection, in every API; what fails inside would be told here."""
    rng = Rng(SEED + key)
    low, high = APIS[key].versions
    with running.connect() as wire:
        wire.create("t", 2)
    with undisturbed(running) as check:
        for number in range(CORRUPTIONS):
            version = rng.randint(low, high)
            frame = request_frame(key, version, number, "stranger", [right_body(key, version, rng)])
            throw(running.port, frame if number % 10 == 0 else corrupt(frame, rng))
            if number % 20 == 0:
                check()
    assert quiet == []
    assert [str(error) for error in running.reports] == []


def test_lengths_that_lie(running: Running) -> None:
    """Of frames: what is announced and never comes reserves next to nothing."""
    with undisturbed(running) as check:
        strangers = []
        for size in (2**31 - 1, 100_000_000, 10, 11, 0, -1, 9, 1 << 24):
            for _ in range(5):
                stranger = socket.create_connection(("127.0.0.1", running.port), 30)
                stranger.sendall(struct.pack(">i", size) + b"\0\x12")
                strangers.append(stranger)
        running.until(lambda broker: broker.server.memory.taken > 0)
        check()
        assert running.on_loop(lambda broker: broker.server.memory.taken) < 2 << 20
        for stranger in strangers:
            stranger.close()


@pytest.mark.parametrize("key", sorted(APIS), ids=lambda key: ApiKey(key).name.lower())
def test_arrays_that_claim_four_billion_items(running: Running, quiet: list[Any], key: int) -> None:
    """At every place of a request, in its oldest and its newest version."""
    rng = Rng(SEED)
    with undisturbed(running):
        for version in APIS[key].versions:
            body = right_body(key, version, rng)
            for at in range(0, len(body), max(1, len(body) // 6)):
                for lie in (MOST_UVARINT, b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff"):
                    wrong = body[:at] + lie + body[at + 4 :]
                    throw(running.port, request_frame(key, version, 1, "stranger", [wrong]))
    assert quiet == []


@pytest.mark.slow
@pytest.mark.parametrize("codec", range(1, 5))
def test_bombs(running: Running, codec: int) -> None:
    """A small batch that holds a gigabyte, on a topic whose keys are looked at: 87, and flat."""
    size = 1 << 30 if LONG else 96 << 20
    bomb = seal(bytes(size), 1, attributes=codec)
    with running.connect() as wire:
        wire.create("t", cleanup_policy="compact", max_message_bytes=str(20 << 20))
    with undisturbed(running) as check:
        wires: list[Wire] = []
        for _ in range(4):
            wire = running.connect()
            wire.ask(ApiKey.PRODUCE, 9, produce_body(9, [("t", [(0, bomb)])]))
            wires.append(wire)
        check()
        for wire in wires:
            _, answer = wire.answer()
            assert struct.unpack_from(">h", answer, 8)[0] == 87
            wire.socket.close()
        check()


@pytest.mark.slow
def test_a_bomb_is_stored_as_it_came(running: Running) -> None:
    """On a plain topic nobody opens it: neither the append, nor a fetch, nor a look-up by time."""
    bomb = seal(bytes(80 << 20), 1, attributes=1, base_timestamp=5, max_timestamp=5)
    with running.connect() as wire:
        wire.create("t")
        with undisturbed(running):
            assert wire.produce("t", bomb).error == 0
            got = wire.fetch([("t", [Part(0)])]).partitions["t", 0]
            assert got.records[16:] == bomb[16:]
            wire.socket.close()
