"""The cursor service: durable first, then memory, then the answer."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pytest
import structlog
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ister.dispatch.cursors import CursorService, Place
from ister.dispatch.errors import TooManyCursors
from ister.metadata.catalog import Catalog, Topic
from ister.metadata.cursors import Cursor, load_cursors
from ister.metadata.errors import StoreOverloaded, StoreUnavailable, UnknownTopic
from ister.metadata.memory import MemoryStore
from ister.metadata.service import CommitService
from ister.metadata.sqlite import SqliteStore
from ister.metadata.store import Store
from ister.wal.driver import METADATA, InlineDriver


class Bench:
    """A store, a driver that waits to be told, and the service above."""

    def __init__(
        self,
        store: Store | None = None,
        randomness: random.Random | None = None,
        **options: int,
    ) -> None:
        self.store = MemoryStore() if store is None else store
        self.driver = InlineDriver()
        self.randomness = randomness or random.Random(7)
        self.catalog = Catalog.open(self.store, self.randomness)
        self.commits = CommitService(self.store, partial(self.driver.submit, METADATA))
        self.cursors = CursorService(self.store, self.commits, self.catalog, **options)
        self.answers: list[object] = []

    def topic(self, name: str) -> Topic:
        return self.catalog.commit(self.store, self.catalog.create(name, 3, {}, 1, self.randomness))

    def commit(self, group: str, *cursors: tuple[Place, int]) -> None:
        values = [(place, Cursor(offset=offset)) for place, offset in cursors]
        self.cursors.commit(group, values, self.answers.append)

    def run(self) -> list[object]:
        self.driver.run_until_idle()
        self.cursors.check()
        answers, self.answers = self.answers, []
        return answers

    def reopened(self) -> Bench:
        """What a new process finds."""
        assert isinstance(self.store, MemoryStore)
        return Bench(self.store.reopen(), self.randomness)

    def offset(self, group: str, place: Place) -> int | None:
        cursor = self.cursors.fetch(group, place)
        return None if cursor is None else cursor.offset


def test_memory_changes_only_when_durable():
    """Pitfall 21: a commit is durable before it is seen and before it is answered."""
    bench = Bench()
    place = Place(bench.topic("t").id, 0)
    bench.commit("g", (place, 5))
    assert bench.offset("g", place) is None
    assert bench.answers == []
    assert bench.run() == [{}]
    assert bench.offset("g", place) == 5
    assert bench.reopened().offset("g", place) == 5


def test_everything_comes_back(tmp_path: Path):
    """Offset, epoch, the client's words, time and generation survive a restart, in SQLite too."""
    bench = Bench(SqliteStore(tmp_path / "metadata"))
    place = Place(bench.topic("t").id, 2)
    cursor = Cursor(offset=5, leader_epoch=3, metadata="wörds \0", time_ms=99, generation=7)
    bench.cursors.commit("a/g", [(place, cursor)], bench.answers.append)
    assert bench.run() == [{}]
    bench.store.close()
    again = Bench(SqliteStore(tmp_path / "metadata"))
    assert again.cursors.fetch_all("a/g") == {place: cursor}
    assert list(again.cursors.all()) == [("a/g", place, cursor)]
    again.store.close()


def test_commits_may_go_back():
    """A deliberate rewind is legal, and counted."""
    bench = Bench()
    place = Place(bench.topic("t").id, 0)
    for offset in (5, 7, 3):
        bench.commit("g", (place, offset))
    assert bench.run() == [{}, {}, {}]
    assert bench.offset("g", place) == 3
    assert bench.cursors.rewinds == 1


def test_groups_and_partitions_are_apart():
    """A cursor is (group, topic, partition)."""
    bench = Bench()
    first, second = bench.topic("a").id, bench.topic("b").id
    bench.commit("g", (Place(first, 0), 1), (Place(first, 1), 2), (Place(second, 0), 3))
    bench.commit("h", (Place(first, 0), 4))
    assert bench.run() == [{}, {}]
    assert {place: c.offset for place, c in bench.cursors.fetch_all("g").items()} == {
        Place(first, 0): 1,
        Place(first, 1): 2,
        Place(second, 0): 3,
    }
    assert sorted(bench.cursors.groups()) == ["g", "h"]
    assert len(bench.cursors) == 4


