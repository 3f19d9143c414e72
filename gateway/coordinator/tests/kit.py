"""A group under test: clients by short names, time by hand, a store that waits to be told.

Every step ends with `check()`, and a token that is answered twice fails the test.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ister.gateway.coordinator.errors import CoordinatorError
from ister.gateway.coordinator.events import (
    Effect,
    HeartbeatRequest,
    HeartbeatResult,
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    Persist,
    Protocol,
    Reply,
    SyncRequest,
    SyncResult,
)
from ister.gateway.coordinator.group import Group
from ister.gateway.coordinator.records import GroupRecord, decode_group, encode_group
from ister.gateway.coordinator.settings import CoordinatorSettings
from ister.gateway.coordinator.states import GroupState

RANGE = (Protocol("range", b"r"),)
SESSION_MS = 10_000
REBALANCE_MS = 60_000


def join_request(
    member_id: str = "",
    *,
    group: str = "g",
    instance: str | None = None,
    protocols: Sequence[Protocol] = RANGE,
    protocol_type: str = "consumer",
    session_ms: int = SESSION_MS,
    rebalance_ms: int = REBALANCE_MS,
    member_id_required: bool = False,
    skip_assignment_known: bool = True,
) -> JoinRequest:
    return JoinRequest(
        group,
        member_id,
        instance,
        "client",
        "/127.0.0.1",
        session_ms,
        rebalance_ms,
        protocol_type,
        tuple(protocols),
        member_id_required,
        skip_assignment_known,
    )


class Answer:
    """A token: what came back for it."""

    def __init__(self) -> None:
        self.result: JoinResult | SyncResult | HeartbeatResult | LeaveResult | None = None

    @property
    def pending(self) -> bool:
        return self.result is None

    @property
    def error(self) -> type[CoordinatorError] | None:
        assert self.result is not None, "not answered yet"
        return None if self.result.error is None else type(self.result.error)

    @property
    def join(self) -> JoinResult:
        assert isinstance(self.result, JoinResult)
        return self.result

    @property
    def sync(self) -> SyncResult:
        assert isinstance(self.result, SyncResult)
        return self.result

    @property
    def left(self) -> list[type[CoordinatorError] | None]:
        assert isinstance(self.result, LeaveResult)
        return [None if m.error is None else type(m.error) for m in self.result.members]


class Bench:
    def __init__(self, settings: CoordinatorSettings | None = None) -> None:
        self.settings = settings or CoordinatorSettings()
        self.now_ms = 1_000_000
        self.group = Group("g", self.settings, self.now_ms)
        self.ids = 0
        self.storing: list[GroupRecord] = []  # on its way to the store
        self.stored: bytes | None = None
        self.hold_store = False  # records wait for `store()` or `fail_store()`

    # -- requests ----------------------------------------------------------------

    def join(self, member_id: str = "", **options: Any) -> Answer:
        self.ids += 1
        request = join_request(member_id, **options)
        answer = Answer()
        new_id = f"{request.instance_id or 'm'}-{self.ids}"
        self._perform(self.group.join(request, answer, new_id, self.now_ms))
        return answer

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> Answer:
        answer = Answer()
        request = SyncRequest(
            "g",
            member_id,
            instance,
            generation,
            protocol_type,
            protocol,
            tuple((assignments or {}).items()),
        )
        self._perform(self.group.sync(request, answer, self.now_ms))
        return answer

    def heartbeat(self, member_id: str, generation: int, instance: str | None = None) -> Answer:
        answer = Answer()
        request = HeartbeatRequest("g", member_id, instance, generation)
        self._perform(self.group.heartbeat(request, answer, self.now_ms))
        return answer

    def leave(self, *members: str | LeavingMember) -> Answer:
        answer = Answer()
        leaving = [LeavingMember(m) if isinstance(m, str) else m for m in members]
        self._perform(self.group.leave(leaving, answer, self.now_ms))
        return answer

    def commit(
        self, member_id: str, generation: int, instance: str | None = None
    ) -> type[CoordinatorError] | None:
        try:
            self.group.commit(member_id, instance, generation, self.now_ms)
        except CoordinatorError as error:
            return type(error)
        finally:
            self.group.check()
        return None

    # -- time and the store --------------------------------------------------------

    def advance(self, duration_ms: int) -> None:
        """Time passes; the group is woken whenever it asked to be."""
        end_ms = self.now_ms + duration_ms
        while self.group.wake_ms is not None and self.group.wake_ms <= end_ms:
            self.now_ms = max(self.now_ms, self.group.wake_ms)
            self._perform(self.group.expire(self.now_ms))
        self.now_ms = end_ms

    def store(self) -> None:
        record = self.storing.pop(0)
        self.stored = encode_group(record)
        self._perform(self.group.apply(record, self.now_ms))

    def fail_store(self) -> None:
        self._perform(self.group.not_persisted(self.storing.pop(0), self.now_ms))

    def restart(self) -> None:
        """A new process finds what is durable; requests under way are gone with the old one."""
        self.storing.clear()
        self.group = Group("g", self.settings, self.now_ms)
        if self.stored is not None:
            record = decode_group("groups/g", self.stored)
            self._perform(self.group.apply(record, self.now_ms))

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                assert effect.token.result is None, "answered twice"
                effect.token.result = effect.result
            else:
                assert isinstance(effect, Persist)
                self.storing.append(effect.record)
        self.group.check()
        while self.storing and not self.hold_store:
            self.store()

    def state(self) -> GroupState:
        return self.group.state

    def settled(self) -> GroupRecord:
        assert self.group.settled is not None
        return self.group.settled

    # -- common beginnings ---------------------------------------------------------

    def stable(self, *instances: str | None, **options: Any) -> list[str]:
        """A stable group of so many members (None: dynamic), leader first; generation known."""
        ids: list[str] = []
        for instance in instances:
            new = self.join(instance=instance, **options)
            again = [self.join(each, instance=self.instance_of(each), **options) for each in ids]
            ids = [answer.join.member_id for answer in [*again, new]]
            self.settle(*ids)
        return ids

    def settle(self, *ids: str) -> None:
        """Everybody syncs, the leader with a part for each."""
        leader = self.group.members.leader
        assert leader is not None
        parts = {each: b"part of " + each.encode() for each in ids}
        for each in sorted(ids, key=lambda each: each != leader):
            answer = self.sync(
                each,
                self.group.generation,
                parts if each == leader else None,
                instance=self.instance_of(each),
            )
            assert answer.error is None

    def instance_of(self, member_id: str) -> str | None:
        return self.group.members.by_id[member_id].instance_id
