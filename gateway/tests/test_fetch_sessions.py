"""Fetch sessions (KIP-227): the table of the module, eviction, and a model that forgets nothing."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ister.gateway.fetch_sessions import EVICTION_S, FetchSessions, Plan, Wanted
from ister.gateway.protocol.error_codes import ErrorCode
from ister.gateway.protocol.fetch import FetchPartition, FetchResult
from ister.gateway.protocol.hot import Topic

OLD, NEW = b"o" * 16, b"n" * 16
INT32_MAX = 2**31 - 1


def asked(index: int, offset: int = 0) -> FetchPartition:
    return FetchPartition(index, -1, offset, -1, -1, 1000)


def result(index: int, high: int = 0, size: int = 0, error: int = 0, start: int = 0) -> FetchResult:
    if error:
        return FetchResult(index, error)
    return FetchResult(index, 0, high, high, start, [b"x" * size] if size else [], size)


class Case:
    """Sessions with a clock and a broker in which every partition is as `heads` says."""

    def __init__(self, slots: int = 3, partitions_max: int = 1000) -> None:
        self.ids: dict[str, bytes] = {"t": OLD, "u": b"u" * 16}
        self.sessions = FetchSessions(slots, partitions_max, random.Random(1), self.ids.get)
        self.now = 0.0
        self.heads: dict[tuple[Topic, int], int] = {}

    def begin(
        self,
        session: int,
        epoch: int,
        topics: Any = (),
        forgotten: Any = (),
        by_id: bool = False,
    ) -> Plan:
        return self.sessions.begin(
            by_id=by_id,
            session_id=session,
            epoch=epoch,
            topics=topics,
            forgotten=forgotten,
            now=self.now,
        )

    def finish(self, plan: Plan) -> tuple[int, int, list[tuple[Topic, int]]]:
        assert not plan.error
        results = [(wanted, self.read(wanted)) for wanted in plan.wanted.values()]
        error, session, told = plan.finish(results, self.now)
        self.sessions.check()
        return int(error), session, [(wanted.topic, each.partition) for wanted, each in told]

    def read(self, wanted: Wanted) -> FetchResult:
        index = wanted.asked.partition
        head = self.heads.get((wanted.topic, index), 0)
        return result(index, head, max(0, head - wanted.asked.fetch_offset))

    def fetch(self, *args: Any, **kwargs: Any) -> tuple[int, int, list[tuple[Topic, int]]]:
        plan = self.begin(*args, **kwargs)
        if plan.error:
            return int(plan.error), 0, []
        return self.finish(plan)

    def open(self, *indexes: int, topic: str = "t") -> int:
        error, session, _ = self.fetch(0, 0, [(topic, [asked(index) for index in indexes])])
        assert not error
        return session


def test_no_session_is_asked_for() -> None:
    """Session 0 and epoch -1: in full, and nothing is kept."""
    case = Case()
    assert case.fetch(0, -1, [("t", [asked(0), asked(1)])]) == (0, 0, [("t", 0), ("t", 1)])
    assert len(case.sessions) == 0


def test_a_session_tells_only_what_changed() -> None:
    """Full, then nothing, then the partition with records, then nothing again."""
    case = Case()
    session = case.open(0, 1, 2)
    assert session > 0
    assert case.fetch(session, 1) == (0, session, [])
    case.heads["t", 1] = 5
    assert case.fetch(session, 2) == (0, session, [("t", 1)])
    assert case.fetch(session, 3, [("t", [asked(1, 5)])]) == (0, session, [])


def test_a_new_high_watermark_or_log_start_is_told() -> None:
    """Without records too: lag is computed from it."""
    case = Case()
    session = case.open(0)
    for change in ({"high": 3}, {"high": 3, "start": 2}):
        plan = case.begin(session, case.sessions._sessions[session].epoch)
        (wanted,) = plan.wanted.values()
        _, _, told = plan.finish([(wanted, result(0, **change))], 0.0)
        assert len(told) == 1
        plan = case.begin(session, case.sessions._sessions[session].epoch)
        _, _, told = plan.finish([(wanted, result(0, **change))], 0.0)
        assert not told


def test_an_error_is_told_every_time_and_its_end_too() -> None:
    """When the error is gone the client hears of the partition, although nothing moved."""
    case = Case()
    session = case.open(0)
    for epoch, (each, count) in enumerate(
        [(result(0, error=3), 1), (result(0, error=3), 1), (result(0), 1), (result(0), 0)], 1
    ):
        plan = case.begin(session, epoch)
        (wanted,) = plan.wanted.values()
        assert len(plan.finish([(wanted, each)], 0.0)[2]) == count


def test_partitions_come_and_go() -> None:
    """New ones are told at once, forgotten ones never again."""
    case = Case()
    session = case.open(0, 1)
    assert case.fetch(session, 1, [("u", [asked(7)])], [("t", [0])]) == (0, session, [("u", 7)])
    case.heads.update({("t", 0): 1, ("t", 1): 1, ("u", 7): 1})
    assert case.fetch(session, 2)[2] == [("t", 1), ("u", 7)]


def test_forgetting_everything_closes_the_session() -> None:
    """An empty session is none."""
    case = Case()
    session = case.open(0)
    assert case.fetch(session, 1, [], [("t", [0])]) == (0, 0, [])
    assert case.fetch(session, 2)[0] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_an_unknown_session() -> None:
    """70, with session 0."""
    assert Case().fetch(12345, 1) == (70, 0, [])


@pytest.mark.parametrize("epoch", [2, 5, INT32_MAX, -2, -(2**31)])
def test_a_wrong_epoch(epoch: int) -> None:
    """71, with session 0; the session stays as it was."""
    case = Case()
    session = case.open(0)
    assert case.fetch(session, epoch, [("t", [asked(9)])]) == (71, 0, [])
    case.heads["t", 9] = 1
    assert case.fetch(session, 1) == (0, session, [])


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_full_request_closes_the_session_that_it_names(epoch: int) -> None:
    """Epoch 0 opens another one, epoch -1 none."""
    case = Case()
    session = case.open(0)
    error, other, told = case.fetch(session, epoch, [("t", [asked(0)])])
    assert (error, told) == (0, [("t", 0)])
    assert (other == 0) == (epoch == -1)
    assert other != session
    assert case.fetch(session, 1)[0] == 70


def test_names_and_ids_do_not_mix() -> None:
    """106 in both directions."""
    case = Case()
    session = case.open(0)
    assert case.fetch(session, 1, by_id=True) == (106, 0, [])
    _, by_id, _ = case.fetch(0, 0, [(OLD, [asked(0)])], by_id=True)
    assert case.fetch(by_id, 1) == (106, 0, [])
    assert case.fetch(by_id, 1, by_id=True) == (0, by_id, [])


def test_a_name_that_is_another_topic_now() -> None:
    """106: what the session knows is of the topic that was deleted."""
    case = Case()
    session = case.open(0)
    del case.ids["t"]
    assert case.fetch(session, 1)[0] == 0  # the handler says that the partition is not known
    case.ids["t"] = NEW
    assert case.fetch(session, 2) == (106, 0, [])
    assert case.fetch(session, 3)[0] == 70


def test_a_name_that_became_a_topic() -> None:
    """Asked for before it was made: the session goes on."""
    case = Case()
    del case.ids["t"]
    session = case.open(0)
    case.ids["t"] = NEW
    assert case.fetch(session, 1)[:2] == (0, session)


def test_epochs_wrap_to_one() -> None:
    """Behind the largest comes 1: 0 and -1 mean something else."""
    case = Case()
    session = case.open(0)
    case.sessions._sessions[session].epoch = INT32_MAX
    assert case.fetch(session, INT32_MAX)[0] == 0
    assert case.fetch(session, 1)[0] == 0


def test_an_answer_out_of_turn_is_refused() -> None:
    """A second request came before the first was answered: the first gets 71."""
    case = Case()
    session = case.open(0)
    first = case.begin(session, 1)
    second = case.begin(session, 2)
    case.heads["t", 0] = 1
    assert case.finish(first) == (71, session, [])
    assert case.finish(second) == (0, session, [("t", 0)])


def test_what_was_told_goes_behind_the_rest() -> None:
    """Pitfall 18: a limited answer does not begin with the same partitions every time."""
    case = Case()
    session = case.open(0, 1, 2)
    case.heads["t", 0] = 1
    case.fetch(session, 1)
    order = [key[1] for key in case.begin(session, 2).wanted]
    assert order == [1, 2, 0]


def test_named_twice_is_fetched_once() -> None:
    """As it was named last."""
    plan = Case().begin(0, -1, [("t", [asked(0, 1)]), ("t", [asked(0, 2)])])
    assert [wanted.asked.fetch_offset for wanted in plan.wanted.values()] == [2]


# -- room ------------------------------------------------------------------------------


def test_no_room_is_session_0() -> None:
    """All slots are in use and fresh: the client gets full answers."""
    case = Case(slots=2)
    assert case.open(0)
    assert case.open(0)
    assert case.open(0, 1, 2) == 0
    assert Case(slots=0).open(0) == 0


def test_a_stale_session_makes_room() -> None:
    """The least recently used one, whatever its size."""
    case = Case(slots=2)
    first, second = case.open(0, 1, 2), case.open(0)
    case.now = EVICTION_S
    case.fetch(second, 1)
    case.now += 1
    third = case.open(0)
    assert third
    assert case.fetch(first, 1)[0] == 70
    assert case.fetch(second, 2)[0] == 0
    assert case.sessions.evictions == 1


def test_a_larger_session_replaces_a_smaller_one_that_is_not_new() -> None:
    """As on Kafka: more partitions are worth more, but a fresh session is safe."""
    case = Case(slots=2)
    small, large = case.open(0), case.open(0, 1)
    case.now = EVICTION_S - 1
    case.fetch(small, 1)
    case.fetch(large, 1)
    assert case.open(0, 1) == 0  # none is older than two minutes
    case.now = EVICTION_S + 1
    case.fetch(small, 2)
    assert case.open(0, 1)
    assert case.fetch(small, 3)[0] == 70
    assert case.fetch(large, 2)[0] == 0
    case.now += 1
    assert case.open(0) == 0  # smaller than what is there


def test_partitions_of_all_sessions_are_bounded() -> None:
    """Neither opening nor growing gets past it."""
    case = Case(slots=10, partitions_max=5)
    session = case.open(0, 1, 2)
    assert case.open(0, 1, 2) == 0
    assert case.fetch(session, 1, [("t", [asked(n) for n in range(6)])]) == (70, 0, [])
    assert case.sessions.partitions == 0
    assert case.open(0, 1, 2)


# -- a client that remembers everything ------------------------------------------------------


class Client(RuleBasedStateMachine):
    """Whatever happens, a client that follows the protocol knows every high watermark."""

    @initialize()
    def start(self) -> None:
        self.case = Case(slots=2)
        self.session, self.epoch = 0, 0
        self.offsets: dict[int, int] = {}
        self.known: dict[int, int] = {}
        self.changed: dict[int, None] = {}
        self.forgotten: dict[int, None] = {}

    @rule(index=st.integers(0, 4), offset=st.integers(0, 3))
    def want(self, index: int, offset: int) -> None:
        self.offsets[index] = offset
        self.changed[index] = None
        self.forgotten.pop(index, None)

    @rule(index=st.integers(0, 4))
    def forget(self, index: int) -> None:
        if self.offsets.pop(index, None) is not None:
            self.changed.pop(index, None)
            self.forgotten[index] = None

    @rule(index=st.integers(0, 4), by=st.integers(1, 3))
    def append(self, index: int, by: int) -> None:
        self.case.heads["t", index] = self.case.heads.get(("t", index), 0) + by

    @rule()
    def others_come(self) -> None:
        self.case.now += EVICTION_S + 1
        self.case.open(0, 1, 2, 3, 4)
        self.case.open(0, 1, 2, 3, 4)

    @rule()
    def fetch(self) -> None:
        full = self.epoch == 0
        names = self.offsets if full else self.changed
        error, session, told = self.case.fetch(
            self.session,
            self.epoch,
            [("t", [asked(index, self.offsets[index]) for index in names])],
            [] if full else [("t", list(self.forgotten))],
        )
        if error:
            assert error == 70
            self.session = self.epoch = 0
            return
        for index in self.forgotten:
            self.known.pop(index, None)
        self.changed.clear()
        self.forgotten.clear()
        if full:
            assert {index for _, index in told} == set(self.offsets)
        for _, index in told:
            self.known[index] = self.case.heads.get(("t", index), 0)
        assert self.known == {index: self.case.heads.get(("t", index), 0) for index in self.offsets}
        self.session = session
        self.epoch = self.epoch + 1 if session else 0

    @invariant()
    def holds(self) -> None:
        self.case.sessions.check()


TestClient = pytest.mark.slow(Client.TestCase)
TestClient.settings = settings(max_examples=50, stateful_step_count=25)
