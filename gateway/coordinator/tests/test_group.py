"""Joins, syncs, heartbeats, leaves: what each is answered, state by state."""

from __future__ import annotations

import pytest

from ister.gateway.coordinator.errors import (
    CoordinatorUnavailable,
    GroupFull,
    IllegalGeneration,
    InconsistentProtocol,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMember,
)
from ister.gateway.coordinator.events import JoinedMember, LeavingMember, Protocol
from ister.gateway.coordinator.settings import CoordinatorSettings
from ister.gateway.coordinator.states import TRANSITIONS, GroupState
from ister.gateway.coordinator.tests.kit import REBALANCE_MS, SESSION_MS, Bench


def test_first_member_is_answered_at_once():
    """Without an initial delay a lone member leads generation 1 without any waiting."""
    bench = Bench()
    joined = bench.join().join
    assert joined.error is None
    assert (joined.generation, joined.leader, joined.protocol) == (1, joined.member_id, "range")
    assert joined.protocol_type == "consumer"
    assert joined.members == (JoinedMember(joined.member_id, None, b"r"),)
    synced = bench.sync(joined.member_id, 1, {joined.member_id: b"all"}).sync
    assert (synced.error, synced.assignment) == (None, b"all")
    assert (synced.protocol_type, synced.protocol) == ("consumer", "range")
    assert bench.state() is GroupState.STABLE


def test_version_4_needs_a_member_id_first():
    """KIP-394: the first join gets an id and an error, the second one with the id is accepted."""
    bench = Bench()
    first = bench.join(member_id_required=True)
    assert first.error is MemberIdRequired
    assert bench.state() is GroupState.EMPTY
    second = bench.join(first.join.member_id, member_id_required=True)
    assert second.error is None
    assert second.join.member_id == first.join.member_id


def test_an_id_given_out_expires_with_the_session_timeout():
    """A client that never comes back with its id does not hold the group up for ever."""
    bench = Bench()
    (leader,) = bench.stable(None)
    given = bench.join(member_id_required=True).join.member_id
    rejoin = bench.join(leader)
    assert rejoin.pending
    bench.advance(SESSION_MS - 1)
    assert rejoin.pending
    bench.advance(1)
    assert rejoin.error is None
    assert bench.join(given, member_id_required=True).error is UnknownMember


def test_an_id_given_out_may_leave():
    """LeaveGroup of a member that never joined ends the wait for it."""
    bench = Bench()
    (leader,) = bench.stable(None)
    given = bench.join(member_id_required=True).join.member_id
    rejoin = bench.join(leader)
    assert bench.leave(given).left == [None]
    assert rejoin.error is None


def test_unknown_member_ids_are_refused():
    """A member id that the group does not know is 25 everywhere."""
    bench = Bench()
    bench.stable(None)
    assert bench.join("nobody").error is UnknownMember
    assert bench.sync("nobody", 1).error is UnknownMember
    assert bench.heartbeat("nobody", 1).error is UnknownMember
    assert bench.leave("nobody").left == [UnknownMember]
    assert bench.commit("nobody", 1) is UnknownMember


def test_wrong_generations_are_refused():
    """A generation other than the current one is 22, earlier or later."""
    bench = Bench()
    (member,) = bench.stable(None)
    for generation in (0, 2):
        assert bench.sync(member, generation).error is IllegalGeneration
        assert bench.heartbeat(member, generation).error is IllegalGeneration
        assert bench.commit(member, generation) is IllegalGeneration


def test_empty_group_knows_nobody():
    """Heartbeat and sync to a group without members are 25, whatever the generation."""
    bench = Bench()
    (member,) = bench.stable(None)
    bench.leave(member)
    assert bench.state() is GroupState.EMPTY
    assert bench.heartbeat(member, 1).error is UnknownMember
    assert bench.sync(member, 1).error is UnknownMember
    assert bench.join(member).error is UnknownMember


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("", [Protocol("range", b"")]), ("consumer", []), ("", [])],
)
def test_a_first_member_must_name_a_protocol(protocol_type, protocols):
    """An empty protocol type or list is 23."""
    bench = Bench()
    answer = bench.join(protocol_type=protocol_type, protocols=protocols)
    assert answer.error is InconsistentProtocol
    assert bench.state() is GroupState.EMPTY


