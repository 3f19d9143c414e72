"""Groups and cursors over the wire, without an oracle.

The machine has its own tests (`coordinator/tests`), and `compat_tests/versions` compares
every version with Kafka; here stands what the handlers add, and the pitfalls by number.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ister.gateway.broker import Broker
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.error_codes import ErrorCode
from ister.gateway.router import APIS
from ister.gateway.tests.message_values import module_of
from ister.gateway.tests.wire_kit import Running, Wire

NOBODY = ""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One broker for all: every test uses groups and topics of its own."""
    with Running(tmp_path_factory.mktemp("groups") / "data") as running:
        yield running


@pytest.fixture
def wire(shared: Running) -> Iterator[Wire]:
    with shared.connect() as connection:
        yield connection


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """For a group and for a topic: only this test has it."""
    return "".join(c if c.isalnum() else "-" for c in request.node.name)[-200:]


def versions(api: str) -> range:
    low, high = APIS[ApiKey[api.upper()]].versions
    return range(low, high + 1)


def ask(wire: Wire, api: str, version: int, **fields: Any) -> Any:
    module = module_of(api)
    asked = module.REQUEST.message(**fields)
    return wire.request(module, ApiKey[api.upper()], version, asked)


def join(wire: Wire, group: str, member: str = NOBODY, version: int = 5, **fields: Any) -> Any:
    module = module_of("join_group")
    protocol = module.JoinGroupRequestProtocol(name="range", metadata=b"mine")
    values = {
        "group_id": group,
        "member_id": member,
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 30_000,
        "protocol_type": "consumer",
        "protocols": (protocol,),
    }
    return ask(wire, "join_group", version, **{**values, **fields})


def sync(wire: Wire, group: str, member: str, *parts: tuple[str, bytes], version: int = 3) -> Any:
    module = module_of("sync_group")
    assignments = tuple(
        module.SyncGroupRequestAssignment(member_id=who, assignment=what) for who, what in parts
    )
    return ask(
        wire,
        "sync_group",
        version,
        group_id=group,
        generation_id=1,
        member_id=member,
        protocol_type="consumer",
        protocol_name="range",
        assignments=assignments,
    )


def stable(wire: Wire, group: str) -> str:
    """A group with one member; its id."""
    member = join(wire, group).member_id
    joined = join(wire, group, member)
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, 1, member)
    assert sync(wire, group, member, (member, b"all")).assignment == b"all"
    return str(member)


def commit(
    wire: Wire,
    group: str,
    topic: str,
    offset: int,
    *,
    member: str = NOBODY,
    generation: int = -1,
    metadata: str | None = "words",
    version: int = 9,
    topic_id: bytes = bytes(16),
) -> int:
    module = module_of("offset_commit")
    partition = module.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=metadata
    )
    asked = module.OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=(partition,))
    answer = ask(
        wire,
        "offset_commit",
        version,
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        topics=(asked,),
    )
    return int(answer.topics[0].partitions[0].error_code)


def committed(wire: Wire, group: str, topic: str, version: int = 7) -> tuple[int, str | None]:
    module = module_of("offset_fetch")
    if version < 8:
        asked = module.OffsetFetchRequestTopic(name=topic, partition_indexes=(0,))
        answer = ask(wire, "offset_fetch", version, group_id=group, topics=(asked,))
        (found,) = answer.topics[0].partitions
    else:
        named = module.OffsetFetchRequestTopics(name=topic, partition_indexes=(0,))
        group_asked = module.OffsetFetchRequestGroup(group_id=group, topics=(named,))
        answer = ask(wire, "offset_fetch", version, groups=(group_asked,))
        (found,) = answer.groups[0].topics[0].partitions
    assert found.error_code == 0
    return found.committed_offset, found.metadata


@pytest.mark.parametrize("version", versions("find_coordinator"))
def test_the_coordinator_is_here(shared: Running, wire: Wire, name: str, version: int):
    """Pitfall 22: commits go there, whoever owns a partition."""
    answer = ask(wire, "find_coordinator", version, key=name, key_type=0, coordinator_keys=(name,))
    found = answer.coordinators[0] if version >= 4 else answer
    assert (found.error_code, found.node_id, found.port) == (0, 1, shared.port)


@pytest.mark.parametrize("version", range(1, 7))
def test_a_transactional_id_is_refused_for_good(wire: Wire, name: str, version: int):
    """A retriable answer would have the client ask for ever."""
    answer = ask(wire, "find_coordinator", version, key=name, key_type=1, coordinator_keys=(name,))
    found = answer.coordinators[0] if version >= 4 else answer
    assert found.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert found.error_message


