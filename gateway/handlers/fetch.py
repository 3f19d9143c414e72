"""Fetch, versions 4-18: what is there, or wait for it.

Whole batches, beginning with the one that contains the offset; at least one batch
however small the limits. Readers stop at the high watermark, which is durable. A
fetch that finds less than `min_bytes` parks (`dispatch/parked.py`) until its partitions
move or `max_wait_ms` is over, and then reads once more. What memory does not have any
more is read from files or the bucket off the loop; if other partitions of the fetch have
data, those do not wait for it longer than `max_wait_ms`. Every chunk is verified
(`dispatch/verify.py`): what does not continue is read again from a colder source, and
never delivered. Fetches that one commit wakes at one place share one read and one body.

Partitions are read in the order in which they were asked for, so that when there is more
than fits the client decides who comes first, as on Kafka; in a session the client does not
say, and what was told goes behind the others (`fetch_sessions.py`).

Versions: 7 sessions (KIP-227), 9 leader epochs are checked, 12 flexible, 13 topics by id.
Aborted transactions are none. Followers (replica id >= 0) are answered as consumers are.
"""

from __future__ import annotations

from ister.dispatch.parked import ParkedRead
from ister.dispatch.verify import REREADS_MAX, verified
from ister.gateway.errors import code_of
from ister.gateway.fetch_sessions import Plan, Wanted
from ister.gateway.handlers.api import Api, Buffer, Call
from ister.gateway.handlers.epochs import epoch_error
from ister.gateway.protocol import fetch as codec
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.error_codes import ErrorCode
from ister.gateway.protocol.fetch import FetchRequest, FetchResult
from ister.gateway.protocol.hot import Topic
from ister.wal.errors import LogError, StorageError
from ister.wal.partition import Partition
from ister.wal.reader import LIVE, Chunk

# Cold reads that one fetch starts at a time; the rest has its turn in the next one.
COLD_READS_MAX = 8
# A source that has not answered by then has failed for this fetch; clients wait 30 seconds.
COLD_WAIT_MAX_S = 20.0
_NO_ABORTED: list[tuple[int, int]] = []
_UNKNOWN = (int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), int(ErrorCode.UNKNOWN_TOPIC_ID))
_READ_COMMITTED = 1
_NOTHING = Chunk([], 0, 0, 0, LIVE)


def handle(call: Call, request: FetchRequest) -> None:
    context = call.context
    plan = context.fetch_sessions.begin(
        by_id=call.version >= codec.TOPIC_IDS_FROM,
        session_id=request.session_id,
        epoch=request.session_epoch,
        topics=request.topics,
        forgotten=request.forgotten,
        now=context.clock.monotonic(),
    )
    if plan.error:
        call.send(codec.write_response(call.version, 0, [], int(plan.error)), int(plan.error))
        return
    _Fetch(call, request, plan).begin()


class _Place:
    """One partition of a fetch."""

    __slots__ = (
        "asked",
        "broken_source",
        "chunk",
        "error",
        "head",
        "partition",
        "rereads",
        "wanted",
    )

    def __init__(self, wanted: Wanted, partition: Partition | None, error: int) -> None:
        self.wanted = wanted
        self.asked = wanted.asked
        self.partition = partition
        self.error = error
        self.chunk: Chunk | None = None
        self.head = -1  # up to where it was looked at
        self.broken_source = ""  # what came from there does not continue
        self.rereads = 0