@pytest.mark.parametrize(
    ("protocol_type", "name"), [("connect", "range"), ("consumer", "sticky"), ("", "range")]
)
def test_a_member_without_anything_in_common_is_refused(protocol_type, name):
    """Another protocol type, or no protocol that all have, is 23 and disturbs nobody."""
    bench = Bench()
    (member,) = bench.stable(None)
    answer = bench.join(protocol_type=protocol_type, protocols=[Protocol(name, b"")])
    assert answer.error is InconsistentProtocol
    assert bench.heartbeat(member, 1).error is None


def test_any_protocol_type_works():
    """Connect and schema registries bring their own types and opaque bytes."""
    bench = Bench()
    opaque = bytes(range(256))
    joined = bench.join(protocol_type="connect", protocols=[Protocol("sessioned", opaque)]).join
    assert joined.error is None
    assert joined.members[0].metadata == opaque
    assert bench.sync(joined.member_id, 1, {joined.member_id: opaque}).sync.assignment == opaque


def test_most_votes_choose_the_protocol():
    """Each member votes for its first one among those that all have."""
    bench = Bench(CoordinatorSettings(initial_rebalance_delay_ms=100))
    a, b, c = Protocol("a", b""), Protocol("b", b""), Protocol("c", b"")
    answers = [
        bench.join(protocols=[c, a, b]),
        bench.join(protocols=[b, a]),
        bench.join(protocols=[b, a, c]),
    ]
    bench.advance(1000)
    assert [answer.join.protocol for answer in answers] == ["b", "b", "b"]


def test_only_what_all_have_is_chosen():
    """The favourite of most is not chosen if one member lacks it."""
    bench = Bench(CoordinatorSettings(initial_rebalance_delay_ms=100))
    a, b = Protocol("a", b""), Protocol("b", b"")
    answers = [
        bench.join(protocols=[b, a]),
        bench.join(protocols=[b, a]),
        bench.join(protocols=[a]),
    ]
    bench.advance(1000)
    assert [answer.join.protocol for answer in answers] == ["a", "a", "a"]


def test_the_leader_alone_gets_the_members():
    """Everybody gets the generation and the leader's id; the leader the list as well."""
    bench = Bench()
    (leader,) = bench.stable(None)
    follower = bench.join()
    assert follower.pending
    rejoin = bench.join(leader)
    assert (rejoin.join.generation, follower.join.generation) == (2, 2)
    assert rejoin.join.leader == follower.join.leader == leader
    assert follower.join.members == ()
    assert {m.id for m in rejoin.join.members} == {leader, follower.join.member_id}


def test_sync_waits_for_the_leader_and_the_store():
    """Nobody gets an assignment before it is durable."""
    bench = Bench()
    leader, follower = bench.stable(None, None)
    bench.join(leader)
    bench.join(follower)
    bench.hold_store = True
    early = bench.sync(follower, 3)
    assert early.pending
    lead = bench.sync(leader, 3, {leader: b"0", follower: b"1"})
    assert lead.pending
    assert early.pending
    assert bench.state() is GroupState.COMPLETING_REBALANCE
    bench.store()
    assert (lead.sync.assignment, early.sync.assignment) == (b"0", b"1")
    assert bench.state() is GroupState.STABLE


def test_a_member_without_a_part_gets_an_empty_one():
    """What the leader leaves out is empty, what it adds for strangers is dropped."""
    bench = Bench()
    leader, follower = bench.stable(None, None)
    bench.join(leader)
    bench.join(follower)
    bench.sync(leader, 3, {leader: b"0", "stranger": b"1"})
    assert bench.sync(follower, 3).sync.assignment == b""
    assert {m.id for m in bench.settled().members} == {leader, follower}


def test_a_store_that_fails_begins_a_new_round():
    """The assignment was not made durable: everybody is told to try again, and joins again."""
    bench = Bench()
    leader, follower = bench.stable(None, None)
    bench.join(leader)
    bench.join(follower)
    bench.hold_store = True
    answers = [bench.sync(follower, 3), bench.sync(leader, 3, {})]
    bench.fail_store()
    assert [answer.error for answer in answers] == [CoordinatorUnavailable] * 2
    assert bench.heartbeat(leader, 3).error is RebalanceInProgress