@pytest.mark.parametrize("version", versions("join_group"))
def test_a_member_joins(wire: Wire, name: str, version: int):
    """From 4 on it is told its id first and comes again with it (KIP-394)."""
    first = join(wire, name, version=version)
    if version >= 4:
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        first = join(wire, name, first.member_id, version)
    assert (first.error_code, first.generation_id) == (0, 1)
    assert [each.member_id for each in first.members] == [first.leader]
    assert first.members[0].metadata == b"mine"


def test_members_are_not_told_apart_by_client_id(wire: Wire, shared: Running, name: str):
    """Pitfall 24: two consumers of one name are two members."""
    with shared.connect() as other:
        ids = {join(each, name).member_id for each in (wire, other)}
    assert len(ids) == 2


@pytest.mark.parametrize("version", versions("sync_group"))
def test_the_assignment_is_handed_out(wire: Wire, name: str, version: int):
    """Pitfall 23: the bytes that the leader brought."""
    member = join(wire, name).member_id
    join(wire, name, member)
    synced = sync(wire, name, member, (member, b"mine alone"), version=version)
    assert (synced.error_code, synced.assignment) == (0, b"mine alone")


def test_a_member_that_comes_late_starts_a_new_round(wire: Wire, shared: Running, name: str):
    """Pitfalls 23 and 24: the first one hears 27, not 22, and both get an assignment."""
    first = stable(wire, name)
    with shared.connect() as other:
        second = join(other, name).member_id
        module = module_of("join_group")
        protocol = module.JoinGroupRequestProtocol(name="range", metadata=b"late")
        asked = module.JoinGroupRequest(
            group_id=name,
            member_id=second,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            protocol_type="consumer",
            protocols=(protocol,),
        )
        other.ask(ApiKey.JOIN_GROUP, 5, module.REQUEST.write(asked, 5))
        shared.until(lambda broker: _state(broker, name) != "Stable")
        beat = ask(wire, "heartbeat", 3, group_id=name, generation_id=1, member_id=first)
        assert beat.error_code == ErrorCode.REBALANCE_IN_PROGRESS
        again = join(wire, name, first)
        late = module.RESPONSE.read(other.answer()[1], 5)
        assert {each.member_id for each in again.members} == {first, second}
        assert (again.generation_id, late.generation_id, late.leader) == (2, 2, first)


def _state(broker: Broker, group: str) -> str:
    found = broker.groups.describe(group)
    return "" if found is None else found.state.value


@pytest.mark.parametrize("version", versions("heartbeat"))
def test_a_heartbeat_is_judged(wire: Wire, name: str, version: int):
    """Alive; of another generation; a stranger."""
    member = stable(wire, name)
    codes = [
        ask(
            wire, "heartbeat", version, group_id=name, generation_id=generation, member_id=who
        ).error_code
        for who, generation in ((member, 1), (member, 2), ("stranger", 1))
    ]
    assert codes == [0, int(ErrorCode.ILLEGAL_GENERATION), int(ErrorCode.UNKNOWN_MEMBER_ID)]


@pytest.mark.parametrize("version", versions("leave_group"))
def test_members_leave(wire: Wire, name: str, version: int):
    """Pitfall 24: a list from 3 on, each with an error of its own."""
    member = stable(wire, name)
    module = module_of("leave_group")
    if version < 3:
        answer = ask(wire, "leave_group", version, group_id=name, member_id=member)
        assert answer.error_code == 0
    else:
        members = tuple(module.MemberIdentity(member_id=each) for each in ("stranger", member))
        answer = ask(wire, "leave_group", version, group_id=name, members=members)
        assert [each.error_code for each in answer.members] == [25, 0]
    described = ask(wire, "describe_groups", 4, groups=(name,)).groups[0]
    assert (described.group_state, described.members) == ("Empty", ())


