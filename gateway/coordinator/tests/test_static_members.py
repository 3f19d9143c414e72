"""Static members (KIP-345): an instance id outlives the process that has it."""

from __future__ import annotations

from ister.gateway.coordinator.errors import (
    CoordinatorUnavailable,
    FencedInstance,
    RebalanceInProgress,
    UnknownMember,
)
from ister.gateway.coordinator.events import LeavingMember, Protocol
from ister.gateway.coordinator.states import GroupState
from ister.gateway.coordinator.tests.kit import SESSION_MS, Bench


def test_static_members_need_no_second_join():
    """Version 4's extra round trip is for dynamic members alone."""
    bench = Bench()
    assert bench.join(instance="i", member_id_required=True).error is None


def test_a_restarted_follower_keeps_its_assignment():
    """No round: a new member id, the same generation, the same part."""
    bench = Bench()
    leader, follower = bench.stable("lead", "follow")
    again = bench.join(instance="follow").join
    assert again.error is None
    assert again.member_id != follower
    assert (again.generation, again.leader, again.members) == (2, leader, ())
    assert not again.skip_assignment
    synced = bench.sync(again.member_id, 2, instance="follow").sync
    assert synced.assignment == b"part of " + follower.encode()
    assert bench.heartbeat(leader, 2, "lead").error is None


def test_a_restarted_leader_skips_the_assignment():
    """KIP-814, version 9: it leads, sees the members, and must not assign."""
    bench = Bench()
    leader, follower = bench.stable("lead", "follow")
    again = bench.join(instance="lead").join
    assert again.skip_assignment
    assert again.leader == again.member_id != leader
    assert {m.id for m in again.members} == {again.member_id, follower}
    assert bench.sync(again.member_id, 2).sync.assignment == b"part of " + leader.encode()


def test_a_restarted_leader_of_an_older_version_is_told_the_old_leader():
    """Below version 9 it would assign if it saw itself as the leader."""
    bench = Bench()
    leader, _follower = bench.stable("lead", "follow")
    again = bench.join(instance="lead", skip_assignment_known=False).join
    assert again.leader == leader
    assert again.members == ()
    assert not again.skip_assignment


def test_the_former_holder_of_an_instance_is_fenced():
    """82 for the old member id with the instance id, everywhere; without it 25."""
    bench = Bench()
    leader, old = bench.stable("lead", "follow")
    bench.join(instance="follow")
    assert bench.heartbeat(old, 2, "follow").error is FencedInstance
    assert bench.sync(old, 2, instance="follow").error is FencedInstance
    assert bench.join(old, instance="follow").error is FencedInstance
    assert bench.leave(LeavingMember(old, "follow")).left == [FencedInstance]
    assert bench.commit(old, 2, "follow") is FencedInstance
    assert bench.heartbeat(old, 2).error is UnknownMember
    assert bench.heartbeat(leader, 2, "nobody").error is UnknownMember


def test_a_replacement_is_answered_only_when_durable():
    """Else a crash would bring the old id back and fence the one that was answered."""
    bench = Bench()
    bench.stable("lead", "follow")
    bench.hold_store = True
    answer = bench.join(instance="follow")
    assert answer.pending
    bench.store()
    assert answer.error is None
    assert answer.join.member_id in {m.id for m in bench.settled().members}


def test_a_replacement_that_is_not_stored_is_tried_again():
    """The client gets a retriable error; the part of the member is not lost."""
    bench = Bench()
    _leader, follower = bench.stable("lead", "follow")
    bench.hold_store = True
    answer = bench.join(instance="follow")
    bench.fail_store()
    assert answer.error is CoordinatorUnavailable
    bench.hold_store = False
    again = bench.join(instance="follow").join
    part = bench.sync(again.member_id, 2).sync.assignment
    assert part == b"part of " + follower.encode()