class _Fetch(ParkedRead):
    """A fetch from its request to its answer."""

    __slots__ = ("_call", "_cold", "_limit", "_places", "_plan", "_request")

    def __init__(self, call: Call, request: FetchRequest, plan: Plan) -> None:
        super().__init__(call.request.client_id or "", call.client.host)
        self._call = call
        self._request = request
        self._plan = plan
        self._limit = 0
        self._cold = 0  # reads on their way
        places = self._places = [_find(call, wanted) for wanted in plan.wanted.values()]
        self.partitions = [each.partition for each in places if each.partition is not None]

    def begin(self) -> None:
        context, request = self._call.context, self._request
        if self.look():
            return
        if request.max_wait_ms <= 0:
            self._answer()
            return
        self.deadline = context.clock.monotonic() + request.max_wait_ms / 1000
        self._call.on_gone = self._gone
        if not context.parked.park(self):
            self._answer()

    # -- as a parked read ----------------------------------------------------------------

    def look(self) -> bool:
        """Read what memory has; answer if that is enough, or fetch what is colder first."""
        size, available, failed, cold = self._read()
        if cold:
            self._read_cold(cold, size)
            return True
        if failed or available >= self._request.min_bytes or not self.partitions:
            self._answer()
            return True
        heads: list[int] = []
        empty = False
        for place in self._places:
            if place.partition is not None:
                heads.append(place.head)
                empty = empty or place.head < place.partition.high_watermark
        self.heads = heads
        self.empty = empty
        return False

    @property
    def paused(self) -> bool:
        return not self._call.client.can_write

    def recreate(self) -> None:
        for place in self._places:
            place.chunk = None
            place.head = -1
            place.broken_source = ""

    def expire(self) -> None:
        size, _, _, cold = self._read()
        if cold:
            self._read_cold(cold, size)
        else:
            self._answer()

    def fail(self, error: Exception) -> None:
        self._call.client.drop(f"fetch failed: {error!r}")

    def _gone(self) -> None:
        self._call.context.parked.leave(self)

    # -- reading -------------------------------------------------------------------------

    def _read(self) -> tuple[int, int, bool, list[_Place]]:
        """(bytes found, bytes available, whether something failed, what needs a colder source).

        Batches are whole, so what was found may end below a limit that more data would fill;
        a fetch whose minimum is that limit must not wait for ever. Kafka counts so too."""
        call = self._call
        left = self._limit = min(self._request.max_bytes, call.client.answer_bytes_max)
        size = available = 0
        failed = False
        cold: list[_Place] = []
        for place in self._places:
            partition, kept = place.partition, place.chunk
            place.chunk = None
            if partition is None:
                failed = True
                continue
            if partition.removed:
                place.partition = None
                place.error = _unknown(self._call)
                failed = True
                continue
            asked = place.asked
            limit = max(0, min(left, asked.max_bytes))
            chunk: Chunk | None
            try:
                if place.head >= 0 and _is_as_it_was(place, partition, kept, limit):
                    chunk = kept or _NOTHING
                else:
                    chunk = self._read_memory(place, limit)
            except LogError as error:
                place.error = int(code_of(error))
                failed = True
                continue
            place.head = partition.high_watermark
            if chunk is None:
                cold.append(place)
            elif not chunk.size:
                # Nothing came where something is: it was looked at up to here only.
                place.head = min(place.head, asked.fetch_offset)
            elif left > 0 or not size:
                place.chunk = chunk
                size += chunk.size
                left -= chunk.size
                more = chunk.next_offset < place.head
                available += max(chunk.size, limit) if more else chunk.size
            else:
                available += asked.max_bytes
        return size, available, failed, cold

    def _read_memory(self, place: _Place, max_bytes: int) -> Chunk | None:
        """What memory has, verified; None: a colder source is needed."""
        context, partition, offset = self._call.context, place.partition, place.asked.fetch_offset
        assert partition is not None
        shared = context.parked.shared
        key = (partition, offset, max_bytes)
        if shared is not None and key in shared:
            found: Chunk | None = shared[key]
            return found
        chunk = context.log.read_now(partition, offset, max_bytes)
        if chunk is not None and chunk.size:
            chunk, gap = verified(chunk, partition, offset)
            if gap is not None:
                context.delivery.violated(self, partition, gap, chunk.source)
                if not chunk.size:
                    place.broken_source = chunk.source
                    return None
        if shared is not None:
            shared[key] = chunk
        return chunk

    def _read_cold(self, cold: list[_Place], size: int) -> None:
        context = self._call.context
        left = max(0, self._limit - size)
        if size and not left:
            self._answer()
            return
        started = cold[:COLD_READS_MAX]
        share = max(1, left // len(started))
        self._cold = len(started) + 1
        for place in started:
            assert place.partition is not None
            self._start_cold(place, share)
        self._cold_done()
        if self._cold:  # the others do not wait for a slow bucket for ever, nor does this one
            max_wait_s = max(0, self._request.max_wait_ms) / 1000
            wait_s = max_wait_s if size else max(max_wait_s, COLD_WAIT_MAX_S)
            context.timer.later(wait_s, lambda: self._answer_without(started, bool(size)))

    def _start_cold(self, place: _Place, share: int) -> None:
        asked = place.asked
        partition, context = place.partition, self._call.context
        assert partition is not None
        max_bytes = min(share, max(0, asked.max_bytes))

        def answered(chunk: Chunk | None, error: LogError | None) -> None:
            if self._call.over:
                return
            if chunk is not None and chunk.size:
                chunk, gap = verified(chunk, partition, asked.fetch_offset)
                if gap is not None:
                    context.delivery.violated(self, partition, gap, chunk.source)
                    if not chunk.size and place.rereads < REREADS_MAX:
                        place.rereads += 1
                        place.broken_source = chunk.source
                        start()
                        return
                    if not chunk.size:
                        error = StorageError(f"offset {gap.expected} is nowhere to be read")
            if error is not None:
                place.error = int(code_of(error))
                if isinstance(error, StorageError):
                    context.delivery.unreadable(partition, asked.fetch_offset, error)
            else:
                place.chunk = chunk
            self._cold_done()

        def start() -> None:
            reader, offset, broken = context.reader, asked.fetch_offset, place.broken_source
            if broken:
                reader.read_colder(partition, offset, max_bytes, broken, answered)
            else:
                reader.read(partition, offset, max_bytes, answered)

        start()

    def _cold_done(self) -> None:
        self._cold -= 1
        if self._cold == 0:
            self._answer()

    def _answer_without(self, started: list[_Place], others: bool) -> None:
        """Some have not come. With nothing else that is an error, never an empty success."""
        if self._call.over:
            return
        for place in started:
            if not others and place.chunk is None and not place.error:
                place.error = int(ErrorCode.KAFKA_STORAGE_ERROR)
        self._answer()

    # -- answering -----------------------------------------------------------------------

    def _answer(self) -> None:
        call = self._call
        if call.over:
            return
        call.on_gone = None
        self._note_sent()
        results = [(place.wanted, self._result(place)) for place in self._places]
        for place in self._places:
            place.chunk = None  # a timer may keep this fetch for a while, but not its records
        now = call.context.clock.monotonic()
        error, session_id, told = self._plan.finish(results, now)
        if len(told) == 1:
            ((wanted, result),) = told
            if not result.error_code and result.aborted is None:
                call.send(self._one(session_id, wanted.topic, result))
                return
        topics: dict[Topic, list[FetchResult]] = {}
        for wanted, result in told:
            topics.setdefault(wanted.topic, []).append(result)
        first = int(error) or next((each.error_code for _, each in told if each.error_code), 0)
        body = codec.write_response(call.version, session_id, list(topics.items()), int(error))
        call.send(body, first)

    def _note_sent(self) -> None:
        """Evidence of what was sent, and that this client reads here."""
        sent = self._call.context.sent
        for place in self._places:
            partition, chunk = place.partition, place.chunk
            if partition is not None and not place.error:
                row = sent.fetched(self.client_id, self.host, partition)
                if chunk is not None and chunk.size:
                    first = max(place.asked.fetch_offset, chunk.first_offset)
                    sent.sent(row, first, chunk.next_offset)

    def _one(self, session_id: int, topic: Topic, result: FetchResult) -> list[Buffer]:
        """The body for one partition; of one pass the same records are encoded once."""
        version = self._call.version
        shared = self._call.context.parked.shared
        if shared is None or not result.size:
            return codec.write_one(version, session_id, topic, result)
        key = (version, session_id, topic, id(result.records))  # a chunk that `shared` keeps
        body: list[Buffer] | None = shared.get(key)
        if body is None:
            body = shared[key] = codec.write_one(version, session_id, topic, result)
        return body

    def _result(self, place: _Place) -> FetchResult:
        partition, chunk = place.partition, place.chunk
        index = place.asked.partition
        if partition is None:
            # Kafka: none for what it does not know, null for what it refuses.
            aborted = _NO_ABORTED if place.error in _UNKNOWN else None
            return FetchResult(index, place.error, aborted=aborted)
        head = partition.high_watermark
        if place.error:
            # Kafka tells no offsets beside an error; a client takes none of them.
            return FetchResult(index, place.error)
        aborted = _NO_ABORTED if self._request.isolation_level == _READ_COMMITTED else None
        if chunk is None:
            return FetchResult(index, 0, head, head, partition.log_start, aborted=aborted)
        return FetchResult(
            index, 0, head, head, partition.log_start, chunk.buffers, chunk.size, aborted
        )


def _is_as_it_was(place: _Place, partition: Partition, kept: Chunk | None, limit: int) -> bool:
    """Whether nothing has changed since the last look, so that a fetch of a thousand partitions
    reads those that moved."""
    head, offset = partition.high_watermark, place.asked.fetch_offset
    if place.head != head or offset < partition.log_start:
        return False
    return offset >= head if kept is None else kept.size <= limit


def _unknown(call: Call) -> int:
    by_id = call.version >= codec.TOPIC_IDS_FROM
    return int(ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _find(call: Call, wanted: Wanted) -> _Place:
    asked = wanted.asked
    known = call.context.topic(wanted.topic)
    if known is None:
        return _Place(wanted, None, _unknown(call))
    partition = call.context.partition(known, asked.partition)
    if partition is None:
        return _Place(wanted, None, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    error = epoch_error(partition, asked.current_leader_epoch)
    return _Place(wanted, None if error else partition, int(error))


API = Api(
    key=ApiKey.FETCH,
    versions=(codec.VERSION_MIN, codec.VERSION_MAX),
    handle=handle,
    read=codec.read_request,
)