def test_join_between_the_leaders_join_and_sync_restarts_the_round():
    """Pitfall 23: a member that comes then must not stay without an assignment for ever."""
    bench = Bench()
    leader = bench.join().join.member_id
    late = bench.join()
    assert late.pending
    assert bench.state() is GroupState.PREPARING_REBALANCE
    assert bench.sync(leader, 1, {leader: b"all"}).error is RebalanceInProgress
    rejoin = bench.join(leader)
    assert (rejoin.join.generation, late.join.generation) == (2, 2)
    parts = {leader: b"0", late.join.member_id: b"1"}
    bench.sync(leader, 2, parts)
    assert bench.sync(late.join.member_id, 2).sync.assignment == b"1"


def test_join_while_the_assignment_is_being_stored_restarts_the_round():
    """Pitfall 23, later still: the stored assignment is handed to nobody."""
    bench = Bench()
    leader = bench.join().join.member_id
    bench.hold_store = True
    sync = bench.sync(leader, 1, {leader: b"all"})
    late = bench.join()
    assert sync.error is RebalanceInProgress
    bench.store()
    assert bench.state() is GroupState.PREPARING_REBALANCE
    rejoin = bench.join(leader)
    assert (rejoin.join.generation, late.join.generation) == (2, 2)


def test_a_leader_that_syncs_twice_waits_for_the_first():
    """A retry during the store gets what is stored, not what it brings."""
    bench = Bench()
    leader = bench.join().join.member_id
    bench.hold_store = True
    first = bench.sync(leader, 1, {leader: b"first"})
    second = bench.sync(leader, 1, {leader: b"second"})
    assert first.error is RebalanceInProgress
    assert len(bench.storing) == 1
    bench.store()
    assert second.sync.assignment == b"first"


def test_sync_in_a_stable_group_says_the_assignment_again():
    """A lost answer to SyncGroup is asked for again."""
    bench = Bench()
    leader, follower = bench.stable(None, None)
    assert bench.sync(follower, 2).sync.assignment == b"part of " + follower.encode()
    assert (
        bench.sync(leader, 2, {follower: b"other"}).sync.assignment == b"part of " + leader.encode()
    )
    assert bench.state() is GroupState.STABLE


@pytest.mark.parametrize(
    ("protocol_type", "protocol", "error"),
    [
        ("consumer", "range", None),
        (None, None, None),
        ("connect", "range", InconsistentProtocol),
        ("consumer", "sticky", InconsistentProtocol),
    ],
)
def test_sync_version_5_must_name_the_protocol(protocol_type, protocol, error):
    """KIP-559: type and name must be those of the group if they are given."""
    bench = Bench()
    (member,) = bench.stable(None)
    answer = bench.sync(member, 1, protocol_type=protocol_type, protocol=protocol)
    assert answer.error is error


def test_heartbeats_are_told_of_a_round():
    """Pitfall 24: 27 while preparing (never 22), fine while completing and stable."""
    bench = Bench()
    leader, follower = bench.stable(None, None)
    assert bench.heartbeat(leader, 2).error is None
    bench.join(leader)
    assert bench.heartbeat(follower, 2).error is RebalanceInProgress
    assert bench.sync(follower, 2).error is RebalanceInProgress
    bench.join(follower)
    assert bench.state() is GroupState.COMPLETING_REBALANCE
    assert bench.heartbeat(follower, 3).error is None


def test_a_follower_with_nothing_new_gets_the_same_generation():
    """In a stable group only a leader or new metadata begin a round."""
    bench = Bench()
    leader, follower = bench.stable(None, None)
    same = bench.join(follower).join
    assert (same.error, same.generation, same.leader, same.members) == (None, 2, leader, ())
    assert bench.state() is GroupState.STABLE
    news = bench.join(follower, protocols=[Protocol("range", b"news")])
    assert news.pending
    assert bench.state() is GroupState.PREPARING_REBALANCE


def test_a_leader_that_joins_again_begins_a_round():
    """It has seen new partitions, or a cooperative rebalance has its second half."""
    bench = Bench()
    leader, follower = bench.stable(None, None)
    assert bench.join(leader).pending
    assert bench.heartbeat(follower, 2).error is RebalanceInProgress


def test_a_lost_join_answer_is_given_again():
    """While completing, a join with nothing new is answered as before, the leader's in full."""
    bench = Bench()
    first = bench.join().join
    assert bench.join(first.member_id).join == first
    assert bench.state() is GroupState.COMPLETING_REBALANCE
    assert bench.join(first.member_id, protocols=[Protocol("range", b"x")]).join.generation == 2


