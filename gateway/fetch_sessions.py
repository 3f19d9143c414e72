"""Fetch sessions (KIP-227): what a consumer has told, so that it need not tell it again.

A full request (epoch 0) opens a session and is answered in full; from then on the
client names only what changed and what it forgets, and is told only of partitions that
have records, an error, or another high watermark or log start than it knows. Epochs
count the requests of a session: 1, 2, ... and 1 again behind the largest int32.

| request                     | answer                                                     |
|-----------------------------|------------------------------------------------------------|
| session 0, epoch -1         | in full, no session                                        |
| any session, epoch 0        | that session closes; in full, a new session if there is room|
| session n, epoch -1         | that session closes; in full, no session                   |
| n is not known              | FETCH_SESSION_ID_NOT_FOUND, session 0                      |
| n with another epoch        | INVALID_FETCH_SESSION_EPOCH, session 0                     |
| ids in a session of names or names in one of ids, or a name that is another topic now:  |
|                             | FETCH_SESSION_TOPIC_ID_ERROR, session 0                    |
| nothing left to fetch       | the session closes; in full, no session                    |
| answered out of turn        | INVALID_FETCH_SESSION_EPOCH, session n                     |

After every such error a client begins with a full request. Topics are known by id: a
session by name remembers which topic each name was. Partitions that were told move behind
the others, so that a full answer does not always end before the same ones.

Room is made as Kafka makes it: the least recently used session goes if it was not used for
two minutes; otherwise the smallest of those that were opened more than two minutes ago, if
it is not larger than the new one. A connection that dies leaves its session behind, as it may
come back. Kafka prefers sessions of followers; there are none here.

Pure: time and chance are handed in. `handlers/fetch.py` reads the log and answers.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

from ister.gateway.protocol.error_codes import ErrorCode
from ister.gateway.protocol.fetch import FetchPartition, FetchResult
from ister.gateway.protocol.hot import Topic

NO_SESSION: Final = 0
EPOCH_OPEN: Final = 0
EPOCH_CLOSE: Final = -1
# Kafka's MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS.
EVICTION_S: Final = 120.0
_INT32_MAX: Final = 2**31 - 1

Topics = Sequence[tuple[Topic, Sequence[FetchPartition]]]
Forgotten = Sequence[tuple[Topic, Sequence[int]]]


def next_epoch(epoch: int) -> int:
    return 1 if epoch == _INT32_MAX else epoch + 1


class Wanted:
    """A partition that a client fetches: how, and what it was told of it last."""

    __slots__ = ("asked", "high_watermark", "log_start", "topic", "topic_id")

    def __init__(self, topic: Topic, asked: FetchPartition) -> None:
        self.topic = topic
        self.asked = asked
        self.topic_id: bytes | None = None  # of a name, once it was seen to be a topic
        self.high_watermark = -1
        self.log_start = -1

    def tell(self, result: FetchResult) -> bool:
        """Note what the client is told; False: it knows all of that already."""
        _, error, high_watermark, _, log_start, _, size = result[:7]
        known = (
            not size
            and not error
            and high_watermark == self.high_watermark
            and log_start == self.log_start
        )
        # Behind an error everything is news again.
        self.high_watermark = -1 if error else high_watermark
        self.log_start = log_start
        return not known


class Session:
    """Invariants: `epoch` is that of the next request, `wanted` is not empty."""

    __slots__ = ("by_id", "epoch", "id", "opened_at", "used_at", "wanted")

    def __init__(
        self, session_id: int, by_id: bool, wanted: dict[tuple[Topic, int], Wanted], now: float
    ) -> None:
        self.id = session_id
        self.by_id = by_id
        self.wanted = wanted
        self.epoch = next_epoch(EPOCH_OPEN)
        self.opened_at = now
        self.used_at = now


class Plan:
    """What one request is to be answered with: `error` alone, or all of `wanted`."""

    __slots__ = ("_epoch", "_opens", "_session", "_sessions", "by_id", "error", "wanted")

    def __init__(
        self,
        sessions: FetchSessions,
        by_id: bool,
        wanted: dict[tuple[Topic, int], Wanted],
        *,
        error: ErrorCode = ErrorCode.NONE,
        session: Session | None = None,
        opens: bool = False,
    ) -> None:
        self._sessions = sessions
        self._session = session
        self._epoch = 0 if session is None else session.epoch
        self._opens = opens
        self.by_id = by_id
        self.error = error
        self.wanted = wanted

    def finish(
        self, results: list[tuple[Wanted, FetchResult]], now: float
    ) -> tuple[ErrorCode, int, list[tuple[Wanted, FetchResult]]]:
        """(error, session id, what the answer has) once everything wanted was read."""
        session = self._session
        if session is None:
            if not self._opens:
                return ErrorCode.NONE, NO_SESSION, results
            served = [wanted for wanted, result in results if wanted.tell(result) and result.size]
            _put_last(self.wanted, served)
            return ErrorCode.NONE, self._sessions.open(self.by_id, self.wanted, now), results
        if session.epoch != self._epoch:  # the client did not wait for this answer
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.id, []
        told = [each for each in results if each[0].tell(each[1])]
        _put_last(session.wanted, [wanted for wanted, _ in told])
        return ErrorCode.NONE, session.id, told


class FetchSessions:
    """All sessions of a broker: at most `slots`, with at most `partitions_max` in all."""

    def __init__(
        self,
        slots: int,
        partitions_max: int,
        rng: random.Random,
        topic_id_of: Callable[[str], bytes | None],
    ) -> None:
        self._slots = slots
        self._partitions_max = partitions_max
        self._rng = rng
        self._topic_id_of = topic_id_of
        self._sessions: OrderedDict[int, Session] = OrderedDict()  # least recently used first
        self.partitions = 0
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self,
        *,
        by_id: bool,
        session_id: int,
        epoch: int,
        topics: Topics,
        forgotten: Forgotten,
        now: float,
    ) -> Plan:
        """What to read for a request."""
        if epoch in (EPOCH_OPEN, EPOCH_CLOSE):
            if session_id != NO_SESSION:
                self._close(session_id)
            wanted = _wanted(topics)
            opens = epoch == EPOCH_OPEN and self._slots > 0
            if opens and not by_id:
                self._identify(wanted)
            return Plan(self, by_id, wanted, opens=opens)
        session = self._sessions.get(session_id)
        if session is None:
            return self._refuse(by_id, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            return self._refuse(by_id, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != by_id:
            return self._refuse(by_id, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        return self._continue(session, topics, forgotten, now)

    def _continue(self, session: Session, topics: Topics, forgotten: Forgotten, now: float) -> Plan:
        before = len(session.wanted)
        _change(session.wanted, topics, forgotten)
        self.partitions += len(session.wanted) - before
        if not session.wanted:
            self._close(session.id)
            return Plan(self, session.by_id, _wanted(topics))
        if not session.by_id and not self._identify(session.wanted):
            self._close(session.id)
            return self._refuse(session.by_id, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if self.partitions > self._partitions_max:
            self._close(session.id)
            return self._refuse(session.by_id, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.used_at = now
        self._sessions.move_to_end(session.id)
        session.epoch = next_epoch(session.epoch)
        return Plan(self, session.by_id, session.wanted, session=session)

    def open(self, by_id: bool, wanted: dict[tuple[Topic, int], Wanted], now: float) -> int:
        """The id of a new session, or NO_SESSION if there is no room."""
        if not wanted or self.partitions + len(wanted) > self._partitions_max:
            return NO_SESSION
        if len(self._sessions) >= self._slots and not self._evict(len(wanted), now):
            return NO_SESSION
        session_id = self._rng.randrange(1, _INT32_MAX)
        while session_id in self._sessions:
            session_id = self._rng.randrange(1, _INT32_MAX)
        self._sessions[session_id] = Session(session_id, by_id, wanted, now)
        self.partitions += len(wanted)
        return session_id

    def _evict(self, size: int, now: float) -> bool:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now - oldest.used_at <= EVICTION_S:
            settled = [s for s in self._sessions.values() if now - s.opened_at > EVICTION_S]
            if not settled:
                return False
            oldest = min(settled, key=lambda session: (len(session.wanted), session.id))
            if size < len(oldest.wanted):
                return False
        self._close(oldest.id)
        self.evictions += 1
        return True

    def _close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partitions -= len(session.wanted)

    def _refuse(self, by_id: bool, error: ErrorCode) -> Plan:
        return Plan(self, by_id, {}, error=error)

    def _identify(self, wanted: dict[tuple[Topic, int], Wanted]) -> bool:
        """Which topic each name is; False if one of them was another one before."""
        for each in wanted.values():
            assert isinstance(each.topic, str)
            found = self._topic_id_of(each.topic)
            if found is not None:
                if each.topic_id is not None and each.topic_id != found:
                    return False
                each.topic_id = found
        return True

    def check(self) -> None:
        """What must hold; for tests."""
        assert len(self._sessions) <= self._slots
        assert self.partitions == sum(len(s.wanted) for s in self._sessions.values())
        assert self.partitions <= self._partitions_max
        uses = [session.used_at for session in self._sessions.values()]
        assert uses == sorted(uses)
        for session_id, session in self._sessions.items():
            assert session.id == session_id != NO_SESSION
            assert session.epoch >= 1
            assert session.wanted


def _put_last(wanted: dict[tuple[Topic, int], Wanted], served: list[Wanted]) -> None:
    if len(served) < len(wanted):
        for each in served:
            key = (each.topic, each.asked.partition)
            wanted[key] = wanted.pop(key)


def _wanted(topics: Topics) -> dict[tuple[Topic, int], Wanted]:
    """A partition that is named twice is fetched once, as it was named last."""
    if len(topics) == 1 and len(topics[0][1]) == 1:
        topic, (asked,) = topics[0]
        return {(topic, asked.partition): Wanted(topic, asked)}
    found: dict[tuple[Topic, int], Wanted] = {}
    _change(found, topics, ())
    return found


def _change(wanted: dict[tuple[Topic, int], Wanted], topics: Topics, forgotten: Forgotten) -> None:
    for topic, partitions in topics:
        for asked in partitions:
            known = wanted.get((topic, asked.partition))
            if known is None:
                wanted[topic, asked.partition] = Wanted(topic, asked)
            else:
                known.asked = asked
    for topic, indexes in forgotten:
        for index in indexes:
            wanted.pop((topic, index), None)
