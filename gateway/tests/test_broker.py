"""A whole broker: what its end does to those who wait, and what is there after a restart."""

from __future__ import annotations

import threading
from pathlib import Path

from ister.gateway.protocol.api import ApiKey
from ister.gateway.tests.wire_kit import (
    Part,
    Running,
    fetch_body,
    produce_body,
    read_fetched,
    read_produced,
)
from ister.wal.tests.batches import make_batch


def test_closing_answers_what_is_in_hand(tmp_path: Path) -> None:
    """A parked reader is answered at once, a producer gets its acks, then the connection ends."""
    running = Running(tmp_path / "d")
    with running:
        reader, writer = running.connect(), running.connect()
        writer.create("t", 2)
        reader.ask(ApiKey.FETCH, 12, fetch_body(12, [("t", [Part(1)])], max_wait_ms=60_000))
        running.until(lambda broker: broker.parked.count == 1)
        body = produce_body(9, [("t", [(0, make_batch([b"v"]))])])
        for _ in range(20):
            writer.ask(ApiKey.PRODUCE, 9, body)
        assert read_produced(9, writer.answer()[1])["t", 0].error == 0
    got = read_fetched(12, reader.answer()[1]).partitions["t", 1]
    assert (got.error, got.records) == (0, b"")
    assert reader.is_closed_by_peer()
    reader.socket.close()
    writer.socket.close()


def test_closing_sends_a_large_answer_to_its_end(tmp_path: Path) -> None:
    """Megabytes that the client had not taken yet when the broker was told to stop."""
    with Running(tmp_path / "d") as running:
        wire = running.connect()
        wire.create("t")
        for _ in range(8):
            wire.produce("t", make_batch([b"x" * 1_000_000]))
        wire.ask(ApiKey.FETCH, 12, fetch_body(12, [("t", [Part(0, max_bytes=50 << 20)])]))
        running.until(lambda broker: broker.server.unsent > 0)
        answers: list[bytes] = []
        taking = threading.Thread(target=lambda: answers.append(wire.answer()[1]))
        taking.start()
    taking.join()
    assert len(answers[0]) > 8_000_000
    wire.socket.close()


def test_what_was_acked_is_there_again(tmp_path: Path) -> None:
    """Records, offsets and the id of the topic, under the same name."""
    with Running(tmp_path / "d") as running, running.connect() as wire:
        topic_id = wire.create("t")
        for number in range(5):
            assert wire.produce("t", make_batch([b"v%d" % number])).base_offset == number
    with Running(tmp_path / "d") as running, running.connect() as wire:
        assert wire.metadata("t").topics[0].topic_id == topic_id
        got = wire.fetch([(topic_id, [Part(0, 3)])], version=13).partitions[topic_id, 0]
        assert got.high_watermark == 5
        assert got.records
        assert wire.produce("t", make_batch([b"next"])).base_offset == 5


def test_a_duplicate_is_known_after_a_restart(tmp_path: Path) -> None:
    """Pitfall 15: the retry of a batch whose answer was lost with the broker."""
    batch = make_batch([b"v"], producer_id=7, producer_epoch=0, base_sequence=0)
    following = make_batch([b"w"], producer_id=7, producer_epoch=0, base_sequence=1)
    with Running(tmp_path / "d") as running, running.connect() as wire:
        wire.create("t")
        assert wire.produce("t", batch).base_offset == 0
    with Running(tmp_path / "d") as running, running.connect() as wire:
        assert wire.produce("t", batch).base_offset == 0
        assert wire.produce("t", following).base_offset == 1


def test_sessions_end_with_the_broker(tmp_path: Path) -> None:
    """A client that comes back with its old session is told to begin anew."""
    with Running(tmp_path / "d") as running, running.connect() as wire:
        wire.create("t")
        session = wire.fetch([("t", [Part(0)])], session=(0, 0)).session_id
    with Running(tmp_path / "d") as running, running.connect() as wire:
        assert wire.fetch([], session=(session, 1)).error == 70