def test_a_second_join_of_a_member_overtakes_the_first():
    """The client gave the first one up; both are answered, the second one counts."""
    bench = Bench()
    leader, _follower = bench.stable(None, None)
    first = bench.join(leader)
    second = bench.join(leader)
    assert first.error is RebalanceInProgress
    assert second.pending


def test_a_round_ends_with_the_longest_rebalance_timeout():
    """Members that have not joined by then are out; the longest timeout among all counts."""
    bench = Bench()
    leader = bench.join(rebalance_ms=20_000, session_ms=100_000).join.member_id
    bench.settle(leader)
    slow = bench.join(rebalance_ms=40_000, session_ms=100_000)
    bench.advance(39_999)
    assert slow.pending
    bench.advance(1)
    assert slow.join.generation == 2
    assert slow.join.leader == slow.join.member_id
    assert bench.heartbeat(leader, 1).error is UnknownMember


def test_version_0_rebalances_within_the_session_timeout():
    """JoinGroup version 0 has no rebalance timeout."""
    bench = Bench()
    bench.join(rebalance_ms=-1, session_ms=12_000)
    assert bench.group.members.rebalance_timeout_ms == 12_000


def test_who_never_syncs_is_out():
    """After a rebalance timeout without a sync a member is removed, and a round begins."""
    bench = Bench()
    leader, follower = bench.stable(None, None)
    bench.join(leader)
    bench.join(follower)
    bench.sync(leader, 3, {leader: b"0"})
    for _ in range(10):
        bench.advance(REBALANCE_MS // 10)
        bench.heartbeat(follower, 3)
        bench.heartbeat(leader, 3)
    assert bench.heartbeat(follower, 3).error is UnknownMember
    assert bench.heartbeat(leader, 3).error is RebalanceInProgress


def test_a_silent_member_expires():
    """Without a heartbeat for the session timeout a member is out and the others rebalance."""
    bench = Bench()
    leader, follower = bench.stable(None, None)
    bench.advance(SESSION_MS - 1)
    assert bench.heartbeat(leader, 2).error is None
    bench.advance(1)
    assert bench.heartbeat(follower, 2).error is UnknownMember
    assert bench.heartbeat(leader, 2).error is RebalanceInProgress
    assert bench.join(leader).join.generation == 3


def test_commits_and_waiting_keep_a_session():
    """A commit counts as a heartbeat; whoever waits for an answer cannot expire."""
    bench = Bench()
    leader, follower = bench.stable(None, None)
    waiting = bench.join(leader)
    for _ in range(5):
        bench.advance(SESSION_MS - 1)
        assert bench.commit(follower, 2) is None
    assert waiting.pending
    assert bench.join(follower).error is None
    assert waiting.error is None
    bench.advance(SESSION_MS - 1)
    assert bench.heartbeat(leader, 3).error is None


def test_a_new_member_may_wait_only_so_long():
    """Kafka's five minutes: a client that gave up must not stay as a member nobody speaks for."""
    bench = Bench()
    long_ms = 1_000_000
    leader = bench.join(rebalance_ms=long_ms, session_ms=long_ms).join.member_id
    bench.settle(leader)
    new = bench.join(rebalance_ms=long_ms)
    bench.advance(299_999)
    assert new.pending
    bench.advance(1)
    assert new.error is UnknownMember
    assert new.join.member_id == ""


def test_leave_lets_the_others_rebalance():
    """LeaveGroup works on a list; each member has its own answer."""
    bench = Bench()
    a, b, c = bench.stable(None, None, None)
    assert bench.leave(b, "nobody", c).left == [None, UnknownMember, None]
    assert bench.heartbeat(a, 3).error is RebalanceInProgress
    assert bench.join(a).join.generation == 4


def test_leave_of_those_who_wait_answers_them():
    """A parked join or sync of a member that is removed is answered 25."""
    bench = Bench()
    leader, follower = bench.stable(None, None)
    join = bench.join(leader)
    bench.leave(leader)
    assert join.error is UnknownMember
    bench.join(follower)
    other = bench.join()
    bench.join(follower)
    sync = bench.sync(other.join.member_id, bench.group.generation)
    bench.leave(other.join.member_id)
    assert sync.error is UnknownMember


def test_the_last_to_leave_empties_the_group():
    """The empty group is stored with a new generation, so that old members stay fenced."""
    bench = Bench()
    a, b = bench.stable(None, None)
    bench.leave(a, b)
    assert bench.state() is GroupState.EMPTY
    assert bench.settled().members == ()
    assert bench.group.generation == 3
    assert bench.join().join.generation == 4


def test_initial_delay_gathers_a_group():
    """Each member that comes within the delay extends it, up to the rebalance timeout."""
    bench = Bench(CoordinatorSettings(initial_rebalance_delay_ms=3_000))
    answers = [bench.join(rebalance_ms=7_000)]
    bench.advance(2_999)
    answers.append(bench.join(rebalance_ms=7_000))
    bench.advance(2_999)
    assert all(answer.pending for answer in answers)
    answers.append(bench.join(rebalance_ms=7_000))
    bench.advance(1_001)
    assert all(answer.pending for answer in answers)  # 6,999 ms
    bench.advance(1)
    assert [answer.join.generation for answer in answers] == [1, 1, 1]


def test_initial_delay_ends_if_nobody_else_comes():
    """One member alone waits for the delay once."""
    bench = Bench(CoordinatorSettings(initial_rebalance_delay_ms=3_000))
    answer = bench.join()
    bench.advance(2_999)
    assert answer.pending
    bench.advance(1)
    assert answer.join.generation == 1


def test_a_full_group_takes_no_more():
    """group.max.size: 81 for those beyond it, members stay."""
    bench = Bench(CoordinatorSettings(members_max=2))
    a, b = bench.stable(None, None)
    assert bench.join().error is GroupFull
    bench.join(a)
    bench.join(b)
    assert bench.group.generation == 3
    bench.settle(a, b)
    bench.leave(b)
    assert bench.join().pending


def test_ids_given_out_are_limited():
    """A client that asks for ids and never joins takes only so much memory."""
    bench = Bench(CoordinatorSettings(members_max=3))
    answers = [bench.join(member_id_required=True).error for _ in range(5)]
    assert answers == [MemberIdRequired] * 3 + [GroupFull] * 2


def test_commit_rules_by_state():
    """Stable and preparing: the current generation commits; completing: 27."""
    bench = Bench()
    leader, follower = bench.stable(None, None)
    assert bench.commit(follower, 2) is None
    bench.join(leader)
    assert bench.commit(follower, 2) is None  # before it joins again it commits what it has
    bench.join(follower)
    assert bench.commit(follower, 3) is RebalanceInProgress
    assert bench.commit(follower, 2) is IllegalGeneration
    bench.settle(leader, follower)
    assert bench.commit(follower, 3) is None


def test_commit_without_a_generation_needs_an_empty_group():
    """Tools and lone consumers commit with generation -1: only while the group has no members."""
    bench = Bench()
    assert bench.commit("", -1) is None
    (member,) = bench.stable(None)
    assert bench.commit("", -1) is UnknownMember
    assert bench.commit(member, -1) is IllegalGeneration
    bench.leave(member)
    assert bench.commit("", -1) is None
    assert bench.commit("anything", -1) is None
    assert bench.commit(member, 1) is UnknownMember


def test_a_closed_group_answers_everybody():
    """When the broker stops, or the group is deleted, nobody is left waiting."""
    bench = Bench()
    leader, follower = bench.stable(None, None)
    join = bench.join(leader)
    bench._perform(bench.group.close(bench.now_ms))
    assert join.error is CoordinatorUnavailable
    assert bench.join().error is CoordinatorUnavailable
    assert bench.join(follower).error is CoordinatorUnavailable
    assert bench.heartbeat(follower, 2).error is CoordinatorUnavailable
    assert bench.sync(follower, 2).error is CoordinatorUnavailable
    assert bench.leave(follower).error is CoordinatorUnavailable
    assert bench.commit(follower, 2) is CoordinatorUnavailable


def test_admin_cannot_remove_dynamic_members_without_their_id():
    """An empty member id with an unknown or no instance id is 25."""
    bench = Bench()
    bench.stable(None)
    unknown = [LeavingMember("", None), LeavingMember("", "nobody")]
    assert bench.leave(*unknown).left == [UnknownMember, UnknownMember]
    assert bench.state() is GroupState.STABLE


def test_the_table_of_transitions_is_closed():
    """Every state stands in the table, and Dead is the end."""
    assert TRANSITIONS.keys() == set(GroupState)
    assert TRANSITIONS[GroupState.DEAD] == frozenset()
