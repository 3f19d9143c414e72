"""All groups together: answers, the store, time, restarts, deletions."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ister.dispatch.cursors import CursorService, Place
from ister.gateway.coordinator.errors import (
    CoordinatorUnavailable,
    CursorMetadataTooLarge,
    GroupNotEmpty,
    GroupNotFound,
    IllegalGeneration,
    InvalidGroupId,
    InvalidSessionTimeout,
    RebalanceInProgress,
    SubscribedToTopic,
    TooManyGroups,
    UnknownMember,
)
from ister.gateway.coordinator.events import (
    HeartbeatRequest,
    JoinResult,
    LeavingMember,
    Protocol,
    SyncRequest,
)
from ister.gateway.coordinator.offsets import (
    CommitRequest,
    OffsetService,
    OffsetsResult,
    OffsetToCommit,
    TopicPlaces,
)
from ister.gateway.coordinator.records import GROUPS
from ister.gateway.coordinator.service import GroupService
from ister.gateway.coordinator.settings import CoordinatorSettings
from ister.gateway.coordinator.states import GroupState
from ister.gateway.coordinator.tests.kit import SESSION_MS, Answer, join_request
from ister.metadata.catalog import Catalog
from ister.metadata.errors import StoreDamaged, UnknownTopic
from ister.metadata.memory import MemoryStore
from ister.metadata.service import CommitService
from ister.metadata.sqlite import SqliteStore
from ister.metadata.store import Store, Transaction
from ister.wal.clock import ManualClock
from ister.wal.driver import METADATA, InlineDriver

ORDERS = b"\0\0\0\0\0\1\0\6orders\0\0\0\0"


class Broker:
    """The coordinator with everything below it, on one thread, without a clock of its own."""

    def __init__(
        self,
        store: Store | None = None,
        settings: CoordinatorSettings | None = None,
        clock: ManualClock | None = None,
        waiting_max: int = 100,
    ) -> None:
        self.store = MemoryStore() if store is None else store
        self.clock = clock or ManualClock()
        self.settings = settings
        self.driver = InlineDriver()
        self.randomness = random.Random(3)
        self.catalog = Catalog.open(self.store, self.randomness)
        self.commits = CommitService(
            self.store, partial(self.driver.submit, METADATA), waiting_max=waiting_max
        )
        self.cursors = CursorService(self.store, self.commits, self.catalog)
        self.groups = GroupService(
            self.store, self.commits, self.cursors, self.clock, self.randomness, settings
        )
        self.offsets = OffsetService(self.groups, self.cursors, self.clock)
        self.run()

    def run(self) -> None:
        self.driver.run_until_idle()

    def restarted(self) -> Broker:
        """After kill -9: what was not durable is gone."""
        assert isinstance(self.store, MemoryStore)
        return Broker(self.store.reopen(), self.settings, self.clock)

    def advance(self, duration_ms: int) -> None:
        """Time passes, `tick` comes when it is wanted."""
        end_ms = self.groups.now_ms() + duration_ms
        while (deadline_ms := self.groups.next_deadline()) is not None and deadline_ms <= end_ms:
            self.clock.advance(max(deadline_ms - self.groups.now_ms(), 0) / 1000)
            self.groups.tick(self.groups.now_ms())
            self.run()
        self.clock.advance((end_ms - self.groups.now_ms()) / 1000)

    def join(self, group: str = "g", member_id: str = "", **options: Any) -> Answer:
        answer = Answer()
        request = join_request(member_id, group=group, **options)
        self.groups.join(request, partial(setattr, answer, "result"))
        return answer

    def sync(self, member_id: str, generation: int, group: str = "g") -> Answer:
        answer = Answer()
        request = SyncRequest(
            group, member_id, None, generation, assignments=((member_id, b"part"),)
        )
        self.groups.sync(request, partial(setattr, answer, "result"))
        return answer

    def heartbeat(self, member_id: str, generation: int, group: str = "g") -> Answer:
        answer = Answer()
        request = HeartbeatRequest(group, member_id, None, generation)
        self.groups.heartbeat(request, partial(setattr, answer, "result"))
        return answer

    def leave(self, *members: str, group: str = "g") -> Answer:
        answer = Answer()
        leaving = [LeavingMember(each) for each in members]
        self.groups.leave(group, leaving, partial(setattr, answer, "result"))
        return answer

    def member(self, group: str = "g", **options: Any) -> str:
        """A stable group of one."""
        member_id = self.join(group, **options).join.member_id
        answer = self.sync(member_id, self.generation(group), group)
        self.run()
        assert answer.error is None
        return member_id

    def generation(self, group: str = "g") -> int:
        found = self.groups.group(group)
        assert found is not None
        return found.generation

    def topic(self, name: str = "orders") -> bytes:
        change = self.catalog.create(name, 3, {}, 1, self.randomness)
        return self.catalog.commit(self.store, change).id

    def commit(
        self,
        place: Place,
        offset: int,
        member_id: str = "",
        generation: int = -1,
        group: str = "g",
        metadata: str = "",
        version_9: bool = True,
    ) -> object:
        """The error for all, else the error of the place, else None; "waiting" if unanswered."""
        answers: list[object] = ["waiting"]
        offsets = [OffsetToCommit(place, offset, metadata=metadata)]
        self.offsets.commit(
            CommitRequest(group, member_id, None, generation, offsets, version_9), answers.append
        )
        self.run()
        return _error_of(answers[-1], place)

    def committed(self, place: Place, group: str = "g") -> int | None:
        found = self.offsets.fetch(group, [place]).get(place)
        return None if found is None else found.offset

    def delete_offsets(self, name: str, place: Place, group: str = "g") -> object:
        answers: list[object] = ["waiting"]
        topics = [TopicPlaces(name, place.topic_id, [place.partition])]
        self.offsets.delete(group, topics, answers.append)
        self.run()
        return _error_of(answers[-1], place)

    def delete_group(self, group: str = "g") -> object:
        answers: list[object] = ["waiting"]
        self.groups.delete_group(group, answers.append)
        self.run()
        answer = answers[-1]
        return type(answer) if isinstance(answer, Exception) else answer

    def stored_groups(self) -> list[str]:
        return [key for key, _ in self.store.scan(GROUPS)]


def _error_of(answer: object, place: Place) -> object:
    if not isinstance(answer, OffsetsResult):
        return answer
    error = answer.error or answer.failures.get(place)
    return None if error is None else type(error)


def test_a_group_of_one_from_join_to_assignment():
    """The assignment is answered after the record is durable, not before."""
    broker = Broker()
    member_id = broker.join().join.member_id
    assert member_id.startswith("client-")
    answer = broker.sync(member_id, 1)
    assert answer.pending
    broker.run()
    assert answer.sync.assignment == b"part"
    assert broker.stored_groups() == ["groups/g"]


def test_a_group_survives_a_restart(tmp_path: Path):
    """Ids, generation and parts are in the database; members have a full session timeout."""
    clock = ManualClock()
    broker = Broker(SqliteStore(tmp_path / "metadata"), clock=clock)
    member_id = broker.member()
    broker.store.close()
    clock.advance(3600)
    broker = Broker(SqliteStore(tmp_path / "metadata"), clock=clock)
    broker.advance(SESSION_MS - 1)
    assert broker.heartbeat(member_id, 1).error is None
    assert broker.sync(member_id, 1).sync.assignment == b"part"
    broker.advance(SESSION_MS)
    assert broker.heartbeat(member_id, 1).error is UnknownMember
    broker.store.close()


def test_a_crash_before_the_record_is_durable_forgets_the_round():
    """The leader was not answered: it comes again and finds the group as it was."""
    broker = Broker()
    member_id = broker.join().join.member_id
    assert broker.sync(member_id, 1).pending
    broker = broker.restarted()
    assert broker.heartbeat(member_id, 1).error is UnknownMember


def test_commits_of_a_group_survive_a_restart():
    """A group resumes exactly after its last acked commit."""
    broker = Broker()
    place = Place(broker.topic(), 0)
    member_id = broker.member()
    assert broker.commit(place, 41, member_id, 1, metadata="wörds") is None
    broker = broker.restarted()
    assert broker.committed(place) == 41
    assert broker.commit(place, 42, member_id, 1) is None
    (cursor,) = broker.offsets.fetch("g", None).values()
    assert (cursor.offset, cursor.generation) == (42, 1)
    assert cursor.time_ms == broker.clock.wall_ms()


def test_a_stale_generation_is_fenced_after_a_restart_too():
    """Who was out stays out."""
    broker = Broker()
    place = Place(broker.topic(), 0)
    old = broker.member()
    broker.leave(old)
    new = broker.member()
    broker = broker.restarted()
    assert broker.commit(place, 1, old, 1) is UnknownMember
    assert broker.commit(place, 1, new, 1) is IllegalGeneration
    assert broker.commit(place, 1, new, broker.generation()) is None


def test_requests_for_an_empty_group_id():
    """INVALID_GROUP_ID for members; cursors of the empty group are served, as Kafka does."""
    broker = Broker()
    place = Place(broker.topic(), 0)
    assert broker.join("").error is InvalidGroupId
    assert broker.sync("m", 1, "").error is InvalidGroupId
    assert broker.heartbeat("m", 1, "").error is InvalidGroupId
    assert broker.leave("m", group="").error is InvalidGroupId
    assert broker.delete_offsets("orders", place, "") is InvalidGroupId
    assert broker.commit(place, 7, group="") is None
    assert broker.committed(place, "") == 7
    assert broker.delete_group("") is None


def test_requests_for_an_unknown_group():
    """Members of no group are unknown members; LeaveGroup says so for each."""
    broker = Broker()
    assert broker.join("g", "m").error is UnknownMember
    assert broker.sync("m", 1).error is UnknownMember
    assert broker.heartbeat("m", 1).error is UnknownMember
    assert broker.leave("m", "n").left == [UnknownMember, UnknownMember]
    assert broker.groups.list_groups() == []


@pytest.mark.parametrize(
    ("session_ms", "error"),
    [
        (5_999, InvalidSessionTimeout),
        (6_000, None),
        (1_800_000, None),
        (1_800_001, InvalidSessionTimeout),
        (-1, InvalidSessionTimeout),
    ],
)
def test_session_timeouts_have_bounds(session_ms, error):
    """group.min.session.timeout.ms and group.max.session.timeout.ms."""
    assert Broker().join(session_ms=session_ms).error is error


def test_groups_are_limited():
    """A join or first commit beyond the limit is refused; groups that are there go on."""
    broker = Broker(settings=CoordinatorSettings(groups_max=1))
    place = Place(broker.topic(), 0)
    member_id = broker.member("a")
    assert broker.join("b").error is TooManyGroups
    assert broker.join("a", member_id).error is None
    assert broker.commit(place, 1, group="c") is None
    assert broker.commit(place, 1, group="d") is TooManyGroups
    assert broker.commit(place, 2, group="c") is None


def test_a_refused_first_join_leaves_no_group():
    """Strangers with nonsense take no memory."""
    broker = Broker()
    assert broker.join(protocols=[]).error is not None
    assert broker.groups.list_groups() == []
    assert broker.groups.next_deadline() is None


def test_ids_given_out_and_never_used_leave_no_group():
    """The id expires with the session timeout, the group some time later, unstored."""
    broker = Broker()
    broker.join(member_id_required=True)
    assert len(broker.groups.list_groups()) == 1
    broker.advance(10_000_000)
    assert broker.groups.list_groups() == []
    assert broker.stored_groups() == []
    assert broker.groups.next_deadline() is None


def test_empty_groups_expire_unless_they_have_cursors():
    """Pitfall 25: a group goes when nobody can want it back, and not before."""
    broker = Broker()
    place = Place(broker.topic(), 0)
    plain, keeper = broker.member("plain"), broker.member("keeper")
    assert broker.commit(place, 1, keeper, 1, "keeper") is None
    broker.leave(plain, group="plain")
    broker.leave(keeper, group="keeper")
    broker.run()
    broker.advance(100_000_000)
    assert [each.id for each in broker.groups.list_groups()] == ["keeper"]
    assert broker.stored_groups() == ["groups/keeper"]
    assert broker.committed(place, "keeper") == 1
    assert broker.delete_offsets("orders", place, "keeper") is None
    broker.advance(100_000_000)
    assert broker.groups.list_groups() == []
    assert broker.stored_groups() == []


def test_simple_groups_are_shown():
    """A consumer that only commits has a group in the listings: empty, without a type."""
    broker = Broker()
    place = Place(broker.topic(), 0)
    assert broker.groups.describe("g") is None
    assert broker.commit(place, 1) is None
    shown = broker.groups.describe("g")
    assert shown is not None
    assert (shown.state, shown.protocol_type, shown.members) == (GroupState.EMPTY, "", ())
    assert [tuple(each) for each in broker.groups.list_groups()] == [
        ("g", GroupState.EMPTY, "", "classic")
    ]
    broker.member()
    (listed,) = broker.groups.list_groups()
    assert (listed.state, listed.protocol_type) == (GroupState.STABLE, "consumer")


def test_commits_without_a_group():
    """Generation -1 makes a simple group; any other is refused, by version."""
    broker = Broker()
    place = Place(broker.topic(), 0)
    assert broker.commit(place, 1, "m", 1) is GroupNotFound
    assert broker.commit(place, 1, "m", 1, version_9=False) is IllegalGeneration
    assert broker.commit(place, 1) is None
    assert broker.commit(place, 1, "m", 1) is UnknownMember


def test_commits_while_a_round_is_completed():
    """The new generation may not commit before it has its parts."""
    broker = Broker()
    place = Place(broker.topic(), 0)
    member_id = broker.join().join.member_id
    assert broker.commit(place, 1, member_id, 1) is RebalanceInProgress
    assert broker.commit(place, 1) is UnknownMember
    assert broker.committed(place) is None


def test_long_words_beside_an_offset_are_refused():
    """offset.metadata.max.bytes counts bytes, and concerns that partition alone."""
    broker = Broker()
    place = Place(broker.topic(), 0)
    assert broker.commit(place, 1, metadata="ü" * 2_049) is CursorMetadataTooLarge
    assert broker.commit(place, 1, metadata="ü" * 2_048) is None


def test_commits_to_a_topic_that_is_gone():
    """Nothing is left behind."""
    broker = Broker()
    topic_id = broker.topic()
    broker.catalog.commit(broker.store, broker.catalog.delete(topic_id, 2))
    assert broker.commit(Place(topic_id, 0), 1) is UnknownTopic
    assert broker.groups.describe("g") is None


def test_a_store_without_an_answer_is_told_as_unavailable():
    """Retriable for the client, whether a group or a cursor was to be stored."""
    broker = Broker()
    assert isinstance(broker.store, MemoryStore)
    place = Place(broker.topic(), 0)
    member_id = broker.join().join.member_id
    answer = broker.sync(member_id, 1)
    broker.store.lose_next_reply()
    broker.run()
    assert answer.error is CoordinatorUnavailable
    assert broker.heartbeat(member_id, 1).error is RebalanceInProgress
    assert broker.join("g", member_id).join.generation == 2
    broker.sync(member_id, 2)
    broker.run()
    broker.store.lose_next_reply()
    assert broker.commit(place, 5, member_id, 2) is CoordinatorUnavailable
    assert broker.committed(place) == 5
    broker.store.lose_next_reply()
    assert broker.commit(place, 6, member_id, 2) is CoordinatorUnavailable
    broker.store.close()
    with pytest.raises(CoordinatorUnavailable):
        broker.committed(place)


def test_an_overloaded_store_is_told_as_unavailable():
    """Too much is waiting: the round is begun again, nothing hangs."""
    broker = Broker(waiting_max=0)
    member_id = broker.join().join.member_id
    assert broker.sync(member_id, 1).error is CoordinatorUnavailable
    assert broker.heartbeat(member_id, 1).error is RebalanceInProgress


def test_deleting_groups():
    """68 with members, 69 without a group, and all its cursors with it."""
    broker = Broker()
    place = Place(broker.topic(), 0)
    assert broker.delete_group() is GroupNotFound
    member_id = broker.member()
    broker.commit(place, 1, member_id, 1)
    assert broker.delete_group() is GroupNotEmpty
    broker.leave(member_id)
    assert broker.delete_group() is None
    assert broker.groups.describe("g") is None
    assert broker.committed(place) is None
    assert broker.stored_groups() == []
    assert broker.restarted().groups.list_groups() == []
    assert broker.delete_group() is GroupNotFound


def test_a_join_during_a_deletion_makes_a_new_group():
    """The new group is stored behind the deletion of the old one and survives it."""
    broker = Broker()
    place = Place(broker.topic(), 0)
    broker.leave(broker.member())
    broker.commit(place, 1)
    answers: list[object] = []
    broker.groups.delete_group("g", answers.append)
    joined = broker.join().join
    assert joined.generation == 1
    sync = broker.sync(joined.member_id, 1)
    broker.run()
    assert (answers, sync.error) == ([None], None)
    assert broker.committed(place) is None
    assert broker.restarted().heartbeat(joined.member_id, 1).error is None


def test_a_deletion_that_fails_brings_the_group_back():
    """It may be there still: the client is told to try again, and can."""
    broker = Broker()
    assert isinstance(broker.store, MemoryStore)
    broker.leave(broker.member())
    broker.run()
    broker.store.lose_next_reply()
    assert broker.delete_group() is CoordinatorUnavailable
    assert broker.groups.describe("g") is not None
    assert broker.delete_group() is None
    assert broker.stored_groups() == []


def test_deleting_offsets():
    """86 for subscribed topics, 68 for other types with members, 69 without a group."""
    broker = Broker()
    orders, other = Place(broker.topic(), 0), Place(broker.topic("other"), 0)
    assert broker.delete_offsets("orders", orders) is GroupNotFound
    member_id = broker.member(protocols=[Protocol("range", ORDERS)])
    for place in (orders, other):
        broker.commit(place, 1, member_id, 1)
    assert broker.delete_offsets("orders", orders) is SubscribedToTopic
    assert broker.delete_offsets("other", other) is None
    assert (broker.committed(orders), broker.committed(other)) == (1, None)
    broker.member("connect", protocol_type="connect")
    assert broker.delete_offsets("orders", orders, "connect") is GroupNotEmpty


def test_an_answer_that_brings_the_next_request():
    """A connection goes on reading within the answer: order and state hold."""
    broker = Broker()
    answers: list[object] = []

    def joined(result: JoinResult) -> None:
        answers.append(result)
        request = SyncRequest(
            "g", result.member_id, None, 1, assignments=((result.member_id, b"part"),)
        )
        broker.groups.sync(request, answers.append)

    broker.groups.join(join_request(), joined)
    broker.run()
    assert [type(answer).__name__ for answer in answers] == ["JoinResult", "SyncResult"]
    assert broker.groups.describe("g").state is GroupState.STABLE  # type: ignore[union-attr]


def test_an_answer_that_fails_does_not_swallow_the_others():
    """A dead connection costs itself alone."""
    broker = Broker()
    leader = broker.member()

    def fails(result: JoinResult) -> None:
        raise ConnectionError("gone")

    broker.groups.join(join_request("", group="g"), fails)
    with pytest.raises(ConnectionError):
        broker.join("g", leader)
    assert broker.heartbeat(leader, 2).error is None
    assert broker.generation() == 2


def test_close_answers_everybody():
    """When the broker stops, waiting requests are answered and later ones told to try again."""
    broker = Broker()
    place = Place(broker.topic(), 0)
    member_id = broker.member()
    waiting = broker.join()
    assert waiting.pending
    broker.groups.close()
    assert waiting.error is CoordinatorUnavailable
    assert broker.join().error is CoordinatorUnavailable
    assert broker.sync(member_id, 1).error is CoordinatorUnavailable
    assert broker.heartbeat(member_id, 1).error is CoordinatorUnavailable
    assert broker.leave(member_id).error is CoordinatorUnavailable
    assert broker.commit(place, 1, member_id, 1) is CoordinatorUnavailable
    assert broker.restarted().heartbeat(member_id, 1).error is None


def test_a_damaged_group_is_not_passed_over():
    """Starting without a group would let a fenced member commit: the broker refuses instead."""
    store = MemoryStore()
    store.commit(Transaction(put={"groups/g": b"{}"}))
    with pytest.raises(StoreDamaged, match="groups/g"):
        Broker(store)


def test_next_deadline_is_the_earliest_of_all_groups():
    """The shell sleeps until then; heartbeats move it away."""
    broker = Broker()
    assert broker.groups.next_deadline() is None
    start_ms = broker.groups.now_ms()
    broker.member("slow", session_ms=30_000)
    fast = broker.member("fast", session_ms=6_000)
    assert broker.groups.next_deadline() == start_ms + 6_000
    broker.clock.advance(5)
    assert broker.heartbeat(fast, 1, "fast").error is None
    broker.clock.advance(1)
    broker.groups.tick(broker.groups.now_ms())
    assert broker.groups.next_deadline() == start_ms + 11_000
