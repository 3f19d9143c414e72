"""The members of a group, and what they have in common.

Keeps the counts that every join and sync asks for (who waits, which protocols all
support, which instance id is whose), so that none of them walks all members. It
answers nobody: whoever removes a member takes its tokens first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ister.gateway.coordinator.errors import FencedInstance, UnknownMember
from ister.gateway.coordinator.events import JoinRequest, Protocol, Token
from ister.gateway.coordinator.records import MemberRecord, ProtocolRecord


@dataclass(slots=True)
class Member:
    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""  # given only by a record that is durable
    is_new: bool = False  # has never had an answer to a join
    join_token: Token | None = None  # set by `Members.park_join` alone, which counts it
    sync_token: Token | None = None
    # None only while it waits for an answer, which then sets it anew.
    deadline_ms: int | None = None

    @classmethod
    def joining(cls, member_id: str, request: JoinRequest) -> Member:
        return cls(
            id=member_id,
            instance_id=request.instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=_rebalance_timeout_ms(request),
            protocols=request.protocols,
            is_new=True,
        )

    @classmethod
    def stored(cls, record: MemberRecord) -> Member:
        return cls(
            id=record.id,
            instance_id=record.instance_id,
            client_id=record.client_id,
            client_host=record.client_host,
            session_timeout_ms=record.session_timeout_ms,
            rebalance_timeout_ms=record.rebalance_timeout_ms,
            protocols=tuple(Protocol(each.name, each.metadata) for each in record.protocols),
            assignment=record.assignment,
        )

    def record(self, assignment: bytes) -> MemberRecord:
        return MemberRecord(
            id=self.id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            protocols=tuple(ProtocolRecord(each.name, each.metadata) for each in self.protocols),
            assignment=assignment,
        )

    @property
    def waits(self) -> bool:
        return self.join_token is not None or self.sync_token is not None

    def metadata(self, protocol: str) -> bytes:
        for each in self.protocols:
            if each.name == protocol:
                return each.metadata
        raise AssertionError(f"member {self.id!r} does not have the protocol {protocol!r}")

    def vote(self, candidates: set[str]) -> str:
        """The one it likes best."""
        return next(each.name for each in self.protocols if each.name in candidates)


class Members:
    def __init__(self) -> None:
        self.by_id: dict[str, Member] = {}
        self.by_instance: dict[str, str] = {}  # instance id: member id, of exactly the static ones
        self.leader: str | None = None  # a member; None exactly if there are none
        # Ids given out (MemberIdRequired) that have not come back: id -> deadline. Never members.
        self.pending: dict[str, int] = {}
        self.unsynced: set[str] = set()  # members that have not synced in this generation
        self.waiting_to_join = 0  # members with a join token
        self._support: Counter[str] = Counter()  # protocol name: members that have it
        self.changes = 0  # of who is here and what they hold

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self.by_id.values()))

    def get(self, member_id: str) -> Member | None:
        return self.by_id.get(member_id)

    def validated(self, member_id: str, instance_id: str | None) -> Member:
        """The member that says so; FencedInstance or UnknownMember."""
        if instance_id is not None:
            known = self.by_instance.get(instance_id)
            if known is None:
                raise UnknownMember
            if known != member_id:
                raise FencedInstance
        member = self.by_id.get(member_id)
        if member is None:
            raise UnknownMember
        return member

    # -- coming and going --------------------------------------------------------

    def add(self, member: Member) -> None:
        assert member.id not in self.by_id
        self.changes += 1
        self.by_id[member.id] = member
        self.pending.pop(member.id, None)
        self._support.update(_names(member.protocols))
        if member.instance_id is not None:
            assert member.instance_id not in self.by_instance
            self.by_instance[member.instance_id] = member.id
        if self.leader is None:
            self.leader = member.id

    def remove(self, member: Member) -> None:
        assert not member.waits, "answer it first"
        self.changes += 1
        del self.by_id[member.id]
        self.unsynced.discard(member.id)
        self._withdraw(member.protocols)
        if member.instance_id is not None:
            del self.by_instance[member.instance_id]
        if self.leader == member.id:
            self.leader = next(iter(self.by_id), None)

    def replace_static(self, old: Member, new_id: str) -> Member:
        """The same member under a new id: everything else stays, the assignment too."""
        assert not old.waits, "answer it first"
        assert old.instance_id is not None
        self.changes += 1
        new = replace(old, id=new_id, is_new=False)
        del self.by_id[old.id]
        self.by_id[new_id] = new
        self.by_instance[old.instance_id] = new_id
        if old.id in self.unsynced:
            self.unsynced.remove(old.id)
            self.unsynced.add(new_id)
        if self.leader == old.id:
            self.leader = new_id
        return new

    def update(self, member: Member, request: JoinRequest) -> None:
        self._withdraw(member.protocols)
        member.protocols = request.protocols
        self._support.update(_names(request.protocols))
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = _rebalance_timeout_ms(request)

    # -- waiting -----------------------------------------------------------------

    def park_join(self, member: Member, token: Token) -> None:
        assert member.join_token is None, "answer it first"
        member.join_token = token
        self.waiting_to_join += 1

    def take_join(self, member: Member) -> Token | None:
        token, member.join_token = member.join_token, None
        if token is not None:
            self.waiting_to_join -= 1
        return token

    @property
    def all_joined(self) -> bool:
        return len(self.by_id) == self.waiting_to_join and not self.pending

    def elect_joined_leader(self) -> bool:
        """Keep the leader if it has joined, else take one that has; False if nobody has."""
        if self.leader is None or not self.waiting_to_join:
            return False
        if self.by_id[self.leader].join_token is None:
            self.leader = next(m.id for m in self.by_id.values() if m.join_token is not None)
        return True

    # -- in common ---------------------------------------------------------------

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.by_id.values()), default=0)

    def support_any(self, protocols: Iterable[Protocol]) -> bool:
        """Whether all members have one of them."""
        return any(self._support[each.name] == len(self.by_id) for each in protocols)

    def select_protocol(self) -> str:
        """Of those that all have, the one that most like best; the elder member decides a tie."""
        candidates = {name for name, count in self._support.items() if count == len(self.by_id)}
        votes = Counter(member.vote(candidates) for member in self.by_id.values())
        return max(votes, key=votes.__getitem__)

    # -- inside ------------------------------------------------------------------

    def _withdraw(self, protocols: tuple[Protocol, ...]) -> None:
        for name in _names(protocols):
            self._support[name] -= 1
            if not self._support[name]:
                del self._support[name]

    def check(self) -> None:
        """What is written beside the fields, for tests."""
        assert all(member_id == member.id for member_id, member in self.by_id.items())
        assert self.by_instance == {m.instance_id: m.id for m in self if m.instance_id is not None}
        assert (self.leader is None) == (not self.by_id)
        assert self.leader is None or self.leader in self.by_id
        assert not self.pending.keys() & self.by_id.keys()
        assert self.unsynced <= self.by_id.keys()
        assert self.waiting_to_join == sum(m.join_token is not None for m in self)
        support: Counter[str] = Counter()
        for member in self:
            support.update(_names(member.protocols))
            assert member.deadline_ms is not None or member.waits
            assert member.join_token is None or member.sync_token is None
        assert support == self._support


def _names(protocols: tuple[Protocol, ...]) -> set[str]:
    return {protocol.name for protocol in protocols}


def _rebalance_timeout_ms(request: JoinRequest) -> int:
    if request.rebalance_timeout_ms < 0:
        return request.session_timeout_ms
    return request.rebalance_timeout_ms
