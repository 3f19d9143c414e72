"""A group as DescribeGroups and ListGroups show it."""

from __future__ import annotations

from typing import NamedTuple

from ister.gateway.coordinator.group import Group
from ister.gateway.coordinator.states import GroupState

GROUP_TYPE = "classic"


class DescribedMember(NamedTuple):
    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class GroupDescription(NamedTuple):
    id: str
    state: GroupState
    protocol_type: str
    protocol: str
    members: tuple[DescribedMember, ...]
    generation: int


class GroupListing(NamedTuple):
    id: str
    state: GroupState
    protocol_type: str
    group_type: str = GROUP_TYPE


def describe(group: Group) -> GroupDescription:
    """Metadata and assignments only of a stable group: before that they are not settled."""
    stable = group.state is GroupState.STABLE
    protocol = group.protocol if stable and group.protocol is not None else ""
    members = tuple(
        DescribedMember(
            member.id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.metadata(protocol) if stable else b"",
            member.assignment if stable else b"",
        )
        for member in group.members
    )
    return GroupDescription(
        group.id, group.state, group.protocol_type or "", protocol, members, group.generation
    )


def describe_simple(group_id: str) -> GroupDescription:
    """A group that is nothing but cursors: of a consumer that manages its partitions itself."""
    return GroupDescription(group_id, GroupState.EMPTY, "", "", (), 0)


def listing(group: Group) -> GroupListing:
    return GroupListing(group.id, group.state, group.protocol_type or "")
