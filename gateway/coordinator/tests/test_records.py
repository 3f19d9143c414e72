"""Stored groups, restarts, subscriptions, views."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ister.gateway.coordinator.errors import (
    GroupNotEmpty,
    IllegalGeneration,
    RebalanceInProgress,
    UnknownMember,
)
from ister.gateway.coordinator.events import Protocol
from ister.gateway.coordinator.records import (
    GroupRecord,
    MemberRecord,
    ProtocolRecord,
    decode_group,
    encode_group,
    group_key,
    group_of,
)
from ister.gateway.coordinator.settings import CoordinatorSettings
from ister.gateway.coordinator.states import GroupState
from ister.gateway.coordinator.subscription import subscribed_topics
from ister.gateway.coordinator.tests.kit import SESSION_MS, Bench
from ister.gateway.coordinator.views import describe, listing
from ister.metadata.errors import NewerFormat, StoreDamaged

# What kafka-python sends: version, topics, user data.
ORDERS_AND_PAYMENTS = b"\0\1\0\0\0\2\0\6orders\0\10payments\0\0\0\0\0\0\0\0"


def member(member_id: str = "m", **fields: object) -> MemberRecord:
    known: dict[str, object] = {
        "id": member_id,
        "client_id": "client",
        "client_host": "/127.0.0.1",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "protocols": (ProtocolRecord("range", bytes(range(256))),),
        "assignment": b"\xff\0part",
    }
    return msgspec.convert({**known, **fields}, MemberRecord)


def record(*members: MemberRecord, **fields: object) -> GroupRecord:
    known: dict[str, object] = {
        "generation": 7,
        "protocol_type": "consumer",
        "protocol": "range" if members else None,
        "leader": members[0].id if members else None,
        "members": members,
    }
    return msgspec.convert({**known, **fields}, GroupRecord)


def test_records_round_trip():
    """Opaque bytes come back as they were."""
    before = record(member("a", instance_id="i"), member("b"))
    assert decode_group("groups/g", encode_group(before)) == before
    assert decode_group("groups/g", encode_group(record())) == record()


def test_keys_hold_any_group_id():
    """A group id may hold slashes, spaces and any letter."""
    for group in ("g", "a/b/c", "", "grüße ✓"):
        assert group_of(group_key(group)) == group


@pytest.mark.parametrize(
    "bad",
    [
        record(generation=-1),
        record(leader="m"),
        record(member("a"), member("a")),
        record(member("a", instance_id="i"), member("b", instance_id="i")),
        record(member("a"), leader="b"),
        record(member("a"), protocol=None),
        record(member("a"), protocol="sticky"),
    ],
)
def test_contradictions_are_damage(bad):
    """A record that no group can be is refused with its key."""
    with pytest.raises(StoreDamaged, match="groups/g"):
        decode_group("groups/g", encode_group(bad))


def test_a_newer_format_is_refused():
    """What a newer version wrote may mean something else."""
    with pytest.raises(NewerFormat):
        decode_group("groups/g", encode_group(record(format=99)))


def test_a_restart_keeps_ids_generation_and_parts():
    """Members go on as if nothing had been, static ones included."""
    bench = Bench()
    leader, follower = bench.stable("lead", None)
    bench.advance(SESSION_MS - 1)
    bench.restart()
    assert bench.heartbeat(leader, 2, "lead").error is None
    assert bench.heartbeat(follower, 2).error is None
    assert bench.commit(follower, 2) is None
    assert bench.sync(follower, 2).sync.assignment == b"part of " + follower.encode()
    assert bench.join(instance="lead").join.skip_assignment


def test_a_restart_gives_a_full_session_timeout():
    """However long the broker was down, members have the whole time from its start."""
    bench = Bench()
    (only,) = bench.stable(None)
    bench.now_ms += 10 * SESSION_MS
    bench.restart()
    bench.advance(SESSION_MS - 1)
    assert bench.heartbeat(only, 1).error is None
    bench.advance(SESSION_MS)
    assert bench.heartbeat(only, 1).error is UnknownMember


def test_a_restart_in_a_round_goes_back_to_the_last_generation():
    """The round was not stored: those of the last generation are told of nothing, and join."""
    bench = Bench()
    (leader,) = bench.stable(None)
    bench.join()
    second = bench.join(leader)
    assert second.join.generation == 2
    bench.restart()
    assert bench.heartbeat(leader, 2).error is IllegalGeneration
    assert bench.join(leader).join.generation == 2


def test_a_restart_forgets_who_was_never_in_a_generation():
    """A member that was waiting for its first generation joins again."""
    bench = Bench()
    bench.stable(None)
    bench.join()
    bench.restart()
    assert len(bench.group.members) == 1
    assert bench.state() is GroupState.STABLE


def test_an_empty_group_stays_empty():
    """Its generation is kept, so that members of old stay fenced."""
    bench = Bench()
    (only,) = bench.stable(None)
    bench.leave(only)
    bench.restart()
    assert bench.state() is GroupState.EMPTY
    assert bench.join().join.generation == 3


def test_a_lowered_limit_makes_the_group_smaller():
    """After a restart with a lower limit the group rebalances, and the last stay outside."""
    bench = Bench()
    a, b, c = bench.stable(None, None, None)
    bench.settings = CoordinatorSettings(members_max=2)
    bench.restart()
    assert bench.heartbeat(a, 3).error is RebalanceInProgress
    answers = [bench.join(each) for each in (a, b, c)]
    assert sum(answer.result is not None and answer.error is not None for answer in answers) == 1
    assert len(bench.group.members) == 2


def test_subscriptions_are_read():
    """Version, count, names; whatever follows is a later version's."""
    assert subscribed_topics(ORDERS_AND_PAYMENTS) == frozenset({"orders", "payments"})
    assert subscribed_topics(b"\0\0\0\0\0\0") == frozenset()


