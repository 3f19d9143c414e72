"""The connection core: frames out of any pieces, answers in order, memory in bounds."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ister.gateway.connection import (
    OWN_BUFFER_BYTES_FIRST,
    Connection,
    ConnectionLimits,
    Memory,
    Slot,
)
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.headers import Request, request_frame

PLENTY = 1 << 30
SHARED_BYTES = 4096


class Peer:
    """Feeds a connection as a socket would, in pieces that fit its buffer."""

    def __init__(
        self,
        memory: int = PLENTY,
        limits: ConnectionLimits | None = None,
        shared: int = SHARED_BYTES,
    ) -> None:
        self.shared = memoryview(bytearray(shared))
        self.memory = Memory(memory)
        self.core = Connection(self.shared, self.memory, limits)

    def send(self, data: bytes, piece: int = 1 << 30) -> list[Request]:
        """Everything, whatever `paused` says of it."""
        found: list[Request] = []
        while data:
            buffer = self.core.get_buffer()
            count = min(piece, len(buffer), len(data))
            assert count
            buffer[:count] = data[:count]
            data = data[count:]
            found += self.core.received(count)
            self.shared[:] = b"\xee" * len(self.shared)  # the next reader's bytes
        return found


def frame(
    correlation_id: int, body: bytes = b"", key: int = ApiKey.PRODUCE, version: int = 9
) -> bytes:
    return request_frame(key, version, correlation_id, "client", [body])


def sent(buffers: list[bytes | bytearray | memoryview]) -> bytes:
    return b"".join(buffers)


@settings(max_examples=150, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 3 * SHARED_BYTES) | st.integers(0, 20), max_size=8),
    piece=st.integers(1, 5000),
    shared=st.sampled_from([16, 300, SHARED_BYTES]),
)
def test_any_pieces_give_the_same_requests(sizes: list[int], piece: int, shared: int) -> None:
    """However the stream is cut, the same requests come out, whole and in order."""
    peer = Peer(shared=shared)
    bodies = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    stream = b"".join(frame(number, body) for number, body in enumerate(bodies))
    found = peer.send(stream, piece)
    assert [(r.correlation_id, bytes(r.body)) for r in found] == list(enumerate(bodies))
    assert all(r[:2] == (0, 9) and r.client_id == "client" for r in found)
    assert peer.memory.taken == peer.core.in_flight_bytes == sum(r.size for r in found)
    assert peer.core.error is None


def test_byte_by_byte() -> None:
    """A request is complete with its last byte and not before."""
    peer = Peer()
    data = frame(7, b"body")
    for position in range(len(data) - 1):
        assert peer.send(data[position : position + 1]) == []
    (request,) = peer.send(data[-1:])
    assert bytes(request.body) == b"body"


def test_no_view_of_the_shared_buffer_is_kept() -> None:
    """Pitfall 8: the next read must not change a request that was handed out."""
    peer = Peer()
    (request,) = peer.send(frame(1, b"first"))
    peer.shared[:] = b"\0" * SHARED_BYTES
    assert bytes(request.body) == b"first"


def test_large_frame_is_read_in_place() -> None:
    """A frame that does not fit is one writable buffer, of which the body is a view."""
    peer = Peer()
    (request,) = peer.send(frame(1, b"x" * 100_000))
    assert isinstance(request.body.obj, bytearray)
    assert not request.body.readonly


def test_a_claim_reserves_nothing() -> None:
    """A few bytes that announce 100 MB take kilobytes; memory follows what has arrived."""
    size = 100_000_000
    peer = Peer()
    peer.send(struct.pack(">i", size))
    assert peer.memory.taken <= OWN_BUFFER_BYTES_FIRST
    peer.send(b"\0" * 100_000, 1000)
    assert peer.memory.taken <= 5 * 100_000
    split = Peer()
    split.send(struct.pack(">i", size)[:2])
    split.send(struct.pack(">i", size)[2:] + b"\0" * 10)
    assert split.memory.taken <= OWN_BUFFER_BYTES_FIRST


def test_a_peer_that_sent_a_large_frame_gets_its_buffer_at_once() -> None:
    """The second frame of that size is not grown step by step."""
    peer = Peer()
    first = frame(1, b"x" * 200_000)
    (request,) = peer.send(first)
    peer.core.forget(request)
    peer.send(first[: SHARED_BYTES // 2])
    assert len(peer.core.get_buffer()) > 190_000


@pytest.mark.parametrize("size", [-1, 0, 9, 104_857_601, 2**31 - 1, -(2**31)])
def test_frames_outside_the_limits_cost_the_connection(size: int) -> None:
    """Refused by the length alone; requests before it still count, those behind do not."""
    for piece in (1, 1000):
        peer = Peer()
        found = peer.send(frame(1) + struct.pack(">i", size) + frame(2), piece)
        assert [r.correlation_id for r in found] == [1]
        assert peer.core.error is not None
        assert peer.core.paused
        assert peer.send(frame(3)) == []
        peer.core.forget(found[0])
        assert peer.memory.taken == 0


@pytest.mark.parametrize(
    "header",
    [
        struct.pack(">hhih", 4, 0, 1, -1),  # between brokers
        struct.pack(">hhih", 999, 0, 1, -1),
        struct.pack(">hhih", -1, 0, 1, -1),
        struct.pack(">hhih", 3, -1, 1, -1),
        struct.pack(">hhih", 3, 0, 1, -2),
        struct.pack(">hhih", 3, 0, 1, 5) + b"abc",
        struct.pack(">hhih", 3, 9, 1, -1),  # flexible, but no tags
        struct.pack(">hhih", 3, 9, 1, -1) + b"\x01",
        struct.pack(">hhih", 3, 9, 1, -1) + b"\x01\x00\x05ab",
        struct.pack(">hhih", 3, 9, 1, -1) + b"\xff\xff\xff\xff\x0f",
    ],
)
def test_bad_headers_cost_the_connection(header: bytes) -> None:
    """Unknown keys, negative versions, lying lengths: an error, never an exception."""
    peer = Peer()
    assert peer.send(struct.pack(">i", len(header)) + header) == []
    assert peer.core.error is not None


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=300), piece=st.integers(1, 50))
def test_arbitrary_bytes(data: bytes, piece: int) -> None:
    """Requests, an error, or neither yet; no exception, and memory adds up."""
    peer = Peer()
    found = peer.send(data, piece)
    for request in found:
        peer.core.forget(request)
    peer.core.close()
    assert peer.memory.taken == 0


def test_header_of_flexible_requests_may_have_tags() -> None:
    """Unknown tagged fields of a header are skipped; a client id may be null or odd bytes."""
    header = struct.pack(">hhih", 3, 9, 5, 2) + b"\xff\xfe" + b"\x01\x07\x02ab" + b"rest"
    peer = Peer()
    (request,) = peer.send(struct.pack(">i", len(header)) + header)
    assert bytes(request.body) == b"rest"
    assert request.client_id == "\ufffd\ufffd"
    plain = struct.pack(">hhih", 3, 8, 5, -1) + b"rest"
    (request,) = peer.send(struct.pack(">i", len(plain)) + plain)
    assert (request.client_id, bytes(request.body)) == (None, b"rest")


def test_stream_that_ends_inside_a_frame() -> None:
    """Cleanly between frames, an error inside one."""
    peer = Peer()
    peer.send(frame(1))
    peer.core.end_of_stream()
    assert peer.core.error is None
    peer = Peer()
    peer.send(frame(1)[:-1])
    peer.core.end_of_stream()
    assert peer.core.error is not None
    assert peer.memory.taken == 0


# -- answers -----------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(order=st.permutations(range(6)))
def test_answers_leave_in_request_order(order: list[int]) -> None:
    """Pitfall 4: filled in any order, sent in the order of the requests."""
    peer = Peer()
    requests = peer.send(b"".join(frame(n) for n in range(6)))
    slots = [peer.core.owe(request) for request in requests]
    out = b""
    for number in order:
        ready = slots[number].fill([b"answer %d" % number])
        more = sent(peer.core.take_ready())
        assert ready == bool(more)
        out += more
    expected = b"".join(
        struct.pack(">iib", 13, n, 0) + b"answer %d" % n for n in range(6)
    )  # the flexible header has one byte of tags
    assert out == expected
    assert peer.memory.taken == 0


def test_acks_0_owes_nothing_and_holds_nobody() -> None:
    """Pitfall 4: what is forgotten leaves no gap in the order."""
    peer = Peer()
    first, second, third = peer.send(frame(1) + frame(2) + frame(3))
    one = peer.core.owe(first)
    peer.core.forget(second)
    three = peer.core.owe(third)
    assert not three.fill([b"c"])
    assert one.fill([b"a"])
    assert sent(peer.core.take_ready()).count(b"\0\0\0\x06") == 2
    assert peer.memory.taken == 0


def test_head_of_answers() -> None:
    """G2: flexible answers have a tag buffer in the header, ApiVersions never."""
    peer = Peer()
    for key, version, tags in (
        (ApiKey.API_VERSIONS, 3, b""),
        (ApiKey.API_VERSIONS, 99, b""),
        (ApiKey.METADATA, 8, b""),
        (ApiKey.METADATA, 9, b"\0"),
        (ApiKey.OFFSET_DELETE, 0, b""),
        (ApiKey.DESCRIBE_CLUSTER, 0, b"\0"),
    ):
        (request,) = peer.send(frame(77, b"", key, version))
        peer.core.owe(request).fill([b"bo", b"dy"])
        expected = struct.pack(">ii", 8 + len(tags), 77) + tags + b"body"
        assert sent(peer.core.take_ready()) == expected


def test_a_request_is_answered_once() -> None:
    """A second answer is our own mistake and never reaches the wire."""
    peer = Peer()
    (request,) = peer.send(frame(1))
    slot = peer.core.owe(request)
    slot.fill([b"a"])
    with pytest.raises(AssertionError):
        slot.fill([b"b"])


def test_answers_after_the_end_go_nowhere() -> None:
    """Pitfall 30: a closed connection holds no memory, and late answers are harmless."""
    peer = Peer()
    (request,) = peer.send(frame(1) + frame(2)[:-1])
    slot = peer.core.owe(request)
    peer.core.close()
    peer.core.close()
    assert peer.memory.taken == 0
    assert not slot.fill([b"late"])
    assert peer.core.take_ready() == []
    assert peer.send(frame(3)) == []
    assert peer.memory.taken == 0


# -- limits ------------------------------------------------------------------------


def drain(peer: Peer, slots: list[Slot]) -> None:
    for slot in slots:
        slot.fill([b""])
    peer.core.take_ready()


def test_too_many_owed_answers_pause_reading() -> None:
    """Never more requests are out than the limit; the rest waits and comes in order."""
    peer = Peer(limits=ConnectionLimits(owed_max=3))
    found = peer.send(b"".join(frame(n) for n in range(8)) + frame(8)[:7])
    seen = []
    while found:
        assert len(found) <= 3
        assert peer.core.paused == (len(found) == 3)
        seen += [r.correlation_id for r in found]
        assert peer.core.more() == [] or not peer.core.paused
        drain(peer, [peer.core.owe(request) for request in found])
        found = peer.core.more()
    assert seen == list(range(8))
    (last,) = peer.send(frame(8)[7:])
    assert last.correlation_id == 8


def test_an_answer_counts_until_it_has_left() -> None:
    """A client that never reads is not read from any more."""
    peer = Peer(limits=ConnectionLimits(owed_max=1))
    (request,) = peer.send(frame(1))
    peer.core.owe(request).fill([b"answer"])
    assert peer.core.paused
    peer.core.take_ready()
    assert not peer.core.paused


def test_bytes_in_flight_pause_reading() -> None:
    """One frame may be larger than the limit, a second one waits."""
    peer = Peer(limits=ConnectionLimits(in_flight_bytes_max=1000))
    (request,) = peer.send(frame(1, b"x" * 2000) + frame(2))
    assert peer.core.paused
    assert peer.core.more() == []
    peer.core.forget(request)
    assert not peer.core.paused
    (second,) = peer.core.more()
    assert second.correlation_id == 2


def test_bytes_read_in_spite_of_a_pause_wait_in_order() -> None:
    """A read that was already under way when the pause came is not lost."""
    peer = Peer(limits=ConnectionLimits(owed_max=1))
    (request,) = peer.send(frame(1) + frame(2) + frame(3)[:5])
    assert peer.send(frame(3)[5:]) == []
    seen = []
    while True:
        peer.core.forget(request)
        found = peer.core.more()
        if not found:
            break
        (request,) = found
        seen.append(request.correlation_id)
    assert seen == [2, 3]


def test_memory_of_all_connections_is_shared() -> None:
    """A frame does not grow while others have used up the memory; then it goes on."""
    memory = Memory(200_000)
    shared = memoryview(bytearray(SHARED_BYTES))
    one, two = Connection(shared, memory), Connection(shared, memory)

    def feed(core: Connection, data: bytes) -> list[Request]:
        found: list[Request] = []
        while data and not core.paused:
            buffer = core.get_buffer()
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            data = data[count:]
            found += core.received(count)
        rest.append(data)
        return found

    rest: list[bytes] = []
    (big,) = feed(one, frame(1, b"x" * 150_000))
    assert feed(two, frame(2, b"y" * 150_000)) == []
    assert two.paused
    assert memory.taken < 200_000 + 4 * 50_000
    one.forget(big)
    assert not two.paused
    assert two.more() == []
    (second,) = feed(two, rest[-1])
    assert bytes(second.body[:3]) == b"yyy"
    two.forget(second)
    assert memory.taken == 0


def test_frames_that_have_begun_do_not_wait_for_each_other() -> None:
    """All memory is held by halves of frames: one after the other comes to its end."""
    memory = Memory(200_000)
    shared = memoryview(bytearray(SHARED_BYTES))
    cores = [Connection(shared, memory) for _ in range(6)]
    left = [frame(number, b"x" * 100_000) for number in range(6)]
    done: list[int] = []
    most = 0
    for _ in range(10_000):
        for number, core in enumerate(cores):
            found = core.more()
            if not core.paused and left[number]:
                buffer = core.get_buffer()
                assert len(buffer)
                count = min(len(buffer), len(left[number]), 3_000)
                buffer[:count] = left[number][:count]
                left[number] = left[number][count:]
                found += core.received(count)
            for request in found:
                done.append(request.correlation_id)
                core.forget(request)
            most = max(most, memory.taken)
    assert sorted(done) == list(range(6))
    assert most <= 200_000 + 2 * 100_100
    assert memory.taken == memory.partial == 0


def test_a_length_waits_for_room_too() -> None:
    """Who has sent a large frame gets no buffer for the next one while memory is used up."""
    memory = Memory(200_000)
    shared = memoryview(bytearray(SHARED_BYTES))
    core, other = Connection(shared, memory), Connection(shared, memory)

    def feed(data: bytes) -> list[Request]:
        buffer = core.get_buffer()
        buffer[: len(data)] = data
        return core.received(len(data))

    found: list[Request] = []
    large = frame(1, b"x" * 150_000)
    while large:
        count = min(len(core.get_buffer()), len(large))
        found += feed(large[:count])
        large = large[count:]
    core.forget(found[0])
    assert feed(frame(2, b"x" * 150_000)[:2]) == []
    memory.taken += 200_000
    assert feed(frame(2, b"x" * 150_000)[2:4]) == []
    assert core.paused
    assert memory.taken <= 200_000 + 4
    memory.taken -= 200_000
    assert not core.paused
    assert core.more() == []
    assert memory.taken >= 150_000
    other.close()
    core.close()
    assert memory.taken == 0
