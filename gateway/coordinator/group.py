"""A classic consumer group: one method per event, effects as the result.

The conditions and their order are those of Kafka's coordinator (GroupMetadataManager,
classic groups): the error a client gets decides what it does next. Where Kafka
leaves a request without an answer (one that was overtaken by another of the same
member) it is answered here, so that every token comes back exactly once.

Pure: no clock, no chance, no I/O. New member ids are passed in. `service.py` keeps
the groups and performs the effects; `rounds.py` has the rounds.
"""

from __future__ import annotations

from collections.abc import Sequence

from ister.gateway.coordinator.errors import (
    CoordinatorError,
    CoordinatorUnavailable,
    FencedInstance,
    GroupFull,
    GroupNotEmpty,
    IllegalGeneration,
    InconsistentProtocol,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMember,
)
from ister.gateway.coordinator.events import (
    NO_MEMBER,
    Effect,
    HeartbeatRequest,
    HeartbeatResult,
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    LeftMember,
    SyncRequest,
    SyncResult,
    Token,
)
from ister.gateway.coordinator.members import Member
from ister.gateway.coordinator.rounds import Replacement, Rounds
from ister.gateway.coordinator.states import GroupState
from ister.gateway.coordinator.subscription import CONSUMER, subscribed_topics


class Group(Rounds):
    # -- join --------------------------------------------------------------------

    def join(
        self, request: JoinRequest, token: Token, new_member_id: str, now_ms: int
    ) -> list[Effect]:
        """`new_member_id` is used only if the request comes without one."""
        member_id = request.member_id
        if self.state is GroupState.DEAD:
            self._reply(token, JoinResult(CoordinatorUnavailable(), member_id))
        elif not self._has_room_for(member_id):
            self._turn_away(member_id, token, now_ms)
        elif not self._supports(request):
            self._reply(token, JoinResult(InconsistentProtocol(), member_id))
        elif member_id == NO_MEMBER:
            self._join_new(request, token, new_member_id, now_ms)
        else:
            self._join_known(request, token, now_ms)
        return self._take_effects()

    def _has_room_for(self, member_id: str) -> bool:
        limit = self.settings.members_max
        if member_id == NO_MEMBER and len(self.members.pending) >= limit:
            return False
        member = self.members.get(member_id)
        if self.state is GroupState.EMPTY:
            return True
        if self.state is GroupState.PREPARING_REBALANCE:
            # Those that wait are counted, so that after a lowered limit the last stay outside.
            waits = member is not None and member.join_token is not None
            return waits or self.members.waiting_to_join < limit
        return member is not None or len(self.members) < limit

    def _turn_away(self, member_id: str, token: Token, now_ms: int) -> None:
        self.members.pending.pop(member_id, None)
        member = self.members.get(member_id)
        if member is not None:
            self._remove(member)
        self._reply(token, JoinResult(GroupFull(), NO_MEMBER))
        self._complete_if_all_joined(now_ms)

    def _supports(self, request: JoinRequest) -> bool:
        if self.state is GroupState.EMPTY:
            return bool(request.protocol_type and request.protocols)
        same_type = request.protocol_type == self.protocol_type
        return same_type and self.members.support_any(request.protocols)

    def _join_new(
        self, request: JoinRequest, token: Token, new_member_id: str, now_ms: int
    ) -> None:
        if request.instance_id is not None:
            known = self.members.by_instance.get(request.instance_id)
            if known is None:
                self._add(new_member_id, request, token, now_ms)
            else:
                self._replace(self.members.by_id[known], new_member_id, request, token, now_ms)
        elif request.member_id_required:
            deadline_ms = now_ms + request.session_timeout_ms
            self.members.pending[new_member_id] = deadline_ms
            self._arm(deadline_ms)
            self._reply(token, JoinResult(MemberIdRequired(), new_member_id))
        else:
            self._add(new_member_id, request, token, now_ms)

    def _join_known(self, request: JoinRequest, token: Token, now_ms: int) -> None:
        if request.member_id in self.members.pending and request.instance_id is None:
            self._add(request.member_id, request, token, now_ms)
            return
        try:
            member = self.members.validated(request.member_id, request.instance_id)
        except CoordinatorError as error:
            self._reply(token, JoinResult(error, request.member_id))
            return
        if self._brings_news(member, request):
            self.members.update(member, request)
            self._park_join(member, token)
            self._rebalance(now_ms)
        else:
            # The answer was lost, or a follower asks again: the same generation once more.
            self._reply(token, self._joined(member))

    def _brings_news(self, member: Member, request: JoinRequest) -> bool:
        if self.state is GroupState.PREPARING_REBALANCE:
            return True
        if member.protocols != request.protocols:
            return True
        # A leader that joins again has seen something that changes the assignment.
        return self.state is GroupState.STABLE and member.id == self.members.leader

    def _add(self, member_id: str, request: JoinRequest, token: Token, now_ms: int) -> None:
        if not self.members:
            self.protocol_type = request.protocol_type
        member = Member.joining(member_id, request)
        self.members.add(member)
        self.members.park_join(member, token)
        self._came_in_delay = self._first_round
        self._restart_session(member, now_ms, self.settings.new_member_join_timeout_ms)
        self._rebalance(now_ms)

    def _replace(
        self, old: Member, new_member_id: str, request: JoinRequest, token: Token, now_ms: int
    ) -> None:
        """A static member came back without its id: the same member under a new one."""
        leader_before = self.members.leader or NO_MEMBER
        self._answer_join(old, JoinResult(FencedInstance(), old.id))
        self._answer_sync(old, SyncResult(FencedInstance()))
        member = self.members.replace_static(old, new_member_id)
        self.members.update(member, request)
        self._restart_session(member, now_ms)
        self.members.park_join(member, token)
        if self.state is not GroupState.STABLE:
            # Completing: the leader was told the old id, and would leave the new one without.
            self._rebalance(now_ms)
        elif self.members.select_protocol() != self.protocol:
            self._prepare(now_ms)
        else:
            self._store_replacement(member, request, token, leader_before)

    def _store_replacement(
        self, member: Member, request: JoinRequest, token: Token, leader_before: str
    ) -> None:
        result = self._joined(member)
        if request.skip_assignment_known:
            result = result._replace(skip_assignment=member.id == self.members.leader)
        else:
            # It must not take itself for the leader: it would make an assignment (KIP-814).
            result = result._replace(leader=leader_before, members=())
        record = self._persist({each.id: each.assignment for each in self.members})
        self._replacements.append(Replacement(record, member.id, token, result))

    def _park_join(self, member: Member, token: Token) -> None:
        self._answer_join(member, JoinResult(RebalanceInProgress(), member.id))
        self.members.park_join(member, token)

    def _rebalance(self, now_ms: int) -> None:
        """Begin a round, or go on with the one under way."""
        if self.state is not GroupState.PREPARING_REBALANCE:
            self._prepare(now_ms)
        elif not self._first_round:  # that one ends with its delay
            self._complete_if_all_joined(now_ms)

    # -- sync, heartbeat, leave ----------------------------------------------------

    def sync(self, request: SyncRequest, token: Token, now_ms: int) -> list[Effect]:
        try:
            member = self._member_of_generation(
                request.member_id, request.instance_id, request.generation
            )
            for said, known in (
                (request.protocol_type, self.protocol_type),
                (request.protocol, self.protocol),
            ):
                if said is not None and said != known:
                    raise InconsistentProtocol
            if self.state is GroupState.PREPARING_REBALANCE:
                raise RebalanceInProgress
        except CoordinatorError as error:
            self._reply(token, SyncResult(error))
            return self._take_effects()
        self._note_sync(member)
        if self.state is GroupState.STABLE:
            self._reply(token, self._synced(member))
            return self._take_effects()
        self._answer_sync(member, SyncResult(RebalanceInProgress()))
        member.sync_token = token
        # A leader that syncs again while its assignment is being stored waits for that one:
        # what is stored last and what members were told must not differ.
        if member.id == self.members.leader and self._assigning is None:
            self._assigning = self._persist(dict(request.assignments))
        return self._take_effects()

    def _note_sync(self, member: Member) -> None:
        self.members.unsynced.discard(member.id)
        if not self.members.unsynced:
            self._sync_deadline_ms = None

    def heartbeat(self, request: HeartbeatRequest, token: Token, now_ms: int) -> list[Effect]:
        try:
            member = self._member_of_generation(
                request.member_id, request.instance_id, request.generation
            )
        except CoordinatorError as error:
            self._reply(token, HeartbeatResult(error))
            return self._take_effects()
        self._restart_session(member, now_ms)
        preparing = self.state is GroupState.PREPARING_REBALANCE
        self._reply(token, HeartbeatResult(RebalanceInProgress() if preparing else None))
        return self._take_effects()

    def leave(self, leaving: Sequence[LeavingMember], token: Token, now_ms: int) -> list[Effect]:
        if self.state is GroupState.DEAD:
            self._reply(token, LeaveResult(CoordinatorUnavailable()))
            return self._take_effects()
        left = tuple(self._leave_one(each) for each in leaving)
        if any(each.error is None for each in left):
            if self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
                self._prepare(now_ms)
            elif not self._first_round:
                self._complete_if_all_joined(now_ms)
        self._reply(token, LeaveResult(None, left))
        return self._take_effects()

    def _leave_one(self, leaving: LeavingMember) -> LeftMember:
        member_id, instance_id = leaving
        try:
            if member_id == NO_MEMBER:  # an admin names the instance
                known = self.members.by_instance.get(instance_id or "")
                if known is None:
                    raise UnknownMember
                self._remove(self.members.by_id[known])
            elif member_id in self.members.pending:
                del self.members.pending[member_id]
            else:
                self._remove(self.members.validated(member_id, instance_id))
        except CoordinatorError as error:
            return LeftMember(member_id, instance_id, error)
        return LeftMember(member_id, instance_id, None)

    def _member_of_generation(
        self, member_id: str, instance_id: str | None, generation: int
    ) -> Member:
        if self.state is GroupState.DEAD:
            raise CoordinatorUnavailable
        member = self.members.validated(member_id, instance_id)
        if generation != self.generation:
            raise IllegalGeneration
        return member

    # -- cursors and the end -------------------------------------------------------

    def commit(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> None:
        """Whether this one may set cursors now; raises if not. It counts as a heartbeat."""
        if self.state is GroupState.DEAD:
            raise CoordinatorUnavailable
        if generation < 0 and self.state is GroupState.EMPTY:
            return  # an admin, or a consumer that manages its partitions itself
        if generation < 0 and member_id == NO_MEMBER and instance_id is None:
            raise UnknownMember
        member = self._member_of_generation(member_id, instance_id, generation)
        if self.state is GroupState.COMPLETING_REBALANCE:
            # It knows the new generation, but not yet what it has in it.
            raise RebalanceInProgress
        self._restart_session(member, now_ms)

    def check_deletable(self) -> None:
        """Raises GroupNotEmpty."""
        if self.state is GroupState.DEAD:
            raise CoordinatorUnavailable
        if self.state is not GroupState.EMPTY:
            raise GroupNotEmpty

    def check_cursors_deletable(self) -> None:
        """Raises GroupNotEmpty if there are members whose subscription is nobody's to read."""
        if self.protocol_type != CONSUMER:
            self.check_deletable()

    def is_subscribed(self, topic: str) -> bool:
        """If it cannot be known of a group of consumers, yes: their cursors stay."""
        if self.protocol_type != CONSUMER:
            return False
        for member in self.members:
            for name, metadata in member.protocols:
                if name == self.protocol or self.protocol is None:
                    topics = subscribed_topics(metadata)
                    if topics is None or topic in topics:
                        return True
        return False

    def close(self, now_ms: int) -> list[Effect]:
        """The group is deleted, or the broker stops: whoever waits is told to try again."""
        error = CoordinatorUnavailable()
        for member in self.members:
            self._answer_join(member, JoinResult(error, member.id))
            self._answer_sync(member, SyncResult(error))
            self.members.remove(member)
        self.members.pending.clear()
        self._join_deadline_ms = self._sync_deadline_ms = self.wake_ms = None
        self._assigning = None
        self._replacements.clear()
        self._first_round = False
        self._move_to(GroupState.DEAD, now_ms)
        return self._take_effects()
