"""Group commit: what goes together, in which order it is answered, what happens on errors."""

from __future__ import annotations

import random
from collections import deque
from functools import partial
from typing import Any

import pytest

from ister.metadata.catalog import Catalog
from ister.metadata.memory import MemoryStore
from ister.metadata.service import CommitService
from ister.metadata.store import (
    ABSENT,
    Conflict,
    StoreOverloaded,
    StoreUnavailable,
    Transaction,
)


class CountingStore(MemoryStore):
    """Remembers the size of each group."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: list[int] = []

    def commit_many(self, transactions):
        self.groups.append(len(transactions))
        return super().commit_many(transactions)


class Lane:
    """Runs what was submitted when told to, one at a time."""

    def __init__(self) -> None:
        self.queue: deque[Any] = deque()

    def submit(self, work, done) -> None:
        self.queue.append((work, done))

    def step(self) -> None:
        work, done = self.queue.popleft()
        _run(work, done)

    def run(self) -> None:
        while self.queue:
            self.step()


def _run(work, done) -> None:
    try:
        result = work()
    except Exception as error:
        done(None, error)
    else:
        done(result, None)


def _note(answers: list[Any], name: object, error: BaseException | None) -> None:
    answers.append((name, error))


def put(key: str) -> Transaction:
    return Transaction(expect={key: ABSENT}, put={key: b""})


@pytest.fixture
def store():
    return CountingStore()


@pytest.fixture
def lane():
    return Lane()


def test_what_waits_goes_in_one_group(store, lane):
    """The first goes at once; all that came meanwhile goes together; answers in order."""
    service = CommitService(store, lane.submit)
    answers: list[Any] = []
    for number in range(10):
        service.commit(put(str(number)), partial(_note, answers, number))
    assert answers == []
    lane.step()
    assert answers == [(0, None)]
    lane.run()
    assert store.groups == [1, 9]
    assert answers == [(number, None) for number in range(10)]
    assert service.idle


def test_an_answer_comes_only_after_the_commit(store, lane):
    """When `done(None)` is called the store has it."""
    service = CommitService(store, lane.submit)
    seen: list[Any] = []
    service.commit(put("a"), lambda error: seen.append(store.get("a")))
    assert store.get("a") is None
    lane.run()
    assert seen[0] is not None


def test_a_submit_that_runs_on_the_spot(store):
    """With work done inside `submit` the order of answers is the same, nested calls included."""
    service = CommitService(store, _run)
    answers: list[Any] = []

    def first(error) -> None:
        answers.append("first")
        service.commit(put("b"), lambda error: answers.append("nested"))
        answers.append("first ends")

    service.commit(put("a"), first)
    service.commit(put("c"), lambda error: answers.append("last"))
    assert answers == ["first", "first ends", "nested", "last"]
    assert service.idle


def test_a_conflict_is_told_to_its_caller_alone(store, lane):
    """The others of the group are committed."""
    service = CommitService(store, lane.submit)
    answers: dict[str, Any] = {}
    for name, key in [("x", "x"), ("one", "a"), ("two", "a"), ("three", "b")]:
        service.commit(put(key), partial(answers.__setitem__, name))
    lane.run()
    assert isinstance(answers.pop("two"), Conflict)
    assert answers == {"x": None, "one": None, "three": None}


def test_a_lost_reply_is_told_to_the_whole_group_as_it_is(store, lane):
    """Nothing is retried, and the next group goes on."""
    service = CommitService(store, lane.submit)
    answers: list[Any] = []
    service.commit(put("x"), answers.append)
    service.commit(put("a"), answers.append)
    service.commit(put("b"), answers.append)
    lane.step()
    store.lose_next_reply()
    lane.step()
    assert answers[0] is None
    assert [type(error) for error in answers[1:]] == [StoreUnavailable, StoreUnavailable]
    assert store.get("a") is not None
    service.commit(put("c"), answers.append)
    lane.run()
    assert answers[3] is None
    assert store.groups == [1, 2, 1]


def test_the_queue_is_bounded(store, lane):
    """Over the limit it is refused at once, `done` is not called, and later there is room."""
    service = CommitService(store, lane.submit, waiting_max=2)
    answers: list[Any] = []
    for key in "abc":  # one is running, two wait
        service.commit(put(key), answers.append)
    with pytest.raises(StoreOverloaded):
        service.commit(put("d"), answers.append)
    lane.run()
    assert answers == [None, None, None]
    assert store.get("d") is None
    service.commit(put("d"), answers.append)
    lane.run()
    assert store.get("d") is not None


def test_a_group_is_bounded(store, lane):
    """A long queue goes in several groups, in order."""
    service = CommitService(store, lane.submit, group_max=4)
    answers: list[Any] = []
    for number in range(10):
        service.commit(put(str(number)), partial(_note, answers, number))
    lane.run()
    assert store.groups == [1, 4, 4, 1]
    assert answers == [(number, None) for number in range(10)]


def test_a_failing_answer_does_not_swallow_the_others(store, lane):
    """Everybody is answered and the queue goes on; then the failure shows."""
    service = CommitService(store, lane.submit)
    answers: list[Any] = []

    def fail(error) -> None:
        raise RuntimeError("not my day")

    service.commit(put("x"), answers.append)
    for done in (fail, answers.append, fail):
        service.commit(put(str(len(service._waiting))), done)
    lane.step()
    service.commit(put("later"), answers.append)
    with pytest.raises(ExceptionGroup) as caught:
        lane.step()
    assert len(caught.value.exceptions) == 2
    lane.run()
    assert answers == [None, None, None]


def test_a_change_is_applied_before_its_answer(store, lane):
    """Memory follows the store, and does so only when it is durable."""
    catalog = Catalog.open(store, random.Random(1))
    service = CommitService(store, lane.submit)
    change = catalog.create("t", 1, {}, 0, random.Random(2))
    seen: list[Any] = []
    service.commit_change(change, lambda error: seen.append((error, "t" in catalog.topics_by_name)))
    assert catalog.topics_by_name == {}
    lane.run()
    assert seen == [(None, True)]


def test_a_change_that_conflicts_is_not_applied(store, lane):
    """Of two creations of one name in flight the second is a conflict; memory has the first."""
    catalog = Catalog.open(store, random.Random(1))
    service = CommitService(store, lane.submit)
    first = catalog.create("t", 1, {}, 0, random.Random(2))
    second = catalog.create("t", 2, {}, 0, random.Random(3))
    answers: list[Any] = []
    service.commit_change(first, answers.append)
    service.commit_change(second, answers.append)
    lane.run()
    assert answers[0] is None
    assert isinstance(answers[1], Conflict)
    assert catalog.topics_by_name == {"t": first.result}
    assert list(catalog.topics_by_id) == [first.result.id]
