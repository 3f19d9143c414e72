"""Any order of events: the invariants hold, every request is answered once, restarts lose nothing.

`Bench` calls `check()` after every step and fails on a second answer; here the steps
are chosen by Hypothesis, and what clients were told is held against what is there.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ister.gateway.coordinator.events import JoinResult, LeavingMember, Protocol
from ister.gateway.coordinator.settings import CoordinatorSettings
from ister.gateway.coordinator.states import GroupState
from ister.gateway.coordinator.tests.kit import Answer, Bench

PROTOCOLS = st.sampled_from(
    [
        (Protocol("a", b"1"),),
        (Protocol("b", b"1"), Protocol("a", b"1")),
        (Protocol("a", b"2"), Protocol("b", b"2")),
        (Protocol("c", b"1"), Protocol("a", b"1"), Protocol("a", b"1")),
    ]
)
INSTANCES = st.sampled_from([None, None, "x", "y"])
PICK = st.integers(0, 7)


class GroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench(CoordinatorSettings(members_max=4))
        self.open: list[Answer] = []  # not answered when they were sent
        self.known: dict[str, int] = {}  # member id: generation, as clients were told
        self.generation = 0

    def _pick(self, pick: int) -> str:
        """A member id: one that is there, one that was, or a stranger's."""
        ids = [*self.known, "stranger"]
        return ids[pick % len(ids)]

    def _note(self, answer: Answer) -> None:
        self.open.append(answer)

    @rule(
        instance=INSTANCES,
        protocols=PROTOCOLS,
        required=st.booleans(),
        skip=st.booleans(),
    )
    def join_new(self, instance, protocols, required, skip):
        self._note(
            self.bench.join(
                instance=instance,
                protocols=protocols,
                member_id_required=required,
                skip_assignment_known=skip,
            )
        )

    @rule(pick=PICK, protocols=PROTOCOLS, tell_instance=st.booleans())
    def join_again(self, pick, protocols, tell_instance):
        member_id = self._pick(pick)
        member = self.bench.group.members.get(member_id)
        instance = member.instance_id if member is not None and tell_instance else None
        self._note(self.bench.join(member_id, instance=instance, protocols=protocols))

    @rule(pick=PICK, stale=st.booleans())
    def sync(self, pick, stale):
        member_id = self._pick(pick)
        generation = self.known.get(member_id, 0) - stale
        parts = {each: f"{generation}/{each}".encode() for each in self.bench.group.members.by_id}
        self._note(self.bench.sync(member_id, generation, parts))

    @rule(pick=PICK)
    def heartbeat(self, pick):
        member_id = self._pick(pick)
        answer = self.bench.heartbeat(member_id, self.known.get(member_id, 0))
        assert not answer.pending

    @rule(pick=PICK)
    def commit(self, pick):
        member_id = self._pick(pick)
        group = self.bench.group
        allowed = self.bench.commit(member_id, self.known.get(member_id, 0)) is None
        if allowed:
            assert member_id in group.members.by_id
            assert self.known[member_id] == group.generation
            assert group.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE)

    @rule(picks=st.lists(PICK, min_size=1, max_size=2, unique=True), instance=INSTANCES)
    def leave(self, picks, instance):
        leaving = [LeavingMember(self._pick(pick)) for pick in picks]
        if instance is not None:
            leaving.append(LeavingMember("", instance))
        assert not self.bench.leave(*leaving).pending

    @rule(duration_ms=st.sampled_from([1, 3_000, 9_999, 60_000, 400_000]))
    def time_passes(self, duration_ms):
        self.bench.advance(duration_ms)

    @rule(hold=st.booleans())
    def hold_the_store(self, hold):
        self.bench.hold_store = hold
        while self.bench.storing and not hold:
            self.bench.store()

    @precondition(lambda self: self.bench.storing)
    @rule()
    def store(self):
        self.bench.store()

    @precondition(lambda self: self.bench.storing)
    @rule()
    def fail_to_store(self):
        self.bench.fail_store()

    @precondition(lambda self: not self.bench.storing)
    @rule()
    def restart(self):
        before = self.bench.group
        settled = before.settled
        self.bench.restart()
        self.open.clear()
        after = self.bench.group
        self.generation = after.generation
        assert after.settled == settled
        if settled is not None:
            assert after.generation == settled.generation
            assert after.state is (GroupState.STABLE if settled.members else GroupState.EMPTY)
            assert {m.id: m.assignment for m in after.members} == {
                m.id: m.assignment for m in settled.members
            }
            for member in after.members:
                assert member.deadline_ms == self.bench.now_ms + member.session_timeout_ms

    @invariant()
    def answers_agree(self):
        still_open = []
        for answer in self.open:
            if answer.pending:
                still_open.append(answer)
            elif answer.result is not None and answer.result.error is None:
                self._agree(answer)
        self.open = still_open

    def _agree(self, answer: Answer) -> None:
        result = answer.result
        if isinstance(result, JoinResult):
            assert result.generation <= self.bench.group.generation
            self.known[result.member_id] = result.generation
            if result.leader == result.member_id:
                assert all(m.id for m in result.members)
        else:
            # What was handed out is durable.
            parts = {m.assignment for m in self.bench.settled().members}
            assert answer.sync.assignment in parts

    @invariant()
    def generations_rise(self):
        assert self.bench.group.generation >= self.generation
        self.generation = self.bench.group.generation

    @invariant()
    def who_waits_is_known_to_the_group(self):
        waiting = {
            id(token)
            for member in self.bench.group.members
            for token in (member.join_token, member.sync_token)
            if token is not None
        }
        assert waiting == {id(answer) for answer in self.open if answer.pending}

    @invariant()
    def limits_hold(self):
        group = self.bench.group
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            assert len(group.members) <= 4 + len(group.members.by_instance)
        assert len(group.members.pending) <= 4

    def teardown(self):
        """Given time, and a store, nobody waits for ever."""
        self.bench.hold_store = False
        while self.bench.storing:
            self.bench.store()
        self.bench.advance(1_000_000)
        assert not [answer for answer in self.open if answer.pending]
        assert self.bench.group.state is GroupState.EMPTY
        assert not self.bench.group.members.pending
        assert self.bench.group.wake_ms is None


GroupMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestGroup = GroupMachine.TestCase