@pytest.mark.parametrize("commit_first", [True, False])
def test_a_commit_that_races_a_deletion_leaves_nothing(commit_first):
    """Whichever of the two comes first: no cursor in the store, none shown, none resurrected."""
    bench = Bench()
    kept, lost = bench.topic("kept"), bench.topic("lost")
    deletion = bench.catalog.delete(lost.id, 9)
    if commit_first:
        bench.commit("g", (Place(lost.id, 0), 5), (Place(kept.id, 0), 6))
        bench.commits.commit_change(deletion, lambda _: bench.cursors.forget_topic(lost.id))
    else:
        bench.commits.commit_change(deletion, lambda _: bench.cursors.forget_topic(lost.id))
        bench.commit("g", (Place(lost.id, 0), 5), (Place(kept.id, 0), 6))
    (failures,) = bench.run()
    assert isinstance(failures, dict)
    assert [type(error) for error in failures.values()] == ([] if commit_first else [UnknownTopic])
    assert [key.topic_id for key, _, _ in load_cursors(bench.store)] == [kept.id]
    assert bench.cursors.fetch_all("g").keys() == {Place(kept.id, 0)}
    assert len(bench.cursors) == 1


def test_a_topic_made_again_has_no_cursors():
    """Cursors are keyed by id: a new topic of the same name starts anew."""
    bench = Bench()
    old = bench.topic("t")
    bench.commit("g", (Place(old.id, 0), 5))
    bench.run()
    bench.catalog.commit(bench.store, bench.catalog.delete(old.id, 9))
    assert not bench.cursors.has("g")
    assert bench.cursors.groups() == []
    new = bench.topic("t")
    assert bench.offset("g", Place(new.id, 0)) is None
    assert bench.offset("g", Place(old.id, 0)) is None
    bench.commit("g", (Place(old.id, 0), 6))
    (failures,) = bench.run()
    assert isinstance(failures[old.id], UnknownTopic)  # type: ignore[index]


def test_deleting_a_group_takes_what_is_under_way_along():
    """A commit that was sent before the deletion does not survive it."""
    bench = Bench()
    topic = bench.topic("t").id
    bench.commit("g", (Place(topic, 0), 5))
    bench.run()
    bench.commit("g", (Place(topic, 1), 6))
    bench.cursors.delete_group("g", bench.answers.append)
    assert bench.run() == [{}, None]
    assert bench.cursors.fetch_all("g") == {}
    assert list(load_cursors(bench.store)) == []
    assert len(bench.cursors) == 0


def test_deleting_some_cursors_leaves_the_others():
    """OffsetDelete works by partition; one that is not there is no error."""
    bench = Bench()
    topic = bench.topic("t").id
    bench.commit("g", (Place(topic, 0), 5), (Place(topic, 1), 6))
    bench.run()
    bench.cursors.delete("g", [Place(topic, 0), Place(topic, 2)], bench.answers.append)
    bench.cursors.delete("g", [], bench.answers.append)
    assert bench.run() == [None, None]
    assert bench.cursors.fetch_all("g").keys() == {Place(topic, 1)}


def test_no_answer_from_the_store_is_looked_into():
    """Pitfall 19: a commit that may be durable is never answered with -1."""
    bench = Bench()
    assert isinstance(bench.store, MemoryStore)
    place = Place(bench.topic("t").id, 0)
    bench.store.lose_next_reply()
    bench.commit("g", (place, 5))
    with structlog.testing.capture_logs() as lines:
        (failures,) = bench.run()
    assert [(each["event"], each["group"]) for each in lines] == [("cursor_write_failed", "g")]
    assert isinstance(failures[place.topic_id], StoreUnavailable)  # type: ignore[index]
    assert bench.cursors.write_errors == 1
    assert bench.cursors.has("g")
    assert bench.offset("g", place) == 5
    bench.store.lose_next_reply()
    bench.cursors.delete_group("g", bench.answers.append)
    bench.run()
    assert bench.cursors.fetch_all("g") == {}


def test_a_dead_store_says_so():
    """While it cannot be known whether there is a cursor, that is the answer."""
    bench = Bench()
    assert isinstance(bench.store, MemoryStore)
    place = Place(bench.topic("t").id, 0)
    bench.store.lose_next_reply()
    bench.commit("g", (place, 5))
    bench.run()
    bench.store.close()
    with pytest.raises(StoreUnavailable):
        bench.cursors.fetch("g", place)
    with pytest.raises(StoreUnavailable):
        bench.cursors.fetch_all("g")