def test_two_replacements_at_a_time():
    """The later one fences the earlier one while both are being stored."""
    bench = Bench()
    bench.stable("lead", "follow")
    bench.hold_store = True
    first = bench.join(instance="follow")
    second = bench.join(instance="follow")
    assert first.error is FencedInstance
    bench.store()
    assert second.pending
    bench.store()
    assert second.error is None


def test_a_round_overtakes_a_replacement():
    """A member that comes while a replacement is stored takes it into the round."""
    bench = Bench()
    leader, _follower = bench.stable("lead", "follow")
    bench.hold_store = True
    replaced = bench.join(instance="follow")
    new = bench.join()
    bench.store()
    assert replaced.pending
    bench.join(leader, instance="lead")
    assert (replaced.join.generation, new.join.generation) == (3, 3)


def test_a_replacement_with_another_protocol_begins_a_round():
    """If the selected protocol would change, the assignment of the old one is worth nothing."""
    bench = Bench()
    a, b = Protocol("a", b""), Protocol("b", b"")
    leader, _follower = bench.stable("lead", "follow", protocols=[a, b])
    answer = bench.join(instance="follow", protocols=[b])
    assert answer.pending
    assert bench.heartbeat(leader, 2, "lead").error is RebalanceInProgress
    assert bench.join(leader, instance="lead", protocols=[a, b]).join.protocol == "b"


def test_a_replacement_while_completing_begins_a_round():
    """The leader was told the old id and would leave the new one without a part."""
    bench = Bench()
    leader, follower = bench.stable("lead", "follow")
    bench.join(leader, instance="lead")
    bench.join(follower, instance="follow")
    assert bench.state() is GroupState.COMPLETING_REBALANCE
    parked = bench.sync(follower, 3, instance="follow")
    replaced = bench.join(instance="follow")
    assert parked.error is FencedInstance
    assert replaced.pending
    assert bench.sync(leader, 3, {}, instance="lead").error is RebalanceInProgress
    assert bench.join(leader, instance="lead").join.generation == 4
    assert replaced.join.generation == 4


def test_a_replacement_while_preparing_fences_the_parked_join():
    """The old process waits in the round: it is told 82, the new one takes its place."""
    bench = Bench()
    leader, follower = bench.stable("lead", "follow")
    old = bench.join(follower, instance="follow", protocols=[Protocol("range", b"news")])
    new = bench.join(instance="follow")
    assert old.error is FencedInstance
    bench.join(leader, instance="lead")
    assert new.join.generation == 3


def test_static_members_stay_through_a_round_they_miss():
    """Only the session timeout removes them, not the end of the joins."""
    bench = Bench()
    leader = bench.join(instance="lead", rebalance_ms=5_000).join.member_id
    bench.settle(leader)
    new = bench.join(instance="new", rebalance_ms=5_000)
    bench.advance(5_000)
    assert new.join.generation == 2
    assert new.join.leader == new.join.member_id
    assert {m.id for m in new.join.members} == {leader, new.join.member_id}


def test_a_round_waits_if_only_absent_static_members_are_left():
    """Nobody can lead: the round goes on until one comes back or their sessions end."""
    bench = Bench()
    a, b = bench.stable("a", "b", rebalance_ms=2_000)
    assert bench.leave(LeavingMember(a, "a")).left == [None]
    bench.advance(6_000)
    assert bench.state() is GroupState.PREPARING_REBALANCE
    assert bench.heartbeat(b, 2, "b").error is RebalanceInProgress
    bench.advance(SESSION_MS)
    assert bench.state() is GroupState.EMPTY


def test_an_admin_removes_a_static_member_by_its_instance():
    """kafka-consumer-groups and removeMembers send no member id."""
    bench = Bench()
    leader, follower = bench.stable("lead", "follow")
    assert bench.leave(LeavingMember("", "follow")).left == [None]
    assert bench.heartbeat(leader, 2, "lead").error is RebalanceInProgress
    assert bench.heartbeat(follower, 2, "follow").error is UnknownMember