@pytest.mark.parametrize("version", versions("describe_groups"))
def test_groups_are_described(wire: Wire, name: str, version: int):
    """State, protocol, members; one that is not there is Dead."""
    member = stable(wire, name)
    found, missing = ask(wire, "describe_groups", version, groups=(name, f"no-{name}")).groups
    assert (found.group_state, found.protocol_type, found.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    (only,) = found.members
    assert (only.member_id, only.member_metadata, only.member_assignment) == (
        member,
        b"mine",
        b"all",
    )
    assert only.client_host == "/127.0.0.1"
    assert missing.group_state == "Dead"
    assert missing.error_code == (69 if version >= 6 else 0)


@pytest.mark.parametrize("version", versions("list_groups"))
def test_groups_are_listed(wire: Wire, name: str, version: int):
    """Those with members and those that are nothing but cursors; filters from 4 and 5 on."""
    wire.create(name)
    stable(wire, name)
    assert commit(wire, f"only-{name}", name, 3) == 0

    def listed(**filters: Any) -> set[str]:
        groups = ask(wire, "list_groups", version, **filters).groups
        return {each.group_id for each in groups if name in each.group_id}

    assert listed() == {name, f"only-{name}"}
    if version >= 4:
        assert listed(states_filter=("stable",)) == {name}
    if version >= 5:
        assert listed(types_filter=("consumer",)) == set()


@pytest.mark.parametrize("version", versions("delete_groups"))
def test_groups_are_deleted_with_their_cursors(wire: Wire, name: str, version: int):
    """Not while they have members; version 3 says why in words."""
    wire.create(name)
    stable(wire, name)
    commit(wire, f"only-{name}", name, 3)
    results = ask(
        wire, "delete_groups", version, groups_names=(name, f"only-{name}", f"no-{name}")
    ).results
    assert [each.error_code for each in results] == [68, 0, 69]
    if version >= 3:
        assert [bool(each.error_message) for each in results] == [True, False, True]
    assert committed(wire, f"only-{name}", name) == (-1, "")


@pytest.mark.parametrize("version", versions("offset_commit"))
def test_a_commit_is_read_back(wire: Wire, name: str, version: int):
    """Pitfall 21: with its metadata, and backwards too."""
    topic_id = wire.create(name)
    for offset, words in ((7, "first"), (3, "back")):
        code = commit(wire, name, name, offset, metadata=words, version=version, topic_id=topic_id)
        assert code == 0
        assert committed(wire, name, name) == (offset, words)


def test_a_stale_commit_is_fenced(wire: Wire, name: str):
    """The current member of the current generation commits; nobody else."""
    wire.create(name)
    member = stable(wire, name)
    assert commit(wire, name, name, 5, member=member, generation=1) == 0
    assert commit(wire, name, name, 9, member=member, generation=0) == 22
    assert commit(wire, name, name, 9, member="stranger", generation=1) == 25
    assert commit(wire, name, name, 9) == 25
    assert committed(wire, name, name) == (5, "words")


@pytest.mark.parametrize("version", [*range(1, 10)])
def test_no_cursor_is_minus_one_and_no_error(wire: Wire, name: str, version: int):
    """Pitfall 19: -1 is said only where no commit exists."""
    wire.create(name)
    assert committed(wire, name, name, version) == (-1, "")
    commit(wire, name, name, 4)
    assert committed(wire, name, name, version) == (4, "words")


def test_cursors_are_deleted(wire: Wire, name: str):
    """OffsetDelete: gone, and the others stay."""
    wire.create(name, 2)
    commit(wire, name, name, 4)
    module = module_of("offset_delete")
    partition = module.OffsetDeleteRequestPartition(partition_index=0)
    topic = module.OffsetDeleteRequestTopic(name=name, partitions=(partition,))
    answer = ask(wire, "offset_delete", 0, group_id=name, topics=(topic,))
    assert (answer.error_code, answer.topics[0].partitions[0].error_code) == (0, 0)
    assert committed(wire, name, name) == (-1, "")


def test_a_cursor_does_not_pass_to_a_topic_made_again(wire: Wire, name: str):
    """Pitfall 20: cursors belong to the id, not to the name."""
    wire.create(name)
    commit(wire, name, name, 4)
    ask(wire, "delete_topics", 5, timeout_ms=1000, topic_names=(name,))
    wire.create(name)
    assert committed(wire, name, name) == (-1, "")


def test_commits_and_members_survive_a_restart(tmp_path: Path):
    """Pitfalls 19 and 25: never -1 for what was committed, and nobody is thrown out."""
    with Running(tmp_path / "data") as running, running.connect() as wire:
        wire.create("t")
        member = stable(wire, "g")
        assert commit(wire, "g", "t", 7, member=member, generation=1) == 0
    with Running(tmp_path / "data") as running, running.connect() as wire:
        assert committed(wire, "g", "t") == (7, "words")
        beat = ask(wire, "heartbeat", 3, group_id="g", generation_id=1, member_id=member)
        assert beat.error_code == 0