@given(st.binary(max_size=64))
def test_any_bytes_are_a_subscription_or_not(data):
    """Never an error, and never more memory than the bytes themselves."""
    found = subscribed_topics(data)
    assert found is None or all(isinstance(topic, str) for topic in found)


@pytest.mark.parametrize("size", range(len(ORDERS_AND_PAYMENTS) - 8))
def test_cut_subscriptions_are_none(size):
    """A part of a subscription is not one with fewer topics."""
    assert subscribed_topics(ORDERS_AND_PAYMENTS[:size]) is None


def test_a_group_knows_what_it_subscribes_to():
    """OffsetDelete: cursors of subscribed topics stay; what cannot be read counts as subscribed."""
    bench = Bench()
    (only,) = bench.stable(None, protocols=[Protocol("range", ORDERS_AND_PAYMENTS)])
    assert bench.group.is_subscribed("orders")
    assert not bench.group.is_subscribed("other")
    bench.group.check_cursors_deletable()
    bench.leave(only)
    assert not bench.group.is_subscribed("orders")
    bench.stable(None, protocols=[Protocol("range", b"opaque")])
    assert bench.group.is_subscribed("anything")


def test_groups_of_other_types_must_be_empty():
    """Nobody can say what a Connect group reads: its cursors go only when it is empty."""
    bench = Bench()
    (only,) = bench.stable(None, protocol_type="connect")
    assert not bench.group.is_subscribed("orders")
    with pytest.raises(GroupNotEmpty):
        bench.group.check_cursors_deletable()
    bench.leave(only)
    bench.group.check_cursors_deletable()


def test_only_an_empty_group_is_deleted():
    """DeleteGroups: 68 in every state with members."""
    bench = Bench()
    leader = bench.join().join.member_id
    with pytest.raises(GroupNotEmpty):
        bench.group.check_deletable()
    bench.settle(leader)
    with pytest.raises(GroupNotEmpty):
        bench.group.check_deletable()
    bench.join()
    with pytest.raises(GroupNotEmpty):
        bench.group.check_deletable()


def test_views_show_details_of_stable_groups_only():
    """DescribeGroups: metadata, assignment and protocol are shown when they are settled."""
    bench = Bench()
    (only,) = bench.stable("i")
    shown = describe(bench.group)
    assert (shown.state.value, shown.protocol_type, shown.protocol) == (
        "Stable",
        "consumer",
        "range",
    )
    assert shown.members[0].metadata == b"r"
    assert shown.members[0].assignment == b"part of " + only.encode()
    assert (shown.members[0].instance_id, shown.members[0].client_id) == ("i", "client")
    bench.join()
    shown = describe(bench.group)
    assert (shown.state.value, shown.protocol) == ("PreparingRebalance", "")
    assert {(m.metadata, m.assignment) for m in shown.members} == {(b"", b"")}
    assert listing(bench.group)[1:] == (GroupState.PREPARING_REBALANCE, "consumer", "classic")
