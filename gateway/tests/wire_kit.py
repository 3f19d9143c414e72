"""A whole broker in a thread, and a client of bare sockets, for tests of the wire.

`Running` opens a real `Broker` on a loop of its own and a free port; `on_loop` looks into
it. `Wire` is one connection: it sends frames and reads answers, one at a time or
ahead. Requests are written here, for every version; answers of Produce and Fetch
are read by kio, so that what judges the bytes is not the code that wrote them.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ister.gateway.app import Options
from ister.gateway.broker import Broker
from ister.gateway.protocol.api import FLEXIBLE_FROM, ApiKey
from ister.gateway.protocol.headers import read_response_header, request_frame
from ister.gateway.protocol.messages import create_topics, metadata
from ister.gateway.protocol.writer import CompactWriter, PlainWriter
from ister.gateway.settings import Given, build, log_settings
from ister.gateway.tests import kio_entities as kio
from ister.wal.clock import Clock

SECONDS_MAX = 60
T = TypeVar("T")


class Running:
    """A broker that serves until the end of the `with`; settings under their public names."""

    def __init__(
        self, data: Path, settings: Mapping[str, str] | None = None, clock: Clock | None = None
    ) -> None:
        given = {name: Given(text, "test") for name, text in (settings or {}).items()}
        given["listeners"] = Given("127.0.0.1:0", "test")
        self._settings = build(given)
        self._options = Options(
            data=str(data), clock=clock, log=log_settings(self._settings), seed=1
        )
        self._thread = threading.Thread(target=self._run, name="broker")
        self._ready = threading.Event()
        self._failed: BaseException | None = None
        self.reports: list[BaseException] = []
        self.broker: Broker
        self.port = 0

    def __enter__(self) -> Running:
        self._thread.start()
        assert self._ready.wait(SECONDS_MAX)
        if self._failed is not None:
            self._thread.join()
            raise self._failed
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(SECONDS_MAX)
        assert not self._thread.is_alive()
        if self._failed is not None:
            raise self._failed

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failed = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self.broker = Broker(self._options, self._settings, self.reports.append)
        await self.broker.start()
        self.port = self.broker.listeners[0].bind.port
        self._ready.set()
        try:
            while not self._stop.is_set():
                self.broker.tick()
                try:
                    await asyncio.wait_for(self._stop.wait(), 0.02)
                except TimeoutError:
                    continue
        finally:
            await self.broker.close()

    def on_loop(self, ask: Callable[[Broker], T]) -> T:
        """What `ask` says of the broker, on its thread."""

        async def asked() -> T:
            return ask(self.broker)

        return asyncio.run_coroutine_threadsafe(asked(), self._loop).result(SECONDS_MAX)

    def until(self, holds: Callable[[Broker], bool]) -> None:
        """Wait until something holds of the broker."""
        pause = threading.Event()
        for _ in range(SECONDS_MAX * 100):
            if self.on_loop(holds):
                return
            pause.wait(0.01)
        raise AssertionError("it never came to hold")

    def connect(self) -> Wire:
        return Wire(self.port)


class Produced(NamedTuple):
    error: int
    base_offset: int
    message: str | None
    log_append_time_ms: int
    log_start: int


class Fetched(NamedTuple):
    error: int
    high_watermark: int
    last_stable: int
    log_start: int
    records: bytes
    aborted: Any


class FetchAnswer(NamedTuple):
    error: int
    session_id: int
    partitions: dict[tuple[str | bytes, int], Fetched]


class Part(NamedTuple):
    """One partition of a Fetch request."""

    partition: int
    offset: int = 0
    max_bytes: int = 1 << 20
    leader_epoch: int = -1


class Wire:
    """One connection."""

    def __init__(self, port: int, timeout: float = SECONDS_MAX, **options: Any) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout, **options)
        self._correlation = 0
        self._asked: dict[int, tuple[int, int]] = {}

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    # -- frames --------------------------------------------------------------------------

    def ask(self, key: int, version: int, body: bytes | bytearray) -> int:
        """Send a request; its correlation id."""
        self._correlation += 1
        self._asked[self._correlation] = (key, version)
        self.socket.sendall(request_frame(key, version, self._correlation, "test", [body]))
        return self._correlation

    def answer(self) -> tuple[int, bytes]:
        """The next answer: correlation id and body. EOFError: the broker closed."""
        frame = self._exactly(struct.unpack(">i", self._exactly(4))[0])
        key, version = self._asked[struct.unpack_from(">i", frame)[0]]
        correlation, body = read_response_header(frame, key, version)
        return correlation, bytes(body)

    def call(self, key: int, version: int, body: bytes | bytearray) -> bytes:
        asked = self.ask(key, version, body)
        correlation, answer = self.answer()
        assert correlation == asked
        return answer

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise EOFError(f"closed after {len(data)} of {size} bytes")
            data += piece
        return bytes(data)

    def is_closed_by_peer(self) -> bool:
        """Wait for the end of the stream; False: an answer came instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    # -- messages of the generated codec ---------------------------------------------------

    def request(self, module: Any, key: int, version: int, message: Any) -> Any:
        return module.RESPONSE.read(
            self.call(key, version, module.REQUEST.write(message, version)), version
        )

    def create(self, name: str, partitions: int = 1, **configs: str) -> bytes:
        """A topic; its id."""
        answer = self.request(
            create_topics,
            ApiKey.CREATE_TOPICS,
            7,
            create_topics.CreateTopicsRequest(
                timeout_ms=30_000,
                topics=(
                    create_topics.CreatableTopic(
                        name=name,
                        num_partitions=partitions,
                        replication_factor=1,
                        assignments=(),
                        configs=tuple(
                            create_topics.CreatableTopicConfig(
                                name=key.replace("_", "."), value=value
                            )
                            for key, value in configs.items()
                        ),
                    ),
                ),
            ),
        )
        (topic,) = answer.topics
        assert topic.error_code == 0, topic
        return bytes(topic.topic_id)

    def metadata(self, *names: str, version: int = 12, create: bool = False) -> Any:
        topics = tuple(metadata.MetadataRequestTopic(name=name) for name in names)
        return self.request(
            metadata,
            ApiKey.METADATA,
            version,
            metadata.MetadataRequest(topics=topics, allow_auto_topic_creation=create),
        )

    # -- Produce and Fetch -----------------------------------------------------------------

    def produce(
        self,
        topic: str | bytes,
        records: bytes | None,
        *,
        partition: int = 0,
        acks: int = -1,
        version: int = 9,
    ) -> Produced:
        body = produce_body(version, [(topic, [(partition, records)])], acks)
        answer = self.call(ApiKey.PRODUCE, version, body)
        return read_produced(version, answer)[topic, partition]

    def fetch(
        self,
        topics: Sequence[tuple[str | bytes, Sequence[Part]]],
        *,
        version: int = 12,
        **options: Any,
    ) -> FetchAnswer:
        body = fetch_body(version, topics, **options)
        return read_fetched(version, self.call(ApiKey.FETCH, version, body))


