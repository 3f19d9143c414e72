"""What goes into a group and what comes out: requests, results, effects.

A request is what the client said, with the version of the API already turned into
what it means. An effect is something for the shell to do; the machine does
nothing itself. A *token* stands for a request that waits for its answer: the
machine keeps it and hands it back with the result, exactly once.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from ister.gateway.coordinator.errors import CoordinatorError
from ister.gateway.coordinator.records import GroupRecord

Token: TypeAlias = Any

NO_MEMBER = ""  # the member id of a client that has none yet


class Protocol(NamedTuple):
    name: str
    metadata: bytes


class JoinRequest(NamedTuple):
    group: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int  # negative (version 0 has none): the session timeout
    protocol_type: str
    protocols: tuple[Protocol, ...]  # in the order of preference
    member_id_required: bool = True  # version 4 and above: KIP-394
    skip_assignment_known: bool = True  # version 9 and above: KIP-814


class JoinedMember(NamedTuple):
    id: str
    instance_id: str | None
    metadata: bytes


class JoinResult(NamedTuple):
    error: CoordinatorError | None
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = NO_MEMBER
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()  # for the leader alone


class SyncRequest(NamedTuple):
    group: str
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None = None  # None: not said (below version 5)
    protocol: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()  # member id, assignment; of the leader


class SyncResult(NamedTuple):
    error: CoordinatorError | None
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class HeartbeatRequest(NamedTuple):
    group: str
    member_id: str
    instance_id: str | None
    generation: int


class HeartbeatResult(NamedTuple):
    error: CoordinatorError | None


class LeavingMember(NamedTuple):
    member_id: str  # NO_MEMBER: an admin removes a static member by its instance id
    instance_id: str | None = None


class LeftMember(NamedTuple):
    member_id: str
    instance_id: str | None
    error: CoordinatorError | None


class LeaveResult(NamedTuple):
    error: CoordinatorError | None
    members: tuple[LeftMember, ...] = ()


Result: TypeAlias = JoinResult | SyncResult | HeartbeatResult | LeaveResult


class Reply(NamedTuple):
    """Answer the request that the token stands for."""

    token: Token
    result: Result


class Persist(NamedTuple):
    """Make the record durable, then `apply` it; else say `not_persisted`. In order."""

    record: GroupRecord


Effect: TypeAlias = Reply | Persist