def test_too_much_waiting_is_refused_at_once():
    """What was not tried changes nothing."""
    bench = Bench()
    place = Place(bench.topic("t").id, 0)
    bench.commits = CommitService(
        bench.store, partial(bench.driver.submit, METADATA), waiting_max=1
    )
    bench.cursors = CursorService(bench.store, bench.commits, bench.catalog)
    for offset in (1, 2, 3):
        bench.commit("g", (place, offset))
    refused, *rest = bench.run()
    assert isinstance(refused[place.topic_id], StoreOverloaded)  # type: ignore[index]
    assert rest == [{}, {}]
    assert bench.offset("g", place) == 2


def test_cursors_are_limited():
    """A new cursor beyond the limit is refused, one that is there goes on."""
    bench = Bench(cursors_max=1)
    topic = bench.topic("t").id
    bench.commit("g", (Place(topic, 0), 1))
    bench.run()
    bench.commit("g", (Place(topic, 1), 1))
    bench.commit("g", (Place(topic, 0), 2))
    refused, accepted = bench.run()
    assert isinstance(refused[topic], TooManyCursors)  # type: ignore[index]
    assert accepted == {}


PLACES = st.tuples(st.integers(0, 1), st.integers(0, 1))


class CursorMachine(RuleBasedStateMachine):
    """Against what was acked: memory shows it, and a crash at any moment keeps it."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        self.topics = [self.bench.topic(name) for name in "ab"]
        self.acked: dict[tuple[str, Place], int | None] = {}
        self.maybe: dict[
            tuple[str, Place], list[int | None]
        ] = {}  # sent, not (yet) acked; in order
        self.offset = 0

    @rule(group=st.sampled_from("gh"), places=st.lists(PLACES, min_size=1, max_size=3))
    def commit(self, group, places):
        self.offset += 1
        sent = {Place(self.topics[topic].id, partition) for topic, partition in places}
        offset = self.offset
        for place in sent:
            self.maybe.setdefault((group, place), []).append(offset)

        def done(failures):
            for place in sent:
                if place.topic_id not in failures:
                    self._acked(group, place, offset)

        values = [(place, Cursor(offset=offset)) for place in sent]
        self.bench.cursors.commit(group, values, done)

    @rule(group=st.sampled_from("gh"))
    def delete_group(self, group):
        sent = [key for key in {**self.acked, **self.maybe} if key[0] == group]
        for key in sent:
            self.maybe.setdefault(key, []).append(None)

        def done(error):
            if error is None:
                for key in sent:
                    self._acked(*key, None)

        self.bench.cursors.delete_group(group, done)

    @rule(which=st.integers(0, 1))
    def delete_topic_and_make_it_again(self, which):
        self.bench.driver.run_until_idle()
        old = self.topics[which]
        catalog = self.bench.catalog
        catalog.commit(self.bench.store, catalog.delete(old.id, 9))
        self.bench.cursors.forget_topic(old.id)
        self.acked = {k: v for k, v in self.acked.items() if k[1].topic_id != old.id}
        self.maybe = {k: v for k, v in self.maybe.items() if k[1].topic_id != old.id}
        self.topics[which] = self.bench.topic(old.name)

    @rule()
    def step(self):
        self.bench.driver.step()

    @precondition(lambda self: not self.bench.commits.idle)
    @rule()
    def lose_a_reply(self):
        assert isinstance(self.bench.store, MemoryStore)
        self.bench.store.lose_next_reply()
        self.bench.driver.step()

    @precondition(lambda self: self.acked)
    @rule()
    def crash(self):
        self.bench = self.bench.reopened()
        for key in {**self.acked, **self.maybe}:
            found = self.bench.offset(*key)
            assert found in {self.acked.get(key), *self.maybe.get(key, ())}
            self.acked[key] = found
        self.maybe.clear()

    @invariant()
    def what_was_acked_is_shown(self):
        self.bench.cursors.check()
        for key in {**self.acked, **self.maybe}:
            found = self.bench.offset(*key)
            assert found in {self.acked.get(key), *self.maybe.get(key, ())}

    def _acked(self, group: str, place: Place, offset: int | None) -> None:
        """Answers come in order: what was sent before this one is over."""
        self.acked[group, place] = offset
        sent = self.maybe.get((group, place), [])
        if offset in sent:
            self.maybe[group, place] = sent[sent.index(offset) + 1 :]


CursorMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestCursorModel = CursorMachine.TestCase