def produce_body(
    version: int,
    topics: Sequence[tuple[str | bytes, Sequence[tuple[int, bytes | None]]]],
    acks: int = -1,
    transactional_id: str | None = None,
) -> bytearray:
    out = CompactWriter() if version >= FLEXIBLE_FROM[ApiKey.PRODUCE] else PlainWriter()
    out.nullable_string(transactional_id)
    out.int16(acks)
    out.int32(30_000)
    out.items(len(topics))
    for topic, partitions in topics:
        out.uuid(topic) if isinstance(topic, bytes) else out.string(topic)
        out.items(len(partitions))
        for index, records in partitions:
            out.int32(index)
            out.bytes_size(-1 if records is None else len(records))
            out.out += records or b""
            out.no_tags()
        out.no_tags()
    out.no_tags()
    return out.out


def read_produced(version: int, body: bytes) -> dict[tuple[str | bytes, int], Produced]:
    answer = kio.read("produce", "response", version, "ProduceResponse", body)
    found: dict[tuple[str | bytes, int], Produced] = {}
    for topic in answer.responses:
        name = topic.topic_id.bytes if version >= 13 else str(topic.name)
        for each in topic.partition_responses:
            stamped = each.log_append_time
            found[name, each.index] = Produced(
                int(each.error_code),
                each.base_offset,
                getattr(each, "error_message", None),
                -1 if stamped is None else round(stamped.timestamp() * 1000),
                getattr(each, "log_start_offset", -1),
            )
    return found


def fetch_body(
    version: int,
    topics: Sequence[tuple[str | bytes, Sequence[Part]]],
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 50 << 20,
    isolation: int = 0,
    session: tuple[int, int] = (0, -1),
    forgotten: Sequence[tuple[str | bytes, Sequence[int]]] = (),
) -> bytearray:
    out = CompactWriter() if version >= FLEXIBLE_FROM[ApiKey.FETCH] else PlainWriter()
    if version < 15:
        out.int32(-1)
    out.int32(max_wait_ms)
    out.int32(min_bytes)
    out.int32(max_bytes)
    out.int8(isolation)
    if version >= 7:
        out.int32(session[0])
        out.int32(session[1])
    out.items(len(topics))
    for topic, parts in topics:
        out.uuid(topic) if isinstance(topic, bytes) else out.string(topic)
        out.items(len(parts))
        for part in parts:
            out.int32(part.partition)
            if version >= 9:
                out.int32(part.leader_epoch)
            out.int64(part.offset)
            if version >= 12:
                out.int32(-1)
            if version >= 5:
                out.int64(-1)
            out.int32(part.max_bytes)
            out.no_tags()
        out.no_tags()
    if version >= 7:
        out.items(len(forgotten))
        for topic, indexes in forgotten:
            out.uuid(topic) if isinstance(topic, bytes) else out.string(topic)
            out.items(len(indexes))
            for index in indexes:
                out.int32(index)
            out.no_tags()
    if version >= 11:
        out.string("")
    out.no_tags()
    return out.out


def read_fetched(version: int, body: bytes) -> FetchAnswer:
    answer = kio.read("fetch", "response", version, "FetchResponse", body)
    found: dict[tuple[str | bytes, int], Fetched] = {}
    for topic in answer.responses:
        name = topic.topic_id.bytes if version >= 13 else str(topic.topic)
        for each in topic.partitions:
            assert getattr(each, "preferred_read_replica", -1) == -1
            found[name, each.partition_index] = Fetched(
                int(each.error_code),
                each.high_watermark,
                each.last_stable_offset,
                getattr(each, "log_start_offset", -1),
                bytes(each.records or b""),
                each.aborted_transactions,
            )
    assert not answer.throttle_time
    return FetchAnswer(
        int(getattr(answer, "error_code", 0)), getattr(answer, "session_id", 0), found
    )
