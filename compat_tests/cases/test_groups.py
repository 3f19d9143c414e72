"""Groups: who gets what, churn, a death, commits, fencing, resetting, deleting."""

from __future__ import annotations

import pytest

from compat_tests.cases.needs import choices, needs
from compat_tests.clients import ClientError, Record
from compat_tests.waiting import wait_for

UNKNOWN_MEMBER_ID = 25
NON_EMPTY_GROUP = 68
GROUP_ID_NOT_FOUND = 69
FENCED_INSTANCE_ID = 82

PARTITIONS = 6
SESSION_MS = 3_000  # a dead member is missed for this long


class Crowd:
    """Members of one group and everything that they read."""

    def __init__(self):
        self._members = {}  # name -> client
        self.values = []

    def add(self, client, member):
        self._members[member] = client

    def remove(self, member):
        del self._members[member]

    def look(self):
        shares = {}
        for member, client in self._members.items():
            found = client.look(member)
            assert found.error is None, f"{member} failed with {found.error}"
            self.values += [each.value for each in found.records]
            shares[member] = [partition for _, partition in found.assignment]
        return shares

    def has_read(self, lot):
        self.look()
        return {lot + b"%d" % partition for partition in range(PARTITIONS)} <= set(self.values)

    def settled(self):
        """Every partition has one owner, and nobody has more than a fair share."""
        shares = self.look()
        fair = PARTITIONS // len(shares)
        owned = sorted(partition for share in shares.values() for partition in share)
        return owned == list(range(PARTITIONS)) and all(len(s) == fair for s in shares.values())


@choices("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_churn(client, names, joined, assignor):
    """Three members, then two, then three: nothing is lost, every partition has one owner."""
    topic, group = names("topic"), names("group")
    client.create_topic(topic, partitions=PARTITIONS)
    crowd = Crowd()
    for member in "abc":
        joined(member, group, [topic], assignor=assignor, commit_each=True)
        crowd.add(client, member)
    wait_for(crowd.settled, "three members share")
    _produce(client, topic, b"one")
    wait_for(lambda: crowd.has_read(b"one"), "the first lot is read")

    client.leave("b")
    crowd.remove("b")
    wait_for(crowd.settled, "two members share")
    _produce(client, topic, b"two")
    joined("d", group, [topic], assignor=assignor, commit_each=True)
    crowd.add(client, "d")
    wait_for(crowd.settled, "three members share again")
    _produce(client, topic, b"three")
    wait_for(lambda: crowd.has_read(b"two") and crowd.has_read(b"three"), "all is read")


def test_death(client, names, joined, another):
    """A process is killed: after its session its partitions go to the one that lives."""
    topic, group = names("topic"), names("group")
    client.create_topic(topic, partitions=PARTITIONS)
    crowd, doomed = Crowd(), another()
    joined("a", group, [topic], session_ms=SESSION_MS, commit_each=True)
    doomed.join("b", group, [topic], session_ms=SESSION_MS, commit_each=True)
    crowd.add(client, "a")
    crowd.add(doomed, "b")
    wait_for(crowd.settled, "two members share")
    crowd.remove("b")
    doomed.runner.kill()
    _produce(client, topic, b"lot")
    wait_for(crowd.settled, "the one that lives has all")
    wait_for(lambda: crowd.has_read(b"lot"), "all is read")


def _produce(client, topic, lot):
    records = [Record(value=lot + b"%d" % p, partition=p) for p in range(PARTITIONS)]
    client.produce(topic, records)


def test_resume_and_go_back(client, names, joined):
    """A group goes on behind its commit; a commit may go backward; metadata comes back."""
    topic, group = names("topic"), names("group")
    client.create_topic(topic)
    client.produce(topic, [Record(value=b"%d" % number) for number in range(10)])
    joined("m", group, [topic])
    assert len(_read(client, "m", 10)) == 10
    client.commit("m", (topic, 0, 7, "a note") if client.can("metadata") else (topic, 0, 7, ""))
    assert client.committed(group, topic) == (7, "a note" if client.can("metadata") else "")
    client.commit("m", (topic, 0, 4, ""))
    assert client.committed(group, topic)[0] == 4
    client.leave("m")
    joined("n", group, [topic])
    assert _read(client, "n", 6) == [4, 5, 6, 7, 8, 9]


def test_nothing_committed(client, names):
    topic, group = names("topic"), names("group")
    client.create_topic(topic)
    assert client.committed(group, topic)[0] == -1


@needs("static")
def test_static_member_is_fenced(client, names, joined):
    """The same instance comes again: the newer one has it, the older one is told so."""
    topic, group = names("topic"), names("group")
    client.create_topic(topic)
    joined("old", group, [topic], instance="only")
    wait_for(lambda: client.look("old").assignment == [(topic, 0)], "the first has the partition")
    joined("new", group, [topic], instance="only")
    wait_for(lambda: client.look("new").assignment == [(topic, 0)], "the second has the partition")
    codes: list[int] = []

    def fenced():
        """The client says so by itself, or when it is asked to commit."""
        error = client.look("old").error
        if error is None:
            try:
                client.commit("old", (topic, 0, 0, ""))
                return False
            except ClientError as refused:
                error = refused.code
        codes.append(error)
        return True

    wait_for(fenced, "the older one is told")
    assert codes == [FENCED_INSTANCE_ID]


@needs("set_committed")
def test_reset(client, names, joined):
    """An empty group is set to another offset; one with members is not."""
    topic, group = names("topic"), names("group")
    client.create_topic(topic)
    client.produce(topic, [Record(value=b"%d" % number) for number in range(5)])
    client.set_committed(group, topic, 3)
    joined("m", group, [topic])
    assert _read(client, "m", 2) == [3, 4]
    if client.can("reset_of_active"):
        assert _code(client.set_committed, group, topic, 1) == UNKNOWN_MEMBER_ID
    client.leave("m")
    client.set_committed(group, topic, 1)
    assert client.committed(group, topic)[0] == 1


@needs("groups")
def test_life_of_a_group(client, names, joined):
    topic, group = names("topic"), names("group")
    client.create_topic(topic)
    client.produce(topic, [Record(value=b"v")])
    joined("m", group, [topic], commit_each=True)
    wait_for(lambda: _described(client, group) == ("Stable", 1), "one member, stable")
    wait_for(lambda: client.committed(group, topic)[0] == 1, "committed")
    assert group in client.groups()
    if client.can("delete_group"):
        assert _code(client.delete_group, group) == NON_EMPTY_GROUP
    client.leave("m")
    wait_for(lambda: client.describe_group(group) == ("Empty", 0), "nobody, empty")
    assert client.committed(group, topic)[0] == 1
    if client.can("delete_group"):
        client.delete_group(group)
        assert group not in client.groups()
        assert client.committed(group, topic)[0] == -1
        assert _code(client.delete_group, group) == GROUP_ID_NOT_FOUND


def _described(client, group):
    """State and number of members; None before there is such a group."""
    try:
        return client.describe_group(group)
    except ClientError as error:
        if error.code != GROUP_ID_NOT_FOUND:
            raise
        return None


def _read(client, member, count):
    """The offsets that a member reads until there are enough."""
    found: list[int] = []

    def enough():
        found.extend(each.offset for each in client.look(member).records)
        return len(found) >= count

    wait_for(enough, f"{count} records")
    return found


def _code(call, *arguments):
    with pytest.raises(ClientError) as refused:
        call(*arguments)
    return refused.value.code
