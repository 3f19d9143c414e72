"""The rounds of a group: gathering members, a generation, an assignment.

A round begins when a member comes, goes or has something new to say. It gathers
joins until all members are there, or for the longest rebalance timeout among
them; who is missing then is out (static members stay: they have their session
timeout). Then the generation rises, everybody gets an answer, the leader one
with all members in it; the leader's assignment is made durable, and only then
does anybody get a part of it.

What survives a restart is `settled`, the last durable record, and it changes
only in `apply`. Everything else is the round under way. Assignments are handed
to members in `apply` and nowhere else.

Time comes in as `now_ms` (any clock that does not go back). `wake_ms` is a time
at or before the earliest deadline: heartbeats move deadlines away without
touching it, and `expire`, called then, finds the next one.

Requests are answered in `group.py`, which builds on this.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ister.gateway.coordinator.errors import (
    CoordinatorError,
    CoordinatorUnavailable,
    RebalanceInProgress,
    UnknownMember,
)
from ister.gateway.coordinator.events import (
    NO_MEMBER,
    Effect,
    JoinedMember,
    JoinResult,
    Persist,
    Reply,
    Result,
    SyncResult,
    Token,
)
from ister.gateway.coordinator.members import Member, Members
from ister.gateway.coordinator.records import GroupRecord, contradiction
from ister.gateway.coordinator.settings import CoordinatorSettings
from ister.gateway.coordinator.states import TRANSITIONS, GroupState


class Replacement(NamedTuple):
    """A static member that waits until its new id is durable."""

    record: GroupRecord
    member_id: str
    token: Token
    result: JoinResult


class Rounds:
    def __init__(self, group_id: str, settings: CoordinatorSettings, now_ms: int) -> None:
        self.id = group_id
        self.settings = settings
        self.state = GroupState.EMPTY
        self.state_since_ms = now_ms
        self.generation = 0
        self.protocol_type: str | None = None  # of the members; of the last ones if empty
        self.protocol: str | None = None  # None until the first generation, and while empty
        self.members = Members()
        self.settled: GroupRecord | None = None
        self.maybe_stored = False  # the store may hold a record of this group
        self.wake_ms: int | None = None
        # Exactly while preparing; the end of the joins.
        self._join_deadline_ms: int | None = None
        self._sync_deadline_ms: int | None = None  # only while completing or stable
        self._first_round = False  # preparing, from an empty group: joins wait for the delay
        self._delay_left_ms = 0  # by how much the delay of the first round may yet grow
        self._came_in_delay = False
        self._assigning: GroupRecord | None = None  # on its way to the store; only while completing
        self._replacements: list[Replacement] = []
        self._effects: list[Effect] = []

    # -- the store ---------------------------------------------------------------

    def apply(self, record: GroupRecord, now_ms: int) -> list[Effect]:
        """The record is durable: just now, or in an earlier life of the broker."""
        self.settled = record
        self.maybe_stored = True
        if record is self._assigning:
            self._assign({member.id: member.assignment for member in record.members}, now_ms)
        elif self._is_fresh:
            self._take_over(record, now_ms)
        for waiting in self._take_replacements(record):
            # Unless another round has taken the member along meanwhile.
            if self.state is GroupState.STABLE and self._waits_for(waiting):
                self._answer_join(self.members.by_id[waiting.member_id], waiting.result)
        return self._take_effects()

    def not_persisted(self, record: GroupRecord, now_ms: int) -> list[Effect]:
        """Nobody knows if the record is durable; whoever waits for it is told to try again."""
        if record is self._assigning:
            self._assigning = None
            self._answer_syncs(CoordinatorUnavailable(), now_ms)
            self._prepare(now_ms)
        for waiting in self._take_replacements(record):
            # It does not know its new id, so it comes again without one and is replaced again.
            if self.state is GroupState.STABLE and self._waits_for(waiting):
                error = CoordinatorUnavailable()
                self._answer_join(
                    self.members.by_id[waiting.member_id], JoinResult(error, NO_MEMBER)
                )
        return self._take_effects()

    @property
    def _is_fresh(self) -> bool:
        return (
            self.state is GroupState.EMPTY
            and self.generation == 0
            and not self.members.pending
            and self.protocol_type is None
        )

    def _take_over(self, record: GroupRecord, now_ms: int) -> None:
        """Become what the record says; every member gets a full session timeout."""
        assert contradiction(record) is None
        self.generation = record.generation
        self.protocol_type = record.protocol_type
        self.protocol = record.protocol
        for stored in record.members:
            member = Member.stored(stored)
            self.members.add(member)
            self._restart_session(member, now_ms)
        if not record.members:
            return
        self.members.leader = record.leader
        self.state = GroupState.STABLE
        if len(self.members) > self.settings.members_max:
            self._prepare(now_ms)  # the limit was lowered: the last to rejoin stay outside

    def _persist(self, assignments: Mapping[str, bytes]) -> GroupRecord:
        record = GroupRecord(
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=self.members.leader,
            members=tuple(
                member.record(assignments.get(member.id, b"")) for member in self.members
            ),
        )
        self.maybe_stored = True
        self._effects.append(Persist(record))
        return record

    def _take_replacements(self, record: GroupRecord) -> list[Replacement]:
        found = [waiting for waiting in self._replacements if waiting.record is record]
        if found:
            self._replacements = [w for w in self._replacements if w.record is not record]
        return found

    def _waits_for(self, waiting: Replacement) -> bool:
        member = self.members.get(waiting.member_id)
        return member is not None and member.join_token is waiting.token

    # -- time --------------------------------------------------------------------

    def expire(self, now_ms: int) -> list[Effect]:
        """Do what is due, and find the next deadline."""
        if self._join_deadline_ms is not None and self._join_deadline_ms <= now_ms:
            self._end_of_joins(now_ms)
        if self._sync_deadline_ms is not None and self._sync_deadline_ms <= now_ms:
            self._end_of_syncs(now_ms)
        for member in self.members:
            if member.deadline_ms is not None and member.deadline_ms <= now_ms:
                self._end_of_session(member, now_ms)
        overdue = [each for each, deadline in self.members.pending.items() if deadline <= now_ms]
        for member_id in overdue:
            del self.members.pending[member_id]
        if overdue:
            self._complete_if_all_joined(now_ms)
        self._find_wake()
        return self._take_effects()

    def _end_of_joins(self, now_ms: int) -> None:
        if self._first_round and self._came_in_delay and self._delay_left_ms:
            self._came_in_delay = False
            delay_ms = min(self.settings.initial_rebalance_delay_ms, self._delay_left_ms)
            self._delay_left_ms -= delay_ms
            self._join_deadline_ms = now_ms + delay_ms
        else:
            self._complete(now_ms)

    def _end_of_syncs(self, now_ms: int) -> None:
        """Members that were told of a generation and never asked for their part are out."""
        self._sync_deadline_ms = None
        if self.members.unsynced:
            for member_id in list(self.members.unsynced):
                self._remove(self.members.by_id[member_id])
            self._prepare(now_ms)

    def _end_of_session(self, member: Member, now_ms: int) -> None:
        if self.members.get(member.id) is not member:
            return  # gone with what was due before it
        if member.waits and not member.is_new:
            member.deadline_ms = None  # the answer will set it; whoever waits cannot heartbeat
            return
        self._remove(member)
        self._after_removal(now_ms)

    def _after_removal(self, now_ms: int) -> None:
        if self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self._prepare(now_ms)
        else:
            self._complete_if_all_joined(now_ms)

    def _restart_session(self, member: Member, now_ms: int, timeout_ms: int | None = None) -> None:
        member.deadline_ms = now_ms + (timeout_ms or member.session_timeout_ms)
        self._arm(member.deadline_ms)

    def _arm(self, deadline_ms: int) -> None:
        if self.wake_ms is None or deadline_ms < self.wake_ms:
            self.wake_ms = deadline_ms

    def _find_wake(self) -> None:
        deadlines = [m.deadline_ms for m in self.members.by_id.values()]
        deadlines += [self._join_deadline_ms, self._sync_deadline_ms]
        deadlines += self.members.pending.values()
        self.wake_ms = min((each for each in deadlines if each is not None), default=None)

    # -- a round -----------------------------------------------------------------

    def _prepare(self, now_ms: int) -> None:
        """Begin a round: everybody is to join again."""
        if self.state is GroupState.COMPLETING_REBALANCE:
            self._assigning = None  # should it become durable all the same, nobody has seen it
            self._answer_syncs(RebalanceInProgress(), now_ms)
        self.members.unsynced.clear()
        self._sync_deadline_ms = None
        self._first_round = self.state is GroupState.EMPTY
        timeout_ms = self.members.rebalance_timeout_ms
        self._move_to(GroupState.PREPARING_REBALANCE, now_ms)
        if self._first_round:
            delay_ms = self.settings.initial_rebalance_delay_ms
            self._delay_left_ms = max(timeout_ms - delay_ms, 0)
            self._came_in_delay = False
            timeout_ms = delay_ms
        # Without a delay the first round does not wait for ids that were given out, nor does Kafka.
        if timeout_ms == 0 if self._first_round else self.members.all_joined:
            self._complete(now_ms)
        else:
            self._join_deadline_ms = now_ms + timeout_ms
            self._arm(self._join_deadline_ms)

    def _complete_if_all_joined(self, now_ms: int) -> None:
        if self.state is GroupState.PREPARING_REBALANCE and self.members.all_joined:
            self._complete(now_ms)

    def _complete(self, now_ms: int) -> None:
        """The joins are over: the next generation, with those who are there."""
        for member in self.members:
            if member.join_token is None and member.instance_id is None:
                self._remove(member)
        if not self.members.elect_joined_leader() and self.members:
            # Only static members, none of them back: wait for one, or for their sessions to end.
            self._join_deadline_ms = now_ms + self.members.rebalance_timeout_ms
            self._arm(self._join_deadline_ms)
            return
        self._join_deadline_ms = None
        self._first_round = False
        self.generation += 1
        if not self.members:
            self.protocol = None
            self._move_to(GroupState.EMPTY, now_ms)
            self._persist({})
            return
        self.protocol = self.members.select_protocol()
        self._move_to(GroupState.COMPLETING_REBALANCE, now_ms)
        for member in self.members:
            member.is_new = False
            self._restart_session(member, now_ms)
            self.members.unsynced.add(member.id)
            self._answer_join(member, self._joined(member))
        self._sync_deadline_ms = now_ms + self.members.rebalance_timeout_ms
        self._arm(self._sync_deadline_ms)

    def _assign(self, assignments: Mapping[str, bytes], now_ms: int) -> None:
        self._assigning = None
        self.members.changes += 1
        for member in self.members:
            member.assignment = assignments.get(member.id, b"")
        self._move_to(GroupState.STABLE, now_ms)
        self._answer_syncs(None, now_ms)

    def _joined(self, member: Member) -> JoinResult:
        """What a member is told of the current generation."""
        assert self.members.leader is not None
        leads = member.id == self.members.leader
        return JoinResult(
            error=None,
            member_id=member.id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=self.members.leader,
            members=self._joined_members() if leads else (),
        )

    def _joined_members(self) -> tuple[JoinedMember, ...]:
        assert self.protocol is not None
        return tuple(
            JoinedMember(member.id, member.instance_id, member.metadata(self.protocol))
            for member in self.members
        )

    def _synced(self, member: Member) -> SyncResult:
        return SyncResult(None, self.protocol_type, self.protocol, member.assignment)

    # -- members and their tokens --------------------------------------------------

    def _remove(self, member: Member) -> None:
        self._answer_join(member, JoinResult(UnknownMember(), NO_MEMBER))
        self._answer_sync(member, SyncResult(UnknownMember()))
        self.members.remove(member)

    def _answer_join(self, member: Member, result: JoinResult) -> None:
        token = self.members.take_join(member)
        if token is not None:
            self._reply(token, result)

    def _answer_sync(self, member: Member, result: SyncResult) -> bool:
        token, member.sync_token = member.sync_token, None
        if token is not None:
            self._reply(token, result)
        return token is not None

    def _answer_syncs(self, error: CoordinatorError | None, now_ms: int) -> None:
        """Everybody who waits; with an error nobody has an assignment any more."""
        self.members.changes += error is not None
        for member in self.members:
            if error is not None:
                member.assignment = b""
            result = self._synced(member) if error is None else SyncResult(error)
            if self._answer_sync(member, result):
                self._restart_session(member, now_ms)

    def _reply(self, token: Token, result: Result) -> None:
        self._effects.append(Reply(token, result))

    def _take_effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    def _move_to(self, state: GroupState, now_ms: int) -> None:
        assert state in TRANSITIONS[self.state], f"{self.state} -> {state}"
        self.state = state
        self.state_since_ms = now_ms

    # -- for tests -----------------------------------------------------------------

    def check(self) -> None:
        """What is written beside the fields."""
        self.members.check()
        assert not self._effects
        assert self.settled is None or contradiction(self.settled) is None
        preparing = self.state is GroupState.PREPARING_REBALANCE
        completing = self.state is GroupState.COMPLETING_REBALANCE
        assert (self._join_deadline_ms is not None) == preparing
        assert self._sync_deadline_ms is None or completing or self.state is GroupState.STABLE
        assert self._assigning is None or completing
        assert not self._first_round or preparing
        assert not self.members.unsynced or self._sync_deadline_ms is not None
        if self.state in (GroupState.EMPTY, GroupState.DEAD):
            assert not self.members
        if completing or self.state is GroupState.STABLE:
            assert self.members
            assert self.protocol is not None
            for member in self.members:
                member.metadata(self.protocol)
        for member in self.members:
            assert member.sync_token is None or completing
            if member.join_token is not None and not preparing:
                assert any(self._waits_for(each) for each in self._replacements)
            if member.deadline_ms is not None:
                assert self.wake_ms is not None
                assert self.wake_ms <= member.deadline_ms
