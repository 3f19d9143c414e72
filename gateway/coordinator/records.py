"""What of a group survives a restart: one record per group, under `groups/{group}`.

It is written when a round is complete (with the leader's assignment), when a group
becomes empty, and when a static member is replaced without a round. A record
always stands for a whole group: one with members is a stable group, one without is
an empty group. Rounds under way are not stored; members go through them again.
"""

from __future__ import annotations

import msgspec

from ister.metadata.errors import StoreDamaged
from ister.metadata.records import Record, decode, encode

GROUPS = "groups/"


class ProtocolRecord(msgspec.Struct, frozen=True):
    name: str
    metadata: bytes  # the client's, opaque


class MemberRecord(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[ProtocolRecord, ...]  # in the order of the member's preference
    assignment: bytes
    instance_id: str | None = None


class GroupRecord(Record, frozen=True, kw_only=True):
    generation: int
    protocol_type: str | None
    protocol: str | None  # None: no members
    leader: str | None  # None: no members
    members: tuple[MemberRecord, ...] = ()


def group_key(group: str) -> str:
    return GROUPS + group


def group_of(key: str) -> str:
    return key.removeprefix(GROUPS)


def encode_group(record: GroupRecord) -> bytes:
    return encode(record)


def decode_group(key: str, value: bytes) -> GroupRecord:
    """StoreDamaged, naming the key, if the record contradicts itself."""
    record = decode(GroupRecord, key, value)
    problem = contradiction(record)
    if problem is not None:
        raise StoreDamaged(
            f"the record {key!r} contradicts itself ({problem}): restore the metadata store from"
            " a backup, or delete the group with an older version of Ister"
        )
    return record


def contradiction(record: GroupRecord) -> str | None:
    """What a record says of a group that no group can be; None if it is sound."""
    if record.generation < 0:
        return "its generation is negative"
    ids = {member.id for member in record.members}
    if len(ids) != len(record.members):
        return "a member id stands in it twice"
    instances = [member.instance_id for member in record.members if member.instance_id is not None]
    if len(set(instances)) != len(instances):
        return "an instance id stands in it twice"
    if not record.members:
        return None if record.leader is None else "it has a leader, but no members"
    if record.leader not in ids:
        return "its leader is not a member"
    if record.protocol_type is None or record.protocol is None:
        return "it has members, but no protocol"
    for member in record.members:
        if record.protocol not in {protocol.name for protocol in member.protocols}:
            return f"member {member.id!r} does not have the protocol {record.protocol!r}"
    return None
